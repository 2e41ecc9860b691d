"""The axis of time: round steps, in local time where the input has dates, else in the unit that suits."""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from .model import FigureClock

_STEPS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1800.0),
    *(3600.0, 7200.0, 10800.0, 21600.0, 43200.0),
    *(86400.0, 2 * 86400.0, 7 * 86400.0, 14 * 86400.0, 30 * 86400.0, 90 * 86400.0, 365 * 86400.0),
)
_MOST_TICKS = 9
_UNITS = ((86400.0, "d", 3 * 86400.0), (3600.0, "h", 3 * 3600.0), (60.0, "min", 180.0), (1.0, "s", 0.0))
"""Seconds of a unit, its name, and the span from which it is used."""


class TimeAxis(NamedTuple):
    """Where the ticks stand, in seconds, and what they say."""

    ticks_s: list[float]
    labels: list[str]
    title: str


def make_time_axis(start_s: float, end_s: float, clock: FigureClock) -> TimeAxis:
    """Return at most nine ticks within a span, at round times."""
    span_s = max(end_s - start_s, 0.001)
    step_s = next((step for step in _STEPS_S if span_s / step <= _MOST_TICKS), span_s / _MOST_TICKS)
    return (
        _local_axis(start_s, end_s, step_s)
        if clock == "wall"
        else _plain_axis(start_s, end_s, step_s, span_s)
    )


def _plain_axis(start_s: float, end_s: float, step_s: float, span_s: float) -> TimeAxis:
    unit_s, name = next((unit_s, name) for unit_s, name, from_s in _UNITS if span_s >= from_s)
    ticks_s = _round_times(start_s, end_s, step_s)
    return TimeAxis(ticks_s, [f"{tick / unit_s:.10g}" for tick in ticks_s], f"time, {name}")


def _local_axis(start_s: float, end_s: float, step_s: float) -> TimeAxis:
    # Steps are round in local time, so that hours are full ones where the zone is half an hour off.
    start = datetime.fromtimestamp(start_s).astimezone()
    offset_s = (start.utcoffset() or timedelta()).total_seconds()
    ticks_s = [tick - offset_s for tick in _round_times(start_s + offset_s, end_s + offset_s, step_s)]
    form = "%Y-%m-%d" if step_s >= 86400 else "%H:%M" if step_s >= 60 else "%H:%M:%S"
    times = [datetime.fromtimestamp(tick).astimezone() for tick in ticks_s]
    zone = start.tzname() or "local"
    day = "" if step_s >= 86400 else f" from {start:%Y-%m-%d} on"
    return TimeAxis(ticks_s, [_show_time(time, form, step_s) for time in times], f"time, {zone}{day}")


def _show_time(time: datetime, form: str, step_s: float) -> str:
    if 60 <= step_s < 86400 and (time.hour, time.minute) == (0, 0):
        return f"{time:%m-%d}"
    if step_s >= 1:
        return time.strftime(form)
    return f"{time:%H:%M:%S}.{time.microsecond // 1000:03d}"


def _round_times(start_s: float, end_s: float, step_s: float) -> list[float]:
    first = math.ceil(start_s / step_s - 1e-9)
    last = math.floor(end_s / step_s + 1e-9)
    return [round(number * step_s, 6) for number in range(first, last + 1)]


def find_span(columns: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Return the first and last time of several columns of times, or None where all are empty."""
    starts = [times[0] for times in columns if times]
    ends = [times[-1] for times in columns if times]
    return (min(starts), max(ends)) if starts else None
