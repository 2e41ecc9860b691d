"""Columns of minimum, maximum and last value per time bucket, kept up to date one sample at a time."""

from array import array
from math import isnan, nan
from typing import NamedTuple

MAX_BUCKETS = 4096
"""Buckets that a view keeps at most: no screen is wider."""


class HistoryColumns(NamedTuple):
    """One entry a time bucket, oldest first; None where nothing was measured."""

    minimum: list[float | None]
    maximum: list[float | None]
    last: list[float | None]


class BucketView:
    """One field of one device in buckets of one length, aligned to multiples of that length.

    Args:
        bucket_s: Length of a bucket in seconds.
        capacity: How many of the newest buckets are kept.
    """

    def __init__(self, bucket_s: float, capacity: int) -> None:
        self.bucket_s = bucket_s
        self._capacity = max(1, capacity)
        self._first = 0
        """Index of the oldest bucket."""
        # Tuples would take ten times as much, and each device has a view for each field and width.
        self._cells = (array("d"), array("d"), array("d"))
        """Minimum, maximum and last of each bucket; NaN where nothing was measured."""
        self._newest_dropped: int | None = None
        """Index of the newest bucket that had to go for its age; None where none had to."""

    def add(self, time_s: float, low: float, high: float, last: float) -> None:
        """Fold one reading into its bucket."""
        lows, highs, lasts = self._cells
        index = int(time_s // self.bucket_s)
        if not 0 <= index - self._first < len(lasts):
            self._make_room(index)
        at = index - self._first
        is_first = isnan(lasts[at])
        lows[at] = low if is_first else min(lows[at], low)
        highs[at] = high if is_first else max(highs[at], high)
        lasts[at] = last

    def has(self, end_s: float, count: int) -> bool:
        """Return whether none of these buckets was dropped; no other view has more than the most."""
        first = int(end_s // self.bucket_s) - count + 1
        return self._newest_dropped is None or first > self._newest_dropped or self._capacity >= MAX_BUCKETS

    def columns(self, end_s: float, count: int) -> HistoryColumns:
        """Return the `count` buckets of which the last holds `end_s`."""
        start = int(end_s // self.bucket_s) - count + 1 - self._first
        return HistoryColumns(*(_read(cells, start, count) for cells in self._cells))

    def _make_room(self, index: int) -> None:
        """Let a bucket begin; the oldest go where there are too many."""
        count = len(self._cells[0])
        before = self._first - index
        after = index - self._first - count + 1
        if not count or max(before + count, after) > self._capacity:
            # Nothing yet, or the clock was set so far that nothing of what is here can stay.
            self._newest_dropped = self._first + count - 1 if count and after > 0 else None
            self._first = index
            for cells in self._cells:
                cells[:] = array("d", [nan])
            return
        for cells in self._cells:
            cells[:0] = array("d", [nan]) * before
            cells.extend(array("d", [nan]) * after)
        over = max(0, len(self._cells[0]) - self._capacity)
        self._first = min(self._first, index) + over
        for cells in self._cells:
            del cells[:over]
        if over:
            self._newest_dropped = self._first - 1


def _read(cells: "array[float]", start: int, count: int) -> list[float | None]:
    """Return cells from a position on, None for those that are not there or hold nothing."""
    head = min(max(0, -start), count)
    tail = max(0, start)
    found = [None if isnan(value) else value for value in cells[tail : max(0, start + count)]]
    return [*[None] * head, *found, *[None] * (count - head - len(found))]
