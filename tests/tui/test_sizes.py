"""No size and no number of devices brings the view down."""

import asyncio
from functools import partial
from itertools import count, product

import pytest
from textual.geometry import Size
from textual.pilot import Pilot

from tests.tui.canned import FakeFeed, make_app, make_past, make_sample, make_snapshot
from vramscope.tui.widgets.verdict_line import VerdictLine

WIDTHS = (1, 2, 10, 40, 80, 300)
HEIGHTS = (1, 2, 5, 10, 12, 18, 28, 80)
COUNTS = (0, 1, 2, 8, 16, 17, 64, 72)


@pytest.mark.parametrize("devices", COUNTS)
async def test_every_size_is_drawn(devices: int) -> None:
    snapshot = make_snapshot(devices)
    if not devices:
        snapshot = make_snapshot(sample=make_sample((), notes=("No NVIDIA driver is loaded here.",)))
    feed = FakeFeed(snapshot)
    app = make_app(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        # Every second height; the next number of devices has the others.
        for width, height in product(WIDTHS, HEIGHTS[COUNTS.index(devices) % 2 :: 2]):
            await pilot.resize_terminal(width, height)
            await _settle(pilot, Size(width, height))
            strips = app.screen._compositor.render_strips()
            assert [strip.cell_length for strip in strips] == [width] * height
        await pilot.resize_terminal(80, 24)
        assert app.live.query_one(VerdictLine).region.y in {0, 1}


async def _settle(pilot: Pilot[None], size: Size) -> None:
    """Wait until the screen has taken a size over: on a loaded machine one pause is too short for that."""
    async with asyncio.timeout(60):
        while pilot.app.screen._compositor.size != size:
            await pilot.pause()


async def test_a_size_is_followed_by_a_process_that_is_paused_as_its_timer_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = make_app(FakeFeed(make_snapshot(2)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        # Between any two looks at the clock 50 ms pass; Textual waits 8 ms before it resizes a screen.
        monkeypatch.setattr("textual.timer._time.get_time", partial(next, count(0.0, 0.05)))
        await pilot.resize_terminal(100, 30)
        async with asyncio.timeout(10):
            while app.screen._compositor.size != Size(100, 30):
                await pilot.pause()
        monkeypatch.undo()


async def test_a_sliver_shows_the_verdict_first_and_one_line_a_device() -> None:
    feed = FakeFeed(make_snapshot(8))
    for sample in make_past(8, 10):
        feed.history.add(sample)
    app = make_app(feed)
    async with app.run_test(size=(40, 10)):
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        assert lines[0].startswith(" ? risk unknown: vramscope attach")
        assert [line.split()[0].lstrip("▌") for line in lines[1:9]] == [str(index) for index in range(8)]


async def test_keys_in_the_smallest_pane_do_no_harm() -> None:
    app = make_app(FakeFeed(make_snapshot(8)))
    async with app.run_test(size=(1, 1)) as pilot:
        await pilot.press(
            "tab", "down", "s", "escape", "slash", "escape", "K", "escape", "question_mark", "escape"
        )
        assert app.is_running
