"""No size and no number of devices brings the view down."""

import asyncio
from itertools import product

import pytest
from textual.geometry import Size
from textual.pilot import Pilot

from tests.tui.canned import FakeFeed, make_app, make_past, make_sample, make_snapshot
from vramscope.tui.widgets.verdict_line import VerdictLine

WIDTHS = (1, 2, 10, 40, 80, 300)
HEIGHTS = (1, 2, 5, 10, 12, 18, 28, 80)
COUNTS = (0, 1, 2, 8, 16, 17, 64, 72)


@pytest.mark.parametrize("count", COUNTS)
async def test_every_size_is_drawn(count: int) -> None:
    snapshot = make_snapshot(count)
    if not count:
        snapshot = make_snapshot(sample=make_sample((), notes=("No NVIDIA driver is loaded here.",)))
    feed = FakeFeed(snapshot)
    app = make_app(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        # Every second height; the next number of devices has the others.
        for width, height in product(WIDTHS, HEIGHTS[COUNTS.index(count) % 2 :: 2]):
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
