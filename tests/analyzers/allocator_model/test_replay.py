"""Replaying a trace: what it would reserve, and on which card it fits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.allocator_model import AllocatorSettings, TraceError, find_least_capacity, replay

from .cards import MIB, make_allocator

GROWING = [event for size in range(10, 60, 3) for event in ((size, size * MIB), (size, 0))]
"""Each block is freed before a somewhat larger one comes."""


def test_the_result_says_what_the_trace_would_have_reserved() -> None:
    result = replay([(1, 30 * MIB), (2, 100), (1, 0), (3, 40 * MIB)])
    assert result.event_count == 4
    assert result.oom_event is None
    assert result.peak_allocated_bytes == result.peak_active_bytes == 40 * MIB + 512
    assert result.peak_requested_bytes == 40 * MIB + 100
    assert result.peak_reserved_bytes == 72 * MIB
    assert result.stats["num_device_alloc"] == 3


def test_settings_change_the_answer() -> None:
    expandable = AllocatorSettings.parse("expandable_segments:True")
    # Whole segments pile up; pages of one segment are used again: 58 MiB need three.
    assert replay(GROWING).peak_reserved_bytes > 300 * MIB
    assert replay(GROWING, expandable).peak_reserved_bytes == 60 * MIB


def test_the_event_that_finds_no_room_ends_the_replay() -> None:
    events = [(1, 30 * MIB), (2, 30 * MIB), (1, 0), (3, 100 * MIB), (2, 0)]
    result = replay(events, capacity_bytes=100 * MIB)
    assert (result.oom_event, result.event_count) == (3, 3)
    assert (result.stats["num_ooms"], result.num_alloc_retries) == (1, 1)


def test_retries_are_counted() -> None:
    result = replay(GROWING, capacity_bytes=60 * MIB)
    assert result.oom_event is None
    assert result.num_alloc_retries > 0


def test_a_trace_may_begin_in_the_middle() -> None:
    assert replay([(5, 0), (6, 1000), (6, -1000)]).unmatched_frees == 1


def test_a_block_allocated_twice_is_refused() -> None:
    with pytest.raises(TraceError, match="event 1 allocates block 7"):
        replay([(7, 10), (7, 10)])


def test_no_events_are_no_memory() -> None:
    assert replay([]).peak_reserved_bytes == 0
    assert find_least_capacity([]) == 0


@pytest.mark.parametrize("last_mib", range(72, 110, 2))
def test_the_least_card_holds_what_is_stranded_and_nothing_that_can_go_back(last_mib: int) -> None:
    """5 MiB strand a segment of 50; the one of 70 can go back before the last block comes."""
    events = [(1, 50), (2, 70), (1, 0), (3, 5), (2, 0), (4, last_mib)]
    trace = [(block, size * MIB) for block, size in events]
    assert replay(trace).peak_reserved_bytes == (50 + 70 + last_mib) * MIB
    assert find_least_capacity(trace) == (50 + last_mib) * MIB


def _make_valid(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Turn an allocation of a live block into its freeing."""
    live: set[int] = set()
    events = []
    for block, size in pairs:
        is_malloc = block not in live and size > 0
        events.append((block, size if is_malloc else 0))
        live = live | {block} if is_malloc else live - {block}
    return events


EVENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 30 * MIB)), max_size=80).map(_make_valid)


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_calls_and_replay_come_to_the_same(events: list[tuple[int, int]]) -> None:
    allocator = make_allocator(capacity=1 << 40)
    live: dict[int, int] = {}
    for block, size in events:
        if size:
            live[block] = allocator.malloc(size)
        else:
            allocator.free(live.pop(block, 0))
    assert replay(iter(events)).stats == replay(events).stats == allocator.memory_stats()


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.sampled_from(["", "expandable_segments:True", "large_segment_size_mb:21"]))
def test_the_least_card_is_enough_and_a_step_less_is_not(events: list[tuple[int, int]], text: str) -> None:
    parsed = AllocatorSettings.parse(text)
    least = find_least_capacity(events, parsed)
    step = MIB if "21" in text else 2 * MIB
    assert least % step == 0
    assert replay(events, parsed, least).oom_event is None
    if least:
        assert replay(events, parsed, least - step).oom_event is not None


@settings(max_examples=60, deadline=None)
@given(EVENTS, st.integers(1, 200))
def test_no_more_is_reserved_than_the_card_has(events: list[tuple[int, int]], capacity_mib: int) -> None:
    assert replay(events, capacity_bytes=capacity_mib * MIB).peak_reserved_bytes <= capacity_mib * MIB
