"""Lines through floors: which are straight, which become steeper, and where both stand."""

import random

from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.floors.rate import Line, fit_curve, fit_line

GIB = 2**30


def _sample(line: Line, count: int = 20, scatter: float = 0.0, seed: int = 1) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    times = [60.0 * at for at in range(count)]
    return [(at_s, line.level_at(at_s) + scatter * draw.gauss(0, 1)) for at_s in times]


@given(st.floats(1e3, 1e8), st.floats(0, 80 * GIB), st.integers(0, 1000))
def test_a_straight_line_stays_straight_however_it_scatters(slope: float, level: float, seed: int) -> None:
    points = _sample(Line(slope, 0.0, 0.0, level), scatter=slope * 30, seed=seed)
    line = fit_curve(points)
    assert line.bend == 0
    assert abs(line.bytes_per_s - slope) < 0.25 * slope


@given(st.floats(1e4, 1e7), st.floats(0.5, 4.0))
def test_what_becomes_faster_and_faster_is_continued_as_a_parabola(slope: float, times_faster: float) -> None:
    bend = slope * times_faster / 1200.0
    true = Line(slope, 0.0, 0.0, 10.0 * GIB, bend)
    line = fit_curve(_sample(true, scatter=slope * 2))
    ahead_s = 1800.0
    assert line.bend > 0
    grown, told = (it.level_at(ahead_s) - it.level_at(1140.0) for it in (true, line))
    assert abs(told - grown) < 0.2 * grown


@given(st.integers(2, 8), st.integers(0, 1000))
def test_growth_that_begins_within_the_points_is_no_curve(flat: int, seed: int) -> None:
    draw = random.Random(seed)
    points = [(60.0 * at, 1e6 * max(0, at - flat) + draw.gauss(0, 2e4)) for at in range(24)]
    assert fit_curve(points).bend == 0


def test_a_few_wild_points_turn_neither_line() -> None:
    points = _sample(Line(1e6, 0.0, 0.0, 0.0), count=24)
    points[3] = (points[3][0], points[3][1] + 5 * GIB)
    points[15] = (points[15][0], 0.0)
    for line in (fit_line(points), fit_curve(points)):
        assert abs(line.bytes_per_s - 1e6) < 1e4
        assert line.bend == 0
