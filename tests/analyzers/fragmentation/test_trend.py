"""Trends: the words of the original, a slope that spikes do not move, and bounded memory."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.floors.rate import find_slope
from vramscope.analyzers.fragmentation import FragmentationTrend, level_of
from vramscope.analyzers.fragmentation.track import MOST_POINTS, TrendHistory


def trend_of(values: list[float], *, step_s: float = 1.0) -> FragmentationTrend:
    history = TrendHistory("stranded")
    for at, value in enumerate(values):
        history.add(at * step_s, value)
    trend = history.describe()
    assert trend is not None
    return trend


def test_words_for_what_a_ratio_did() -> None:
    assert trend_of([0.3] * 100).description == "Stable"
    assert trend_of([0.1 + at / 500 for at in range(200)]).description == "Increasing fragmentation"
    assert trend_of([0.6 - at / 500 for at in range(200)]).description == "Decreasing fragmentation"
    assert trend_of([0.3 + 0.1 * (at % 2) for at in range(31)]).description == "Minor fluctuation"


def test_a_climb_that_pauses_or_jumps_is_a_trend() -> None:
    climb = [0.006 + 0.38 * at / 190 + 0.01 * (at % 3) for at in range(190)]
    assert trend_of(climb).description == "Increasing fragmentation"
    stairs = [0.006] * 80 + [0.2] * 40 + [0.38] * 70
    assert trend_of(stairs).description == "Increasing fragmentation"
    assert trend_of(stairs[::-1]).description == "Decreasing fragmentation"
    assert trend_of([0.006, 0.006, 0.38, 0.38]).description == "Increasing fragmentation"
    there_and_back = [0.01] * 60 + [0.4] * 60 + [0.01] * 60
    assert trend_of(there_and_back).description == "Minor fluctuation"


def test_the_slope_is_per_second_and_spikes_do_not_move_it() -> None:
    values = [0.1 + at / 1000 for at in range(200)]
    values[50] = values[120] = 1.0
    slope = trend_of(values, step_s=2.0).slope_per_s
    assert slope is not None
    assert abs(slope - 0.0005) < 0.00002


def test_nothing_is_no_trend_and_one_value_has_no_slope() -> None:
    assert TrendHistory("unused").describe() is None
    assert trend_of([0.5]).slope_per_s is None
    assert find_slope([1.0, 1.0], [0.0, 5.0]) is None


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=3000))
def test_however_long_it_lasts_points_are_few_and_what_they_say_holds(values: list[float]) -> None:
    trend = trend_of(values)
    assert len(trend.points) <= MOST_POINTS
    assert trend.least == min(values)
    assert trend.current == values[-1]
    assert trend.duration_s == len(values) - 1
    assert [time_s for time_s, _ in trend.points] == sorted(time_s for time_s, _ in trend.points)
    slope = trend.slope_per_s
    assert slope is None or abs(slope) <= 1.0


def test_points_are_spread_evenly_over_the_time() -> None:
    times = [time_s for time_s, _ in trend_of([0.5] * 5000).points]
    spans = {later - sooner for sooner, later in pairwise(times)}
    assert spans == {32.0}


def test_levels_have_the_bounds_of_the_original() -> None:
    ratios = (None, 0.0, 0.39, 0.4, 0.6, 0.8, 1.0)
    levels = [None, "low", "low", "moderate", "high", "severe", "severe"]
    assert [level_of(ratio) for ratio in ratios] == levels
