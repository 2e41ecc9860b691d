"""The screen of one device: how one gets there, what it tells, what it asks for, and back again."""

import asyncio

import msgspec
import pytest
from textual.geometry import Region, Size
from textual.pilot import Pilot

from tests.tui.canned import FakeFeed, StillClock, make_app, make_finding, make_snapshot
from tests.tui.canned_ranks import (
    make_crowd,
    make_job,
    make_on_processors,
    make_rank,
    make_segments,
    make_step,
    make_trained,
    past_of,
    with_ranks,
)
from tests.tui.looks import notices, shown_screen, shown_text, title
from tests.tui.ranks_cases import CASES, app_for
from vramscope.engine.bus.snapshot import SegmentsRefused, Snapshot
from vramscope.engine.model import AllocatorReading, DeviceSample, Evidence, MemoryReading, Sample
from vramscope.engine.units import GIB
from vramscope.tui.app import VramscopeApp
from vramscope.tui.commands import PaletteCommands
from vramscope.tui.process_rows import SortOrder
from vramscope.tui.screens.device import ASK_INTERVAL_S, DeviceScreen
from vramscope.tui.screens.help import HelpScreen
from vramscope.tui.screens.live import LiveScreen
from vramscope.tui.screens.node_screen import CHOOSE_FIRST
from vramscope.tui.screens.sort import SortScreen

SIZE = (120, 44)


def on_device(app: VramscopeApp) -> DeviceScreen:
    assert isinstance(app.screen, DeviceScreen)
    return app.screen


def feed_of(snapshot: Snapshot) -> FakeFeed:
    feed = FakeFeed(snapshot)
    for sample in past_of(snapshot, ticks=60):
        feed.history.add(sample)
    return feed


def later(snapshot: Snapshot, seq: int, **changes: object) -> Snapshot:
    """Return the snapshot of another tick, with nothing changed but what is named."""
    assert snapshot.sample is not None
    sample = msgspec.structs.replace(
        snapshot.sample, seq=seq, time_s=snapshot.sample.time_s + seq - snapshot.sample.seq
    )
    return msgspec.structs.replace(snapshot, sample=sample, **changes)


async def test_enter_opens_the_device_and_escape_leads_back_to_it() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("down", "down", "down", "enter")
        await pilot.pause()
        assert on_device(app).uuid == "GPU-0002"
        await pilot.press("right", "escape")
        await pilot.pause()
        assert shown_screen(app) is LiveScreen
        assert app.live.devices.selected == "GPU-0003"


async def test_enter_in_the_list_opens_the_device_of_the_process_and_lists_its_processes_alone() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("tab", "enter")
        await pilot.pause()
        screen = on_device(app)
        assert screen.uuid == "GPU-0004"
        assert {row.device.index for row in screen.processes.rows} == {4}
        await pilot.press("1")
        await pilot.pause()
        assert app.live.processes.process_count == 12


async def test_two_shows_the_selected_device_or_else_the_fullest() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2")
        await pilot.pause()
        assert on_device(app).uuid == "GPU-0004", "77 of 79.6 GiB"
        await pilot.press("question_mark", "1")
        await pilot.pause()
        assert shown_screen(app) is LiveScreen
        await pilot.press("home", "2", "2")
        await pilot.pause()
        assert on_device(app).uuid == "GPU-0000"


