"""What is known of the fragmentation of one allocator. None is unmeasured; shares are from 0 to 1.

Terms: PyTorch's memory statistics. External fragmentation is 1 - largest free block / free bytes, as for any
allocator; memory cached in whole segments can be given back and is no fragmentation.
"""

from typing import Literal

import msgspec

from ..subjects import SubjectKey

Measure = Literal["external", "stranded", "unused"]
"""What a ratio measures: free blocks too small for a large request, by a segment map; free bytes beside live
ones in segments, of what is reserved; bytes reserved and not allocated, in which cache and stranded bytes
cannot be told apart."""
Level = Literal["low", "moderate", "high", "severe"]
TrendDescription = Literal[
    "Stable", "Increasing fragmentation", "Decreasing fragmentation", "Minor fluctuation"
]

_BANDS: tuple[tuple[float, Level], ...] = ((0.8, "severe"), (0.6, "high"), (0.4, "moderate"))


class FragmentationReading(msgspec.Struct, frozen=True, gc=False):
    """One allocator at its newest sample, and over the minutes before it."""

    key: SubjectKey
    node: str
    device_uuid: str | None
    device: str | None
    """Label of the device."""
    device_index: int | None
    pid: int | None
    rank: int | None
    time_s: float
    allocated_bytes: int | None
    reserved_bytes: int | None
    active_bytes: int | None
    requested_bytes: int | None
    internal: float | None
    """1 - requested / allocated: lost within live blocks to rounding and to remainders."""
    stranded_bytes: int | None
    """Free and not to be given back, at this moment."""
    stranded_source: Literal["counter", "map"] | None
    """PyTorch's counter of inactive split bytes, or a segment map, which expandable segments need."""
    persistent_bytes: int | None
    """Stranded at the fullest moments of the window: what even the peaks of the steps did not use."""
    cached_bytes: int | None
    """Reserved less active: kept for the next request; not fragmentation by itself."""
    unused_bytes: int | None
    """Reserved less allocated."""
    unused_share: float | None
    """Least of that within the window, at the fullest moment, as a share of what was reserved."""
    utilization: float | None
    """Most allocated / most reserved since it was first seen."""
    limit_bytes: int | None
    """Most that the allocator can really reserve."""
    headroom_bytes: int | None
    """That limit less the most that was allocated within the window."""
    retries: int | None
    ratio: float | None
    """The one figure for a report: external, or else stranded / reserved; None where neither is known."""
    measure: Measure | None
    """What `ratio` measures; `unused` where neither is known, and only `unused_share` can be told."""
    method: str
    """What the figures rest on, in one sentence."""
    external: float | None = None
    """1 - largest free block / free bytes of the pool with the most free bytes; only of a segment map."""
    free_blocks: int | None = None
    """Of a segment map."""
    largest_free_bytes: int | None = None
    """Of a segment map, private pools left out."""
    map_s: float | None = None
    """When the newest segment map was taken."""


class FragmentationTrend(msgspec.Struct, frozen=True):
    """How one measure went since the allocator was first seen."""

    measure: Measure
    points: tuple[tuple[float, float], ...]
    """Time in seconds and the least within the span from there to the next point."""
    duration_s: float
    current: float
    least: float
    most: float
    average: float
    slope_per_s: float | None
    """Robust slope (Theil-Sen) over at most 32 spans."""
    description: TrendDescription


def level_of(ratio: float | None) -> Level | None:
    """Return the word for a fragmentation ratio: low, moderate from 0.4, high from 0.6, severe from 0.8."""
    if ratio is None:
        return None
    return next((level for least, level in _BANDS if ratio >= least), "low")
