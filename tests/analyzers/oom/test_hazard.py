"""First passage: when a rising floor meets a step that does not fit."""

import math

from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.oom.forecast import Amplitude, find_passage, sum_hazard

AMPLITUDES = st.lists(st.tuples(st.floats(1.0, 1e10), st.floats(1.0, 64.0)), min_size=1, max_size=40).map(
    lambda found: sorted([Amplitude(*pair) for pair in found], reverse=True)
)


def test_steps_that_are_alike_fail_when_the_floor_leaves_less_than_they_take() -> None:
    alike = [Amplitude(10.0, 1.0)] * 5
    assert find_passage(alike, room=110.0, rise=2.0) == (50.0, 50.0, 50.0)


def test_what_is_rare_fails_later_the_rarer_it_is() -> None:
    often, seldom = ([Amplitude(50.0, 1.0), Amplitude(10.0, rounds)] for rounds in (9.0, 99.0))
    one_of_ten, one_of_hundred = (find_passage(found, room=110.0, rise=1.0) for found in (often, seldom))
    assert 60 < one_of_ten.middle < one_of_hundred.middle <= 100
    # one of ten fails with a chance of 1 - 0.9^n after n rounds beyond the 60th
    assert math.isclose(one_of_ten.middle, 60 + math.log(0.5) / math.log(0.9), rel_tol=1e-6)


@given(AMPLITUDES, st.floats(1e8, 1e11), st.floats(1e3, 1e8))
def test_the_quantiles_are_those_of_the_hazard(amplitudes: list[Amplitude], room: float, rise: float) -> None:
    passage = find_passage(amplitudes, room, rise)
    assert passage.low <= passage.middle <= passage.high
    last = (room - min(room, amplitudes[-1].bytes)) / rise
    for share, rounds in zip((0.1, 0.5, 0.9), passage, strict=True):
        if 0 < rounds < last * (1 - 1e-9):
            assert math.isclose(sum_hazard(amplitudes, room, rise, rounds), share, abs_tol=1e-3)