async def test_two_says_so_where_there_is_no_device() -> None:
    app = make_app(FakeFeed(make_snapshot(0)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2")
        assert notices(app) == ["There is no device to show."]
        assert shown_screen(app) is LiveScreen


async def test_palette_and_help_know_the_screen() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=(92, 140)) as pilot:
        assert "view: device" in [entry.name for entry in PaletteCommands(app.live)._entries()]
        await pilot.press("2", "question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        text = shown_text(app)
        for binding in app.screen._explained.active_bindings.values():
            if binding.binding.id and "-" in binding.binding.id:
                assert binding.binding.tooltip in text, binding.binding.id
        await pilot.press("escape")
        assert shown_screen(app) is DeviceScreen


async def test_arrows_and_tab_go_from_device_to_device_and_round() -> None:
    app = make_app(feed_of(with_ranks(*make_job(3))))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "enter")
        seen = []
        for key in ("right", "l", "tab", "left", "shift+tab", "h"):
            await pilot.press(key)
            await pilot.pause()
            seen.append(on_device(app).uuid[-1])
        assert seen == ["1", "2", "0", "2", "1", "0"]


async def test_tab_chooses_among_the_ranks_of_a_device_before_it_goes_on() -> None:
    devices, ranks = make_crowd()
    other = make_rank(2, device_uuid="GPU-0001")
    snapshot = with_ranks([*devices, make_trained(1, [other])], [*ranks, other])
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "enter")
        await pilot.pause()
        assert "▌rank 0 tp0 pp0   rank 1 tp1 pp0" in "\n".join(rows(app))
        seen = [(on_device(app).uuid[-1], on_device(app)._pid)]
        for key in ("tab", "tab", "tab", "shift+tab", "shift+tab"):
            await pilot.press(key)
            await pilot.pause()
            seen.append((on_device(app).uuid[-1], on_device(app)._pid))
        assert seen == [("0", 4000), ("0", 4010), ("1", 4020), ("0", 4000), ("1", 4020), ("0", 4010)]
        assert set(feed.asked) == {4000, 4010, 4020}, "each map is asked for when its rank comes in sight"


def rows(app: VramscopeApp) -> list[str]:
    return [strip.text for strip in app.screen._compositor.render_strips()]


async def test_the_list_of_processes_has_all_its_keys() -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("down", "down", "enter", "K")
        await pilot.pause()
        assert notices(app) == [CHOOSE_FIRST.format("p")]
        screen = on_device(app)
        assert screen.processes.process_count == 2
        await pilot.press("p", "less_than_sign", "I")
        assert app.focused is screen.processes
        assert screen.processes.order == SortOrder("user", True)
        await pilot.press("slash", *"rank 3", "enter")
        await pilot.pause()
        assert [row.process.pid for row in screen.processes.rows] == [4011]
        await pilot.press("escape", "escape", "s")
        assert isinstance(app.screen, SortScreen)
        await pilot.press("escape", "escape")
        await pilot.pause()
        assert shown_screen(app) is LiveScreen
        assert app.live.processes.order == SortOrder("user", True), "the order goes along"


async def test_a_map_is_asked_for_at_once_and_then_every_ten_seconds_while_it_is_looked_at() -> None:
    snapshot, clock = with_ranks(*make_job(2)), StillClock()
    feed = feed_of(snapshot)
    app = make_app(feed, clock=clock)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert feed.asked == []
        await pilot.press("home", "enter")
        await pilot.pause()
        assert feed.asked == [4000]
        assert "Segment map asked for, waiting." in shown_text(app)
        for seq, seconds in ((2, 3.0), (3, ASK_INTERVAL_S - 4.0), (4, 1.0), (5, 1.0)):
            clock.now_s += seconds
            feed.hand_over(later(snapshot, seq))
            await pilot.pause()
        assert feed.asked == [4000, 4000]
        assert "waiting for 11 s" in shown_text(app)
        await pilot.press("escape")
        clock.now_s += 60
        feed.hand_over(later(snapshot, 6))
        await pilot.pause()
        assert feed.asked == [4000, 4000], "nobody looks at it any more"


