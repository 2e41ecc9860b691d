"""Filtering and sorting alerts."""

import msgspec
import pytest

from tests.tui.alert_looks import on_alerts
from tests.tui.canned import FakeFeed, make_app
from tests.tui.canned_alerts import LEAK, OOM, make_alerts
from tests.tui.looks import shown_text
from vramscope.tui.alerts.list import AlertOrder, collect_rows, filter_rows, sort_rows, strip_place
from vramscope.tui.alerts.screen import AlertHeading


async def test_the_filter_finds_by_kind_device_state_and_text() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("3", "slash", *"gpu5")
        await pilot.pause()
        assert [row.finding.kind for row in on_alerts(app).list._rows] == ["oom", "leak"]
        assert "2 of 5 match “gpu5”" in app.screen.query_one(AlertHeading).text
        await pilot.press("enter")
        assert on_alerts(app).focused is on_alerts(app).list
        await pilot.press("slash", *"x")
        await pilot.pause()
        assert "No alert matches “x”; Esc shows all." in shown_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert len(on_alerts(app).list._rows) == 5


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("muted", ["idle_held"]),
        ("ACKNOWLEDGED", ["pressure"]),
        ("out of memory", ["oom"]),
        ("critical gpu5", ["oom"]),
        ("train.py", ["oom", "leak"]),
        ("gpu 10", ["pressure"]),
        ("", ["oom", "pressure", "leak", "idle_held", "fragmentation"]),
    ],
)
def test_filters(text: str, kinds: list[str]) -> None:
    rows = filter_rows(collect_rows(make_alerts()), text)
    assert [row.finding.kind for row in rows] == kinds


@pytest.mark.parametrize(
    ("order", "kinds"),
    [
        (AlertOrder(), ["oom", "pressure", "leak", "idle_held", "fragmentation"]),
        (AlertOrder("time", True), ["idle_held", "leak", "pressure", "oom", "fragmentation"]),
        (AlertOrder("severity"), ["oom", "leak", "pressure", "idle_held", "fragmentation"]),
        (AlertOrder("kind"), ["idle_held", "leak", "oom", "pressure", "fragmentation"]),
        (AlertOrder("device"), ["idle_held", "oom", "leak", "pressure", "fragmentation"]),
    ],
)
def test_orders_keep_what_is_open_first(order: AlertOrder, kinds: list[str]) -> None:
    rows = sort_rows(collect_rows(make_alerts()), order)
    assert [row.finding.kind for row in rows] == kinds


@pytest.mark.parametrize("order", [AlertOrder(), AlertOrder("time", True), AlertOrder("severity")])
def test_findings_of_one_moment_do_not_swap_when_one_is_restated(order: AlertOrder) -> None:
    same = msgspec.structs.replace(LEAK, opened_s=OOM.opened_s, severity=OOM.severity)
    rows = [sort_rows(collect_rows(make_alerts(findings=pair)), order) for pair in ((OOM, same), (same, OOM))]
    assert [row.finding.id for row in rows[0]] == [row.finding.id for row in rows[1]]


async def test_sorting_by_dialog_and_by_keys() -> None:
    app = make_app(FakeFeed(make_alerts()))
    async with app.run_test(size=(120, 32)) as pilot:
        await pilot.press("3", "s")
        await pilot.pause()
        assert "Sort alerts by" in shown_text(app)
        await pilot.press("j", "enter")
        assert on_alerts(app).order == AlertOrder("severity")
        await pilot.press("I")
        assert on_alerts(app).order == AlertOrder("severity", True)
        await pilot.press("greater_than_sign", "greater_than_sign", "greater_than_sign")
        assert on_alerts(app).order == AlertOrder("device")
        await pilot.press("less_than_sign")
        await pilot.pause()
        assert app.screen.query_one(AlertHeading).text.endswith("by kind")


@pytest.mark.parametrize(
    ("title", "where", "left"),
    [
        ("GPU sim0 lost: its process ended", "GPU sim0", "lost: its process ended"),
        ("GPU 5 (rank 5) leaks 20 MiB a step", "GPU 5 rank 5", "leaks 20 MiB a step"),
        ("GPU 5 (rank 5) leaks 20 MiB a step", "GPU 5", "(rank 5) leaks 20 MiB a step"),
        ("GPU 5: 3.2 GiB left", "GPU 5", "3.2 GiB left"),
        ("GPU 50 is full", "GPU 5", "GPU 50 is full"),
        ("rank 3 peaks at 79.1 GiB", "rank 3", "peaks at 79.1 GiB"),
        ("40.0 GiB used on GPU 5", "GPU 5", "40.0 GiB used on GPU 5"),
        ("GPU 5", "GPU 5", "GPU 5"),
    ],
)
def test_a_title_does_not_repeat_the_device_that_the_row_names(title: str, where: str, left: str) -> None:
    assert strip_place(title, where) == left
