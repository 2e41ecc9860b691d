"""Columns of minimum, maximum and last value per time bucket, kept up to date one sample at a time."""

from typing import NamedTuple

MAX_BUCKETS = 4096
"""No screen is wider; older buckets of a view go first."""


class HistoryColumns(NamedTuple):
    """One entry a time bucket, oldest first; None where nothing was measured."""

    minimum: list[float | None]
    maximum: list[float | None]
    last: list[float | None]


class BucketView:
    """One field of one device in buckets of one length, aligned to multiples of that length."""

    def __init__(self, bucket_s: float) -> None:
        self.bucket_s = bucket_s
        self._buckets: dict[int, tuple[float, float, float]] = {}

    def add(self, time_s: float, low: float, high: float, last: float) -> None:
        """Fold one reading into its bucket."""
        index = int(time_s // self.bucket_s)
        old = self._buckets.get(index)
        if old is None:
            self._buckets[index] = (low, high, last)
            if len(self._buckets) > MAX_BUCKETS:
                del self._buckets[min(self._buckets)]
        else:
            self._buckets[index] = (min(old[0], low), max(old[1], high), last)

    def columns(self, end_s: float, count: int) -> HistoryColumns:
        """Return the `count` buckets of which the last holds `end_s`."""
        end = int(end_s // self.bucket_s)
        found = [self._buckets.get(index) for index in range(end - count + 1, end + 1)]
        return HistoryColumns(
            [None if b is None else b[0] for b in found],
            [None if b is None else b[1] for b in found],
            [None if b is None else b[2] for b in found],
        )