async def test_a_map_says_what_it_comes_to_and_how_old_it_is() -> None:
    snapshot = with_ranks(*make_job(1), segment_maps=(make_segments(4000, "GPU-0000", with_stacks=True),))
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=(120, 60)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        text = shown_text(app)
        assert "segments large 61 (26 hold 5.5 GiB stranded) small 40 private 1" in text
        assert "largest free block 2.0 GiB" in text
        assert "3 s old" in text
        assert "12.0 GiB 384 × train.py:212 evaluate" in text
        feed.hand_over(later(snapshot, 4))
        await pilot.pause()
        assert "6 s old" in shown_text(app)


@pytest.mark.parametrize(
    ("snapshot", "words", "is_asked"),
    [
        (with_ranks(*make_on_processors()), "tensors in host memory have no caching allocator", False),
        (
            with_ranks(make_job(1)[0], [make_rank(0, state="stale", age_s=9.0, reason="no word")]),
            "No segment map: the process is silent.",
            False,
        ),
        (
            with_ranks(make_job(1)[0], [make_rank(0, backend=None, allocator=None)]),
            "the process has not used a device so far",
            False,
        ),
        (
            with_ranks(*make_job(1), connection="lost", silent_s=4.0),
            "No segment map: the connection is not live.",
            False,
        ),
        (
            with_ranks(*make_job(1), segments_refused=(SegmentsRefused(4000, "the probe is too old"),)),
            "No segment map: the probe is too old",
            True,
        ),
        (make_snapshot(1), "vramscope attach PID", False),
    ],
    ids=["processors", "stale", "no-backend", "lost", "refused", "no-probe"],
)
async def test_where_there_is_no_map_it_says_why(snapshot: Snapshot, words: str, is_asked: bool) -> None:
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2")
        await pilot.pause()
        assert words in shown_text(app)
        assert bool(feed.asked) is is_asked


async def test_findings_of_the_device_are_told_with_evidence_and_advice() -> None:
    told = msgspec.structs.replace(
        make_finding(0),
        evidence=(
            Evidence("used", 70 * GIB, "bytes"),
            Evidence("since", 1_760_011_100.0, "s"),
            Evidence("left", None),
        ),
        method="the floor of every step",
        advice="lower the batch size",
    )
    snapshot = with_ranks(*make_job(2), findings=(told, make_finding(1)))
    app = make_app(feed_of(snapshot))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "enter")
        await pilot.pause()
        text = shown_text(app)
        assert "used 70.0 GiB, since 11:58:20, left —" in text
        assert "the floor of every step To do: lower the batch size" in text
        assert "GPU 1 has" not in text.split("H100")[1]


async def test_the_last_steps_are_kept_whatever_screen_is_shown() -> None:
    snapshot = with_ranks(*make_job(1))
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=SIZE) as pilot:
        for seq in (2, 3, 4):
            devices, ranks = make_job(1)
            step = msgspec.structs.replace(make_step(1842 + seq), is_peak_exact=seq != 3)
            ranks = [msgspec.structs.replace(ranks[0], step=step)]
            feed.hand_over(later(with_ranks(devices, ranks), seq))
            await pilot.pause()
        await pilot.press("2")
        await pilot.pause()
        text = "\n".join(rows(app))
        assert "step         1,842    1,844    1,845    1,846" in text
        assert "peak GiB      50.0     50.0    ≥50.0     50.0" in text


async def test_a_pause_freezes_this_screen_too() -> None:
    snapshot = with_ranks(*make_job(1))
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2", "space")
        feed.hand_over(later(snapshot, 60))
        await pilot.pause()
        assert "paused since 12:00:01" in shown_text(app)
        await pilot.press("escape")
        await pilot.pause()
        assert title(app).endswith("paused since 12:00:01")
        await pilot.press("2", "space")
        await pilot.pause()
        assert "12:01:00" in shown_text(app)
        await pilot.press("1")
        await pilot.pause()
        assert title(app).endswith("12:01:00"), "nothing is paused on the way back"


