"""What figures are made of: curves in bytes or shares, and the findings to mark on them."""

import math
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec

from ...engine.model import Severity

# Curves of any length in bounded memory: the last, least and most of each column of a plot.

MOST_COLUMNS = 2048
"""More than a plot has pixels; where there are more, neighbours become one."""


class Curve(msgspec.Struct, frozen=True):
    """Columns of equal length in order of time; not-a-number is unmeasured, and a break in the line."""

    times_s: "array[float]"
    last: "array[float]"
    low: "array[float]"
    high: "array[float]"

    def __len__(self) -> int:
        return len(self.times_s)

    @property
    def is_measured(self) -> bool:
        return any(not math.isnan(value) for value in self.last)

    @property
    def has_band(self) -> bool:
        """Whether least and most differ anywhere, so that there is a band to draw."""
        return any(low < high for low, high in zip(self.low, self.high, strict=True))


class _Column:
    """What was seen within a span of time."""

    __slots__ = ("end_s", "high", "is_broken", "last", "low", "start_s")

    def __init__(self, time_s: float, last: float, low: float, high: float, *, is_broken: bool) -> None:
        self.start_s = self.end_s = time_s
        self.last = last
        self.low = low
        self.high = high
        self.is_broken = is_broken
        """Whether something was unmeasured just before it."""

    def take(self, end_s: float, last: float, low: float, high: float) -> None:
        self.end_s = end_s
        self.last = last
        self.low = min(self.low, low)
        self.high = max(self.high, high)


class CurveRecorder:
    """Takes values in order of time and keeps a bounded number of columns of them.

    Args:
        gap_s: A longer silence is a break in the line.
    """

    def __init__(self, gap_s: float = math.inf, most_columns: int = MOST_COLUMNS) -> None:
        self._gap_s = gap_s
        self._most_columns = most_columns
        self._columns: list[_Column] = []
        self._width_s = 0.0
        self._is_broken = False

    def add(
        self, time_s: float, value: float | None, low: float | None = None, high: float | None = None
    ) -> None:
        """Take a value, with the least and most that were seen with it; None is unmeasured."""
        if value is None or math.isnan(value):
            self._is_broken = True
            return
        least = value if low is None else min(low, value)
        most = value if high is None else max(high, value)
        newest = self._columns[-1] if self._columns else None
        if newest is not None and not self._is_broken and self._is_within(newest, time_s):
            newest.take(time_s, value, least, most)
            return
        self._columns.append(_Column(time_s, value, least, most, is_broken=self._is_broken))
        self._is_broken = False
        if len(self._columns) > self._most_columns:
            self._merge()

    def curve(self) -> Curve:
        times_s = array("d")
        last = array("d")
        low = array("d")
        high = array("d")
        before: _Column | None = None
        for column in self._columns:
            if before is not None and (column.is_broken or column.start_s - before.end_s > self._gap_s):
                times_s.append((before.end_s + column.start_s) / 2)
                for values in (last, low, high):
                    values.append(math.nan)
            times_s.append(column.start_s if before is None else column.end_s)
            last.append(column.last)
            low.append(column.low)
            high.append(column.high)
            before = column
        return Curve(times_s, last, low, high)

    def _is_within(self, column: _Column, time_s: float) -> bool:
        return self._width_s > 0 and time_s - column.start_s < self._width_s

    def _merge(self) -> None:
        """Make columns twice as wide as would fill the whole, until they are half as many."""
        columns = self._columns
        span_s = columns[-1].end_s - columns[0].start_s
        self._width_s = max(self._width_s, span_s / self._most_columns)
        while len(self._columns) > self._most_columns // 2:
            self._width_s = self._width_s * 2 or 1.0
            merged = [self._columns[0]]
            for column in self._columns[1:]:
                # Breaks that are narrower than a column are narrower than what can be seen.
                if column.end_s - merged[-1].start_s < self._width_s:
                    merged[-1].take(column.end_s, column.last, column.low, column.high)
                else:
                    merged.append(column)
            self._columns = merged


