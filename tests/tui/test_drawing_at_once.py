"""A tick is painted in one go: no message to each widget, no timer, nothing asked that did not change."""

from textual.geometry import Region
from textual.strip import Strip

from tests.tui.canned import NOON_S, FakeFeed, make_app, make_finding, make_hub, make_snapshot
from vramscope.tui.app import is_same_picture
from vramscope.tui.live.screen import AlertLine
from vramscope.tui.widgets.title_line import TitleLine


def _rows(app: object) -> str:
    strips: list[Strip] = app.screen._compositor.render_strips()  # type: ignore[attr-defined]  # any app
    return "\n".join(strip.text for strip in strips)


async def test_a_snapshot_is_painted_before_any_other_message_is_handled() -> None:
    app = make_app(feed := FakeFeed(make_snapshot(8)))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.pause()
        feed.hand_over(make_snapshot(8, seq=2))
        app._draw_newest()
        assert not app.live._dirty_widgets, "all that was marked was painted"
        assert "12:00:02" in _rows(app)
        assert app.live.query_one(TitleLine)._message_queue.empty(), "no widget was sent a message"


async def test_only_widgets_that_changed_are_asked_for_lines() -> None:
    app = make_app(feed := FakeFeed(make_snapshot(8)))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.pause()
        asked: list[Region] = []
        alerts = app.live.query_one(AlertLine)
        render = alerts.render_lines
        alerts.render_lines = lambda crop: asked.append(crop) or render(crop)  # type: ignore[method-assign,func-returns-value]  # counts
        feed.hand_over(make_snapshot(8, seq=2))
        await pilot.pause()
        assert asked == []
        feed.hand_over(make_snapshot(8, seq=3, findings=(make_finding(3, opened_s=NOON_S),)))
        await pilot.pause()
        assert len(asked) == 1
        assert "(3 shows it)" in _rows(app), "the notice has the line"


def test_what_the_hub_tells_of_itself_waits_for_the_next_sample() -> None:
    snapshot = make_snapshot(8)
    assert is_same_picture(snapshot, make_snapshot(8, hub=make_hub(cpu_percent=3.0)))
    assert not is_same_picture(snapshot, make_snapshot(8, hub=make_hub(workers=())))
    assert not is_same_picture(snapshot, make_snapshot(8, seq=2))
    assert not is_same_picture(snapshot, make_snapshot(8, findings=(make_finding(3),)))
    assert not is_same_picture(snapshot, make_snapshot(8, connection="lost", silent_s=3.0))
    assert not is_same_picture(make_snapshot(8, hub=None), snapshot), "the first word of a hub is shown"


async def test_news_of_the_hub_alone_are_no_skipped_frame() -> None:
    app = make_app(feed := FakeFeed(make_snapshot(8)))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.pause()
        feed.hand_over(make_snapshot(8, seq=2))
        feed.hand_over(make_snapshot(8, seq=2, hub=make_hub(cpu_percent=9.0)))
        await pilot.pause()
        assert "skipped" not in _rows(app)
        assert "9.0 % CPU" in _rows(app)
