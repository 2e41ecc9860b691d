"""Curves of any length in bounded memory: the last, least and most of each column of a plot."""

import math
from array import array

import msgspec

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
        """Whether there is any figure in it."""
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
        """Take what came later in the same span."""
        self.end_s = end_s
        self.last = last
        self.low = min(self.low, low)
        self.high = max(self.high, high)


class CurveRecorder:
    """Takes values in order of time and keeps a bounded number of columns of them.

    Args:
        gap_s: A longer silence is a break in the line.
        most_columns: Most columns to keep.
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
        """Return what was recorded so far."""
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