FigureFormat = Literal["png", "pdf", "svg"]
FORMATS: tuple[FigureFormat, ...] = ("png", "pdf")
"""Formats of each figure, if a folder was named and no file."""
FigureClock = Literal["wall", "trace"]
"""`wall`: times are seconds since the epoch and shown as local time; `trace`: seconds of the input."""


class Marker(msgspec.Struct, frozen=True):
    """One finding on the axis of time."""

    time_s: float
    severity: Severity
    label: str
    """Its kind, as `leak`."""
    request_bytes: int | None = None
    """The request that failed, for an out-of-memory error."""


class DeviceFigure(msgspec.Struct, frozen=True, kw_only=True):
    device: str
    """Its label, in the title and the name of the file."""
    clock: FigureClock
    allocated: Curve | None = None
    reserved: Curve | None = None
    used: Curve | None = None
    capacity: Curve | None = None
    markers: tuple[Marker, ...] = ()
    subtitle: str = ""
    """Origin of the values."""
    name: str = ""
    """What the title calls the device, as `rank 3`; without it `GPU` and its label."""


class FragmentationFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Fragmentation of one device over time, as a share from 0 to 1."""

    device: str
    clock: FigureClock
    fragmentation: Curve | None
    external: Curve | None = None
    internal: Curve | None = None
    markers: tuple[Marker, ...] = ()
    subtitle: str = ""
    reason: str = ""
    """Why it was not measured, where it was not."""
    name: str = ""
    """What the title calls the device, as `rank 3`; without it `GPU` and its label."""


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
    """The most that each device ever had, in bytes; None is unmeasured."""

    devices: tuple[str, ...]
    allocated: tuple[int | None, ...]
    """One value a device, in their order; so are the others."""
    reserved: tuple[int | None, ...]
    used: tuple[int | None, ...]
    capacity: tuple[int | None, ...]
    subtitle: str = ""

    def of(self, name: str) -> tuple[int | None, ...]:
        values: tuple[int | None, ...] = getattr(self, name)
        return values


class DevicesOverTime(msgspec.Struct, frozen=True, kw_only=True):
    """The heat map of devices over time, one value a cell; None is unmeasured."""

    devices: tuple[str, ...]
    edges_s: tuple[float, ...]
    """Times between the columns: one more than there are."""
    values: tuple[tuple[float | None, ...], ...]
    """A row a device."""
    unit: Literal["%", "GiB"]
    clock: FigureClock
    subtitle: str = ""


# The axis of time: round steps, in local time where the input has dates, else in the unit that suits.

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
    """The places of the ticks, in seconds, and their labels."""

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
    return TimeAxis(ticks_s, [f"{tick / unit_s:,.10g}" for tick in ticks_s], f"time, {name}")


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


# Cells of a heat map: the highest value of each device in each column of time.

COLUMNS = 48


def make_devices_over_time(
    shares: Mapping[str, Curve],
    *,
    unit: Literal["%", "GiB"],
    clock: FigureClock,
    columns: int = COLUMNS,
    subtitle: str = "",
) -> DevicesOverTime:
    """Return a heat map of at most `columns` columns; a cell without any value is unmeasured."""
    start_s, end_s = find_span([curve.times_s for curve in shares.values()]) or (0.0, 0.0)
    if end_s <= start_s:
        start_s = start_s - 0.5
        end_s = end_s + 0.5
    count = max(1, min(columns, max((len(curve) for curve in shares.values()), default=1)))
    edges_s = tuple(start_s + (end_s - start_s) * number / count for number in range(count + 1))
    return DevicesOverTime(
        devices=tuple(shares),
        edges_s=edges_s,
        values=tuple(_fill(curve, edges_s) for curve in shares.values()),
        unit=unit,
        clock=clock,
        subtitle=subtitle,
    )


def _fill(curve: Curve, edges_s: tuple[float, ...]) -> tuple[float | None, ...]:
    most: list[float | None] = [None] * (len(edges_s) - 1)
    for time_s, high in zip(curve.times_s, curve.high, strict=True):
        if math.isnan(high):
            continue
        at = min(bisect_right(edges_s, time_s) - 1, len(most) - 1)
        known = most[at]
        most[at] = high if known is None else max(known, high)
    return tuple(most)
