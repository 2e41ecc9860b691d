"""First passage: when a rising floor meets a step that does not fit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.findings.lifecycle import SEVERE_SHARE
from vramscope.analyzers.floors.rate import Line
from vramscope.analyzers.oom.forecast import Amplitude, Situation, find_passage, make_forecast, sum_hazard

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


GROWING = Situation(
    time_s=100.0,
    limit_bytes=10_000,
    limit_doubt_bytes=50.0,
    floor_bytes=1000.0,
    amplitudes=[Amplitude(2000.0, 10.0), Amplitude(1900.0, 90.0)],
    recent=[2000.0],
    round_s=1.0,
    steps_per_round=1.0,
    line=Line(bytes_per_s=10.0, error=0.5, at_s=100.0, at_bytes=1000.0, scatter=20.0),
    share=1.0,
    has_retried=False,
)


def test_growth_is_believed_by_how_much_of_the_room_it_took() -> None:
    def find_belief(share: float) -> float:
        return make_forecast(GROWING._replace(share=share)).belief

    assert find_belief(0.25) == 0.5
    assert find_belief(SEVERE_SHARE) > 0.85, "what is high or critical is likely"
    assert find_belief(0.05) < 0.2
    assert find_belief(1e9) == pytest.approx(1.0)
    peaks = make_forecast(GROWING._replace(share=0.5, is_of_peaks=True))
    assert peaks.belief > 0.9, "growth of peaks is believed by rules of its own"


def test_the_probability_is_no_more_than_the_belief_that_growth_goes_on() -> None:
    near = GROWING._replace(limit_bytes=5000, share=0.2)
    forecast = make_forecast(near)
    assert forecast.middle_s is not None
    assert forecast.middle_s < 300
    assert forecast.probability == pytest.approx(forecast.belief)


def test_refusals_of_the_device_alone_make_no_error_likely() -> None:
    far = GROWING._replace(limit_bytes=100_000, has_retried=True, is_of_peaks=True)
    assert make_forecast(far).probability == pytest.approx(0.1)


def test_the_interval_is_wider_where_floors_grow_in_samples() -> None:
    def measure_sides(now: Situation) -> tuple[float, float]:
        forecast = make_forecast(now)
        assert forecast.low_s is not None
        assert forecast.middle_s is not None
        assert forecast.high_s is not None
        return forecast.middle_s - forecast.low_s, forecast.high_s - forecast.middle_s

    before, after = measure_sides(GROWING)
    assert measure_sides(GROWING._replace(is_sampled=True)) == pytest.approx((1.3 * before, 1.3 * after))
    assert measure_sides(GROWING._replace(is_sampled=True, is_of_peaks=True)) == (before, after)
