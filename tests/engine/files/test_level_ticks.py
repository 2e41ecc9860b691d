"""Levels from events: the same ticks in whatever order events come, never more of them than are kept."""

import random

from hypothesis import given
from hypothesis import strategies as st

from vramscope.engine.files.base.series_reader import SeriesDevice, SeriesRecord
from vramscope.engine.files.snapshot_series import MOST_TICKS, LevelTicks

DEVICE = SeriesDevice("index-0", 0, "0")
EVENTS = st.lists(
    # Even microseconds: none is so close to the end of a tick that it may count to the next one.
    st.tuples(st.integers(0, 2**39).map(lambda half: 2 * half), st.integers(0, 2**40), st.integers(0, 2**40)),
    min_size=1,
    max_size=40,
    unique_by=lambda event: event[0],
)


def gather(events: list[tuple[int, int, int]], interval_s: float | None = None) -> list[SeriesRecord]:
    """Return the records of events at microseconds."""
    ticks = LevelTicks(interval_s)
    for time_us, allocated, reserved in events:
        ticks.add(time_us / 1e6, allocated, reserved)
    return list(ticks.records(DEVICE))


@given(EVENTS, st.randoms(use_true_random=False))
def test_ticks_hold_the_last_level_and_the_most_in_any_order(
    events: list[tuple[int, int, int]], shuffle: random.Random
) -> None:
    ordered = sorted(events)
    shuffle.shuffle(events)
    records = gather(events)
    assert 1 <= len(records) <= MOST_TICKS
    ends_us = [round(record.time_s * 1e6) for record in records]
    for record, start_us, end_us in zip(records, [-1, *ends_us[:-1]], ends_us, strict=True):
        before = [event for event in ordered if event[0] + 1 < end_us]
        within = [event for event in before if event[0] + 1 >= start_us]
        assert (record.allocated_bytes, record.reserved_bytes) == before[-1][1:]
        carried = before[: len(before) - len(within)][-1:]
        assert record.allocated_max_bytes == max(event[1] for event in (*carried, *within))


def test_a_tick_that_is_asked_for_is_kept() -> None:
    records = gather([(0, 5, 9), (2_400_000, 7, 9)], interval_s=1.0)
    assert [(record.time_s, record.allocated_bytes) for record in records] == [(1.0, 5), (2.0, 5), (3.0, 7)]


def test_errors_count_up_and_levels_that_are_not_told_stay() -> None:
    ticks = LevelTicks(1.0)
    ticks.add(0.5, 5, None)
    ticks.add(1.5, None, 8, is_oom=True)
    ticks.add(3.5, 6, None, is_oom=True)
    told = [(it.allocated_bytes, it.reserved_bytes, it.ooms) for it in ticks.records(DEVICE)]
    assert told == [(5, None, None), (5, 8, 1), (5, 8, 1), (6, 8, 2)]
