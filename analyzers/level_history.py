"""Allocated and reserved over time, from a trace or a flight record, cut into the columns of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..engine.model.memory_snapshot import FlightSample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .snapshot_summary import Timeline

    IntArray = NDArray[np.int64]


class LevelColumn(NamedTuple):
    allocated_min: int | None
    allocated_max: int | None
    reserved_bytes: int | None


@dataclass(frozen=True)
class LevelHistory:
    """Levels that last from their moment to the next one, oldest first, in columns of equal length."""

    # Seconds since the epoch; the numbers of the events where there are no times.
    moments: NDArray[np.float64]
    allocated_bytes: IntArray
    reserved_bytes: IntArray
    has_times: bool

    @property
    def duration(self) -> float:
        """Seconds, or events, from the first moment to the last."""
        return float(self.moments[-1] - self.moments[0])

    @property
    def peak_bytes(self) -> int:
        return int(max(self.allocated_bytes.max(), self.reserved_bytes.max()))

    def cut(self, start: float, end: float) -> LevelHistory:
        """Return the levels from one moment to another, with those at both ends."""
        import numpy as np

        first = max(0, int(np.searchsorted(self.moments, start, side="right")) - 1)
        last = int(np.searchsorted(self.moments, end, side="right"))
        inner = slice(first + 1, max(first + 1, last))
        return LevelHistory(
            moments=np.concatenate([[start], self.moments[inner], [end]]),
            allocated_bytes=_surround(self.allocated_bytes, first, inner),
            reserved_bytes=_surround(self.reserved_bytes, first, inner),
            has_times=self.has_times,
        )


def _surround(levels: IntArray, first: int, inner: slice) -> IntArray:
    import numpy as np

    newest = levels[max(first, inner.stop - 1)]
    return np.concatenate([levels[first : first + 1], levels[inner], [newest]])


def follow_trace(timeline: Timeline) -> LevelHistory:
    """Return the levels of a trace, beginning with those before its first event."""
    import numpy as np

    count = len(timeline)
    moments = np.arange(count, dtype=np.float64) if timeline.times_s is None else timeline.times_s
    return LevelHistory(
        moments=np.concatenate([moments[:1], moments]),
        allocated_bytes=np.concatenate([[timeline.start_allocated_bytes], timeline.allocated_bytes]),
        reserved_bytes=np.concatenate([[timeline.start_reserved_bytes], timeline.reserved_bytes]),
        has_times=timeline.times_s is not None,
    )


def follow_samples(samples: Sequence[FlightSample]) -> LevelHistory | None:
    """Return the levels of a flight record, None where it has no samples with them."""
    import numpy as np

    rows = [
        (each.time_s, each.allocated_bytes, each.reserved_bytes)
        for each in samples
        if each.time_s is not None and each.allocated_bytes is not None and each.reserved_bytes is not None
    ]
    if not rows:
        return None
    times_s, allocated, reserved = zip(*rows, strict=True)
    return LevelHistory(
        moments=np.maximum.accumulate(np.array(times_s, dtype=np.float64)),
        allocated_bytes=np.array(allocated, dtype=np.int64),
        reserved_bytes=np.array(reserved, dtype=np.int64),
        has_times=True,
    )


def cut_columns(history: LevelHistory, count: int) -> list[LevelColumn]:
    """Cut the levels into equal parts of the time, each including the level at its beginning."""
    import numpy as np

    edges = np.linspace(history.moments[0], history.moments[-1], count + 1)
    bounds = np.searchsorted(history.moments, edges, side="left")
    bounds[0], bounds[-1] = 0, len(history.moments)
    columns = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        # A level lasts until the next moment.
        part = slice(max(0, begin - 1), max(end, 1))
        allocated = history.allocated_bytes[part]
        reserved = history.reserved_bytes[part]
        columns.append(LevelColumn(int(allocated.min()), int(allocated.max()), int(reserved.max())))
    return columns


def locate_moment(history: LevelHistory, moment: float, count: int) -> int | None:
    """Return in which of `count` equal parts a moment is, None where it is outside of them."""
    first = float(history.moments[0])
    last = float(history.moments[-1])
    if not first <= moment <= last:
        return None
    return 0 if last == first else min(count - 1, int((moment - first) / (last - first) * count))