async def test_what_is_not_seen_is_not_drawn_and_is_of_now_when_it_is_seen_again() -> None:
    snapshot = with_ranks(*make_job(1))
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("2", "question_mark")
        feed.hand_over(later(snapshot, 9))
        await pilot.pause()
        assert app.live.snapshot.sample is not None
        assert app.live.snapshot.sample.seq == 1
        await pilot.press("escape")
        assert "12:00:09" in shown_text(app), "it was drawn below the help"
        await pilot.press("escape")
        await pilot.pause()
        assert "12:00:09" in title(app)


async def test_a_device_that_is_gone_says_so() -> None:
    app = make_app(feed := feed_of(with_ranks(*make_job(2))))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("end", "enter")
        feed.hand_over(later(with_ranks(*make_job(1)), 2))
        await pilot.pause()
        assert "This device is gone; Esc leads back" in shown_text(app)
        await pilot.press("right")
        await pilot.pause()
        assert on_device(app).uuid == "GPU-0000"


async def test_a_tick_repaints_only_rows_that_changed() -> None:
    maps = (make_segments(4000, "GPU-0000"),)
    snapshot = with_ranks(*make_job(1), segment_maps=maps)
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=(120, 50)) as pilot:
        await pilot.press("2")
        for seq in range(2, 9):
            feed.hand_over(later(snapshot, seq))
        await pilot.pause()
        repainted: list[Region] = []
        page = on_device(app).page
        page.repaint = lambda *regions: repainted.extend(regions)  # type: ignore[method-assign]  # counts
        feed.hand_over(later(snapshot, 9))
        await pilot.pause()
        rows_of_figures = sum(region.height for region in repainted)
        assert 1 <= rows_of_figures <= 2, "nothing but the age of the map"


async def test_a_recorded_rank_asks_nobody_to_start_it_anew() -> None:
    device = DeviceSample("rank-0", 0, None, kind="trace", memory=MemoryReading(used_bytes=20 * GIB))
    samples = [Sample("trace1", seq, float(seq), 1.0, (device,), clock="trace") for seq in range(60)]
    feed = FakeFeed(Snapshot("live", sample=samples[-1]))
    for sample in samples:
        feed.history.add(sample)
    app = make_app(feed)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        text = shown_text(app)
        assert "rank 0" in text
        assert "vramscope run" not in text
        assert "capacity not recorded" in text


@pytest.mark.parametrize(
    ("allocator", "words"),
    [
        (
            AllocatorReading(15 * GIB, 16 * GIB, 18 * GIB),
            "reserved 18.0 = █ live tensors 15.0 + ▓ cached 3.0",
        ),
        (AllocatorReading(15 * GIB), "alloc 15.0"),
    ],
)
async def test_a_recorded_allocator_is_told_as_far_as_it_goes(
    allocator: AllocatorReading, words: str
) -> None:
    reading = MemoryReading(total_bytes=24 * GIB, used_bytes=20 * GIB)
    device = DeviceSample("rank-0", 0, None, kind="trace", memory=reading, allocator=allocator)
    sample = Sample("trace1", 1, 1.0, 1.0, (device,), clock="trace")
    app = make_app(FakeFeed(Snapshot("live", sample=sample)))
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        assert words in shown_text(app)


SIZES = ((1, 1), (300, 2), (3, 80), (20, 5), (40, 10), (60, 18), (80, 24), (200, 50), (300, 80))


@pytest.mark.parametrize("case", CASES)
async def test_every_size_is_drawn(case: str) -> None:
    app = app_for(case)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("2")
        for width, height in SIZES:
            await pilot.resize_terminal(width, height)
            await _settle(pilot, Size(width, height))
            strips = app.screen._compositor.render_strips()
            assert [strip.cell_length for strip in strips] == [width] * height
        await pilot.press("end", "pageup", "p", "escape", "T", "home")
        assert app.is_running


async def _settle(pilot: Pilot[None], size: Size) -> None:
    async with asyncio.timeout(20):
        while pilot.app.screen._compositor.size != size:
            await pilot.pause()
