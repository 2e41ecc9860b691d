"""Levels over time, what was live at an out-of-memory event, and what fits: against a small reference."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.files.snapshots import (
    BASE,
    EMBED,
    LINEAR,
    MIB,
    Row,
    block,
    event,
    frame,
    free,
    segment,
    snapshot,
)
from vramscope.analyzers.snapshot_summary import DeviceSummary, summarize_snapshot, trace_levels
from vramscope.engine.files.memory_snapshot import convert_tree

SLOTS = 4
Live = dict[int, tuple[int, int]]
"""Size and line of what lives in each slot."""


def summarize(root: object) -> DeviceSummary:
    (device,) = summarize_snapshot(convert_tree(root)).devices
    return device


class Program:
    """Allocates and frees in slots of 1 MiB, and remembers what was true after each event."""

    def __init__(self) -> None:
        self.live: Live = {}
        self.events: list[Row] = []
        self.after: list[Live] = []

    def act(self, slot: int, size: int, is_oom: bool) -> None:
        line = len(self.events)
        frames = [frame("step", "/job/train.py", line)]
        if is_oom:
            self._note(event("oom", 123, 77 * MIB, 0, frames=frames))
        elif slot in self.live:
            size, line = self.live.pop(slot)
            # PyTorch notes at a free where the block was allocated.
            frames = [frame("step", "/job/train.py", line)]
            self._note(event("free_requested", self._at(slot), size, 0, frames=frames))
            self._note(event("free_completed", self._at(slot), size, 0, frames=frames))
        else:
            self.live[slot] = size, line
            self._note(event("alloc", self._at(slot), size, 0, frames=frames))

    def snapshot(self, dropped: int) -> Row:
        segments = [self._segment(slot) for slot in range(SLOTS)]
        return snapshot(segments, self.events[dropped:])

    def _segment(self, slot: int) -> Row:
        if slot not in self.live:
            return segment([free(MIB)], self._at(slot))
        size, line = self.live[slot]
        rounded = -(-size // 512) * 512
        frames = [frame("step", "/job/train.py", line)]
        rest = [free(MIB - rounded)] if rounded < MIB else []
        return segment([block(rounded, requested=size, frames=frames), *rest], self._at(slot))

    def _at(self, slot: int) -> int:
        return BASE + slot * 64 * MIB

    def _note(self, row: Row) -> None:
        row["time_us"] = 1_000_000 * len(self.events)
        self.events.append(row)
        self.after.append(dict(self.live))


def rounded_sum(live: Live) -> int:
    return sum(-(-size // 512) * 512 for size, _ in live.values())


acts = st.lists(
    st.tuples(st.integers(0, SLOTS - 1), st.integers(1, MIB), st.sampled_from([False, False, False, True])),
    min_size=1,
    max_size=25,
)


@settings(deadline=None)
@given(acts, st.integers(0, 10))
def test_levels_are_right_however_much_of_the_ring_is_gone(
    rows: list[tuple[int, int, bool]], dropped: int
) -> None:
    program = Program()
    for row in rows:
        program.act(*row)
    dropped = min(dropped, len(program.events) - 1)
    timeline = trace_levels(convert_tree(program.snapshot(dropped)), 0)
    assert timeline is not None
    assert timeline.allocated_bytes.tolist() == [rounded_sum(live) for live in program.after[dropped:]]
    before = program.after[dropped - 1] if dropped else {}
    assert timeline.start_allocated_bytes == rounded_sum(before)
    assert set(timeline.reserved_bytes.tolist()) == {SLOTS * MIB}


@settings(deadline=None)
@given(acts, st.integers(0, 10))
def test_what_was_live_at_a_failure_is_found(rows: list[tuple[int, int, bool]], dropped: int) -> None:
    program = Program()
    for row in rows:
        program.act(*row)
    dropped = min(dropped, len(program.events) - 1)
    failures = summarize(program.snapshot(dropped)).failures
    expected = [
        (number, live)
        for number, live in enumerate(program.after)
        if number >= dropped and program.events[number]["action"] == "oom"
    ]
    assert len(failures) == min(len(expected), 5)
    for failure, (number, live) in zip(failures, reversed(expected), strict=False):
        assert failure.time_s == number
        assert (failure.size_bytes, failure.device_free_bytes) == (77 * MIB, 123)
        assert failure.allocated_bytes == rounded_sum(live)
        found = {group.frames[0].line: group.size_bytes for group in failure.live}
        assert found == {line: -(-size // 512) * 512 for size, line in live.values()}
        assert failure.stack.headline is not None
        assert failure.stack.headline.line == number


def test_reserved_follows_segments() -> None:
    events = [
        event("segment_alloc", BASE, 20 * MIB, 1),
        event("segment_map", BASE + 64 * MIB, 4 * MIB, 2),
        event("segment_unmap", BASE + 64 * MIB, 2 * MIB, 3),
        event("segment_free", BASE + 128 * MIB, 6 * MIB, 4),
    ]
    timeline = trace_levels(convert_tree(snapshot([segment([free(22 * MIB)])], events)), 0)
    assert timeline is not None
    assert timeline.start_reserved_bytes == 6 * MIB
    assert timeline.reserved_bytes.tolist() == [26 * MIB, 30 * MIB, 28 * MIB, 22 * MIB]


def test_span_tells_peak_and_when() -> None:
    events = [
        event("alloc", BASE, 3 * MIB, 1_000_000),
        event("alloc", BASE + 3 * MIB, 4 * MIB, 3_000_000),
        event("free_requested", BASE + 3 * MIB, 4 * MIB, 5_000_000),
        event("snapshot", 0, 0, 11_000_000),
    ]
    root = snapshot([segment([block(3 * MIB), free(7 * MIB)])], events, trace_alloc_overflowed=[True])
    span = summarize(root).trace
    assert span is not None
    assert (span.events, span.duration_s, span.is_overflowed) == (4, 10.0, True)
    assert (span.start_allocated_bytes, span.peak_allocated_bytes, span.peak_after_s) == (0, 7 * MIB, 2.0)
    assert span.allocated_curve[0] == 3 * MIB
    assert max(span.allocated_curve) == 7 * MIB
    assert span.allocated_curve[-1] == 3 * MIB


def test_events_without_times_still_have_levels() -> None:
    events: list[dict[str, Any]] = [
        {"action": "alloc", "addr": BASE, "size": MIB, "stream": 0},
        {"action": "oom", "size": MIB, "device_free": 0, "stream": 0},
    ]
    device = summarize(snapshot([segment([block(MIB)])], events))
    assert device.trace is not None
    assert (device.trace.duration_s, device.failures[0].time_s) == (None, None)
    assert device.trace.peak_allocated_bytes == MIB


def test_failure_leads_the_sentences() -> None:
    events = [
        event("alloc", BASE, 6 * MIB, 1, frames=LINEAR),
        event("oom", 3 * MIB, 64 * MIB, 2, frames=EMBED),
    ]
    first = summarize(snapshot([segment([block(6 * MIB, frames=LINEAR), free(14 * MIB)])], events)).sentences[
        0
    ]
    assert first == (
        "a request of 64 MiB failed while 6 MiB were allocated, 20 MiB reserved, "
        "and the driver had 3 MiB free"
    )


@pytest.mark.parametrize(
    ("size", "expected"),
    [(MIB // 2, (0, 2 * MIB)), (2 * MIB, (2, 20 * MIB)), (6 * MIB, (0, 20 * MIB)), (33 * MIB, (0, 34 * MIB))],
)
def test_request_fits_where_its_pool_and_stream_have_room(size: int, expected: tuple[int, int]) -> None:
    segments = [
        segment([block(MIB), free(5 * MIB)]),
        segment([free(40 * MIB)], BASE + 64 * MIB, stream=9),
        segment([free(40 * MIB)], BASE + 128 * MIB, segment_pool_id=(0, 1)),
    ]
    events = [event("alloc", BASE + 256 * MIB, size - 10, 1), event("free_requested", BASE, size - 10, 2)]
    (request,) = summarize(snapshot(segments, events)).requests
    assert (request.size_bytes, request.count) == (size, 1)
    assert (request.servable, request.new_segment_bytes) == expected


def test_requests_without_a_trace_are_those_of_live_blocks() -> None:
    blocks = [block(MIB), block(MIB), block(4 * MIB), free(2 * MIB)]
    requests = summarize(snapshot([segment(blocks)])).requests
    assert [(each.size_bytes, each.count, each.servable) for each in requests] == [
        (4 * MIB, 1, 0),
        (MIB, 2, 0),
    ]
