"""What the screen of one device tells, what it asks for, and what it repaints."""

import asyncio
from typing import Literal

import msgspec
import pytest
from textual.geometry import Region, Size
from textual.pilot import Pilot

from tests.tui.canned import NOON_S, FakeFeed, StillClock, make_app, make_finding, make_snapshot
from tests.tui.canned_ranks import (
    make_job,
    make_on_processors,
    make_rank,
    make_segments,
    make_step,
    with_ranks,
)
from tests.tui.device_looks import SIZE, feed_of, later, on_device, rows
from tests.tui.looks import shown_text
from tests.tui.ranks_cases import CASES, app_for
from vramscope.engine.model import AllocatorReading, DeviceSample, Evidence, MemoryReading, Sample
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import SegmentsRefused, Snapshot
from vramscope.tui.device.screen import ASK_INTERVAL_S


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
        assert "Segment map requested, waiting." in shown_text(app)
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
        assert "segments large 61 small 40 private 1 5.6 GiB stranded in 27 of them" in text
        assert "largest free block 2.0 GiB" in text
        assert "3 s old" in text
        assert "12.0 GiB 384 × train.py:212 evaluate" in text
        feed.hand_over(later(snapshot, 4))
        await pilot.pause()
        assert "6 s old" in shown_text(app)


@pytest.mark.parametrize(
    ("snapshot", "words", "is_asked"),
    [
        (with_ranks(*make_on_processors()), "host memory has no caching allocator", False),
        (
            with_ranks(make_job(1)[0], [make_rank(0, state="stale", age_s=9.0, reason="no word")]),
            "No segment map: the process is silent.",
            False,
        ),
        (
            with_ranks(make_job(1)[0], [make_rank(0, backend=None, allocator=None)]),
            "the process has not used a device",
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


async def test_the_most_severe_finding_comes_first_and_then_the_newest() -> None:
    severities = ("medium", "critical", "high", "critical")
    found = tuple(
        msgspec.structs.replace(
            make_finding(0, opened_s=NOON_S - age), id=f"{age}", severity=severity, title=f"number {age}"
        )
        for age, severity in enumerate(severities)
    )
    app = make_app(feed_of(with_ranks(*make_job(2), findings=found)))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home", "enter")
        await pilot.pause()
        text = shown_text(app).partition("H100")[2]
        places = [text.index(f"number {age} (since") for age in (1, 3, 2, 0)]
        assert places == sorted(places)


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
        assert "step                       1,842    1,844    1,845    1,846" in text
        assert "floor at step ends GiB      36.0     36.0     36.0     36.0" in text
        assert "peak GiB                    50.0     50.0    ≥50.0     50.0" in text


async def test_a_tick_repaints_only_rows_that_changed() -> None:
    maps = (make_segments(4000, "GPU-0000"),)
    snapshot = with_ranks(*make_job(1), segment_maps=maps)
    app = make_app(feed := feed_of(snapshot))
    async with app.run_test(size=(120, 50)) as pilot:
        await pilot.press("2")
        for seq in range(2, 1205):  # twenty minutes: a column of the graph has several seconds
            past = later(snapshot, seq).sample
            assert past is not None
            feed.history.add(past)
        feed.hand_over(later(snapshot, 1205))
        await pilot.pause()
        repainted: list[Region] = []
        page = on_device(app).page
        page.repaint = lambda *regions: repainted.extend(regions)  # type: ignore[method-assign]  # counts
        heights = []
        for seq in range(1206, 1218):
            feed.hand_over(later(snapshot, seq))
            await pilot.pause()
            heights.append(sum(region.height for region in repainted))
            repainted.clear()
        assert heights.count(1) >= 8, f"between two columns of history, nothing but the map's age: {heights}"
        assert max(heights) <= 20, "a cell of history that is full shifts the graph, and nothing else"


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
@pytest.mark.parametrize("kind", ["trace", "gpu"])
async def test_a_recorded_allocator_is_told_as_far_as_it_goes(
    kind: Literal["trace", "gpu"], allocator: AllocatorReading, words: str
) -> None:
    reading = MemoryReading(total_bytes=24 * GIB, used_bytes=20 * GIB)
    device = DeviceSample("rank-0", 0, None, kind=kind, memory=reading, allocator=allocator)
    sample = Sample("trace1", 1, 1.0, 1.0, (device,), clock="trace")
    app = make_app(FakeFeed(Snapshot("live", sample=sample)))
    async with app.run_test(size=(100, 24)) as pilot:
        await pilot.press("2")
        await pilot.pause()
        assert words in shown_text(app)
        assert "No allocator data" not in shown_text(app)


SIZES = ((1, 1), (300, 2), (3, 80), (20, 5), (40, 10), (60, 18), (80, 24), (300, 80))


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
    async with asyncio.timeout(60):
        while pilot.app.screen._compositor.size != size:
            await pilot.pause()


async def test_a_lost_device_says_in_full_why_and_nothing_of_a_probe() -> None:
    reason = "the kernel driver lists this GPU at 0000:02:00.0 (/dev/nvidia1), but NVML does not count it: "
    reason += "it fell off the bus or could not be started; see `dmesg | grep -i xid`, reset or reboot"
    snapshot = make_snapshot(2)
    assert snapshot.sample is not None
    first, second = snapshot.sample.devices
    lost = DeviceSample(second.uuid, 1, state="lost", reason=reason)
    sample = msgspec.structs.replace(snapshot.sample, devices=(first, lost))
    app = make_app(FakeFeed(make_snapshot(sample=sample)))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("end", "2")
        await pilot.pause()
        text = " ".join(shown_text(app).split())
        assert reason[1:] in text
        assert "No allocator data" not in text
