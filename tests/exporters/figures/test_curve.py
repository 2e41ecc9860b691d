"""Curves: bounded however many values come, and nothing that was seen falls out of the band."""

import math

from hypothesis import given
from hypothesis import strategies as st

from vramscope.exporters.figures import Curve, CurveRecorder
from vramscope.exporters.figures.model import MOST_COLUMNS

values = st.one_of(st.none(), st.integers(0, 2**40).map(float))


def record(
    rows: list[tuple[float, float | None]], gap_s: float = math.inf, most: int = MOST_COLUMNS
) -> Curve:
    recorder = CurveRecorder(gap_s, most)
    for time_s, value in rows:
        recorder.add(time_s, value)
    return recorder.curve()


def known(numbers: "list[float]") -> list[float]:
    return [number for number in numbers if not math.isnan(number)]


def test_few_values_are_kept_as_they_are() -> None:
    curve = record([(1.0, 5.0), (2.0, 7.0), (3.0, 6.0)])
    assert list(curve.times_s) == [1.0, 2.0, 3.0]
    assert list(curve.last) == list(curve.low) == list(curve.high) == [5.0, 7.0, 6.0]
    assert curve.is_measured
    assert not curve.has_band


def test_least_and_most_of_a_value_make_a_band() -> None:
    recorder = CurveRecorder()
    recorder.add(1.0, 5.0, 3.0, 9.0)
    recorder.add(2.0, 5.0, None, None)
    curve = recorder.curve()
    assert (curve.low[0], curve.last[0], curve.high[0]) == (3.0, 5.0, 9.0)
    assert (curve.low[1], curve.high[1]) == (5.0, 5.0)
    assert curve.has_band


def test_what_was_not_measured_and_silences_break_the_line() -> None:
    curve = record([(1.0, 5.0), (2.0, None), (3.0, 6.0), (4.0, 6.0), (60.0, 7.0)], gap_s=3.5)
    assert [math.isnan(value) for value in curve.last] == [False, True, False, False, True, False]
    assert list(curve.times_s) == [1.0, 2.0, 3.0, 4.0, 32.0, 60.0]


def test_nothing_measured_is_no_curve() -> None:
    curve = record([(1.0, None), (2.0, math.nan)])
    assert len(curve) == 0
    assert not curve.is_measured


def test_a_million_values_keep_their_extremes_in_bounded_columns() -> None:
    recorder = CurveRecorder(3.5)
    for tick in range(1_000_000):
        recorder.add(float(tick), 1e9 if tick == 123_457 else 0.0 if tick == 700_001 else 500.0)
    curve = recorder.curve()
    assert MOST_COLUMNS // 4 <= len(curve) <= MOST_COLUMNS
    assert (max(curve.high), min(curve.low)) == (1e9, 0.0)
    at = list(curve.high).index(1e9)
    assert curve.times_s[at - 1] < 123_457 <= curve.times_s[at]
    assert (curve.times_s[0], curve.times_s[-1]) == (0.0, 999_999.0)


def test_a_gap_stays_a_gap_however_wide_the_columns_are() -> None:
    rows = [(float(tick), 1.0) for tick in [*range(50_000), *range(90_000, 150_000)]]
    curve = record(list(rows), gap_s=3.5)
    breaks = [curve.times_s[at] for at, value in enumerate(curve.last) if math.isnan(value)]
    assert len(breaks) == 1
    assert 50_000 < breaks[0] < 90_000


@given(st.lists(st.tuples(st.floats(0, 1e6), values), max_size=300), st.integers(2, 40))
def test_columns_are_bounded_in_order_and_hold_every_value(
    rows: list[tuple[float, float | None]], most: int
) -> None:
    rows.sort(key=lambda row: row[0])
    curve = record(rows, gap_s=1000.0, most=most)
    seen = [value for _, value in rows if value is not None]
    assert len(known(list(curve.last))) <= most
    assert list(curve.times_s) == sorted(curve.times_s)
    assert max(known(list(curve.high)), default=None) == max(seen, default=None)
    assert min(known(list(curve.low)), default=None) == min(seen, default=None)
    assert known(list(curve.last))[-1:] == seen[-1:]
    for low, last, high in zip(curve.low, curve.last, curve.high, strict=True):
        assert math.isnan(last) or low <= last <= high
