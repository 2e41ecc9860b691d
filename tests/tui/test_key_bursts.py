"""A key that is held down sends many presses before anything is drawn: every press counts."""

import pytest
from textual.containers import VerticalScroll
from textual.widget import Widget

from tests.tui.canned import FakeFeed, make_app
from tests.tui.canned_ranks import make_job, with_ranks
from vramscope.tui.device.page import DevicePage

PRESSES = 5


@pytest.mark.parametrize(("screen", "kind"), [("question_mark", VerticalScroll), ("2", DevicePage)])
async def test_every_press_of_a_burst_scrolls_a_line(screen: str, kind: type[Widget]) -> None:
    app = make_app(FakeFeed(with_ranks(*make_job(2))))
    async with app.run_test(size=(80, 16)) as pilot:
        await pilot.press(screen)
        await pilot.pause()
        for _ in range(PRESSES):
            app.simulate_key("down")
        await pilot.pause()
        assert app.screen.query_one(kind).scroll_y == PRESSES


async def test_the_help_goes_by_pages_and_to_both_ends() -> None:
    app = make_app(FakeFeed(with_ranks(*make_job(2))))
    async with app.run_test(size=(80, 16)) as pilot:
        await pilot.press("question_mark", "pagedown")
        text = app.screen.query_one(VerticalScroll)
        assert text.scroll_y == text.size.height - 1
        await pilot.press("end")
        assert text.scroll_y == text.max_scroll_y > 0
        await pilot.press("pageup", "home")
        assert text.scroll_y == 0
