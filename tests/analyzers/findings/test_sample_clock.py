"""The order of samples: duplicates and late ones are left out, gaps and clocks set back are told."""

import math

from vramscope.analyzers.findings.lifecycle import Passage, SampleClock


def passages(*times_s: float, interval_s: float = 1.0) -> list[Passage]:
    clock = SampleClock()
    return [clock.note(time_s, interval_s) for time_s in times_s]


def test_samples_that_follow_are_taken_and_duplicates_and_late_ones_are_not() -> None:
    assert passages(10.0, 11.0, 11.0, 10.0, 12.0) == [
        Passage.NEXT,
        Passage.NEXT,
        Passage.LATE,
        Passage.LATE,
        Passage.NEXT,
    ]


def test_a_long_silence_is_a_gap_measured_in_ticks_where_those_are_long() -> None:
    assert passages(0.0, 5.0, 10.5) == [Passage.NEXT, Passage.NEXT, Passage.GAP]
    assert passages(0.0, 30.0, 60.0, 100.0, interval_s=10.0) == [
        Passage.NEXT,
        Passage.NEXT,
        Passage.NEXT,
        Passage.GAP,
    ]


def test_a_clock_that_was_set_back_starts_anew() -> None:
    assert passages(100.0, 20.0, 21.0) == [Passage.NEXT, Passage.BACK, Passage.NEXT]


def test_a_time_that_is_no_number_is_left_out() -> None:
    assert passages(math.nan, 1.0, math.nan, math.inf, 2.0) == [
        Passage.LATE,
        Passage.NEXT,
        Passage.LATE,
        Passage.LATE,
        Passage.NEXT,
    ]
