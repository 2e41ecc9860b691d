"""History of a node: columns of minimum, maximum and last value per time bucket, for drawing."""

from typing import Literal, NamedTuple

from ..model import Sample

Field = Literal["used", "allocated", "utilization"]
"""What can be drawn over time: device used bytes, allocated bytes, utilisation in percent."""


class HistoryColumns(NamedTuple):
    """One entry a time bucket, oldest first; None where nothing was measured."""

    minimum: list[float | None]
    maximum: list[float | None]
    last: list[float | None]


class History:
    """Everything seen of one node, bounded; safe to use from several threads."""

    def add(self, sample: Sample) -> None:
        """Remember one sample."""
        raise AssertionError

    def columns(self, uuid: str, field: Field, end_s: float, bucket_s: float, count: int) -> HistoryColumns:
        """Return `count` buckets of `bucket_s` seconds; the last bucket holds `end_s`.

        Buckets are aligned to multiples of `bucket_s`, so a bucket keeps its content as time goes on.
        """
        raise AssertionError

    def peak(self, uuid: str) -> tuple[int, float] | None:
        """Return the most device-used bytes seen and when (`Sample.time_s`), or None."""
        raise AssertionError

    def span_s(self, uuid: str) -> float:
        """Return the seconds from the oldest to the newest sample of a device."""
        raise AssertionError
