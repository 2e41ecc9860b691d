"""The axis of time: few ticks, at round times, in words that say which clock it is."""

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.exporters.figures.model import find_span, make_time_axis

AT_TEN = 1750674600.0
"""2025-06-23 10:30:00 UTC."""


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    time.tzset()


def set_zone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    time.tzset()


@pytest.mark.parametrize(
    ("end_s", "labels", "title"),
    [
        (0.4, ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.35", "0.4"], "time, s"),
        (60.0, ["0", "10", "20", "30", "40", "50", "60"], "time, s"),
        (3600.0, ["0", "10", "20", "30", "40", "50", "60"], "time, min"),
        (6 * 3600.0, ["0", "1", "2", "3", "4", "5", "6"], "time, h"),
        (7 * 86400.0, ["0", "1", "2", "3", "4", "5", "6", "7"], "time, d"),
    ],
)
def test_times_of_an_input_are_in_the_unit_that_suits(end_s: float, labels: list[str], title: str) -> None:
    axis = make_time_axis(0.0, end_s, "trace")
    assert (axis.labels, axis.title) == (labels, title)


def test_dates_are_local_time_with_their_zone(zone: pytest.MonkeyPatch) -> None:
    set_zone(zone, "Europe/Berlin")
    axis = make_time_axis(AT_TEN, AT_TEN + 7200, "wall")
    assert axis.labels == ["12:30", "12:45", "13:00", "13:15", "13:30", "13:45", "14:00", "14:15", "14:30"]
    assert axis.title == "time, CEST from 2025-06-23 on"


def test_hours_are_full_ones_where_the_zone_is_half_an_hour_off(zone: pytest.MonkeyPatch) -> None:
    set_zone(zone, "Asia/Kolkata")
    axis = make_time_axis(AT_TEN, AT_TEN + 6 * 3600, "wall")
    assert axis.labels == ["16:00", "17:00", "18:00", "19:00", "20:00", "21:00", "22:00"]


def test_days_are_dates(zone: pytest.MonkeyPatch) -> None:
    set_zone(zone, "UTC")
    axis = make_time_axis(AT_TEN, AT_TEN + 10 * 86400, "wall")
    assert axis.labels == ["2025-06-25", "2025-06-27", "2025-06-29", "2025-07-01", "2025-07-03"]
    assert axis.title == "time, UTC"


def test_midnight_is_the_day_that_begins(zone: pytest.MonkeyPatch) -> None:
    set_zone(zone, "UTC")
    axis = make_time_axis(AT_TEN, AT_TEN + 2 * 86400, "wall")
    assert axis.labels == ["12:00", "18:00", "06-24", "06:00", "12:00", "18:00", "06-25", "06:00"]


@given(st.floats(-1e6, 1e9), st.floats(0, 1e9), st.sampled_from(["wall", "trace"]))
def test_ticks_are_few_in_order_and_inside(start_s: float, span_s: float, clock: str) -> None:
    axis = make_time_axis(start_s, start_s + span_s, "wall" if clock == "wall" else "trace")
    assert len(axis.ticks_s) == len(axis.labels) <= 11
    assert all(earlier < later for earlier, later in pairwise(axis.ticks_s))
    slack_s = max(span_s, 0.001) * 0.01 + 1e-5
    assert all(start_s - slack_s <= tick <= start_s + span_s + slack_s for tick in axis.ticks_s)


def test_the_span_is_that_of_all_curves_with_times() -> None:
    assert find_span([[], [2.0, 3.0], [1.0, 2.5]]) == (1.0, 3.0)
    assert find_span([[], []]) is None
