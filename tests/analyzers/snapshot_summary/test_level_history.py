"""Levels over time in the columns of a graph."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.level_history import (
    LevelColumn,
    LevelHistory,
    cut_columns,
    follow_samples,
    follow_trace,
    locate_moment,
)
from vramscope.analyzers.snapshot_summary import trace_levels
from vramscope.engine.files.memory_snapshot import convert_tree
from vramscope.engine.model.memory_snapshot import FlightSample

from ...engine.files.snapshots import MIB, block, event, segment, snapshot


def history(*rows: tuple[float, int, int]) -> LevelHistory:
    moments, allocated, reserved = zip(*rows, strict=True)
    return LevelHistory(np.array(moments, float), np.array(allocated), np.array(reserved), has_times=True)


def test_a_level_lasts_until_the_next_moment() -> None:
    followed = history((0.0, 5, 9), (7.0, 2, 9), (10.0, 3, 4))
    columns = cut_columns(followed, 5)
    assert columns[:3] == [LevelColumn(5, 5, 9)] * 3
    assert columns[3] == LevelColumn(2, 5, 9), "from 6 s to 8 s it falls"
    assert columns[4] == LevelColumn(2, 3, 9)


def test_a_short_spike_between_two_columns_is_seen() -> None:
    followed = history((0.0, 1, 9), (5.01, 8, 9), (5.02, 1, 9), (10.0, 1, 9))
    assert [column.allocated_max for column in cut_columns(followed, 4)] == [1, 1, 8, 1]


@given(
    levels=st.lists(st.integers(0, 1000), min_size=1, max_size=60),
    count=st.integers(1, 80),
    gaps=st.lists(st.floats(0, 10), min_size=60, max_size=60),
)
def test_no_column_is_without_a_level_and_the_peak_is_never_lost(
    levels: list[int], count: int, gaps: list[float]
) -> None:
    moments = np.cumsum(gaps[: len(levels)]).tolist()
    rows = [(moment, level, level + 7) for moment, level in zip(moments, levels, strict=True)]
    columns = cut_columns(history(*rows), count)
    assert len(columns) == count
    assert max(column.allocated_max or 0 for column in columns) == max(levels)
    assert min(column.allocated_min or 0 for column in columns) == min(levels)


def test_what_a_trace_began_with_stands_at_its_beginning() -> None:
    root = snapshot(
        [segment([block(6 * MIB), block(4 * MIB)])],
        [event("alloc", 1, 4 * MIB, 1_000_000), event("snapshot", 0, 0, 3_000_000)],
    )
    timeline = trace_levels(convert_tree(root), 0)
    assert timeline is not None
    followed = follow_trace(timeline)
    assert followed.allocated_bytes.tolist() == [6 * MIB, 10 * MIB, 10 * MIB]
    assert followed.duration == 2.0
    assert followed.peak_bytes == 10 * MIB


def test_samples_that_tell_nothing_are_passed_over() -> None:
    assert follow_samples([FlightSample(time_s=1.0), FlightSample(allocated_bytes=3)]) is None
    told = [
        FlightSample(time_s=float(second), allocated_bytes=second, reserved_bytes=9) for second in range(3)
    ]
    followed = follow_samples([FlightSample(time_s=0.5), *told])
    assert followed is not None
    assert followed.allocated_bytes.tolist() == [0, 1, 2]


def test_moments_are_located_in_the_columns() -> None:
    followed = history((10.0, 1, 1), (20.0, 1, 1))
    assert [locate_moment(followed, moment, 5) for moment in (9.9, 10.0, 15.0, 20.0, 20.1)] == [
        None,
        0,
        2,
        4,
        None,
    ]
    assert locate_moment(history((5.0, 1, 1)), 5.0, 4) == 0
