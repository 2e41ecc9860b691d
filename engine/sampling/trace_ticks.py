"""A run of memory traces in ticks: what is known of each rank, and where its rows are."""

import math
from array import array
from bisect import bisect_left
from pathlib import Path

import msgspec

from ..files.memory_trace.name import TraceName
from ..files.memory_trace.records import LoggedBytes
from ..files.memory_trace.spans import TraceSpan
from ..model import RankCoordinates
from .trace_rows import TraceRows

ROUNDING = 1e-6
"""Share of a tick by which a sample may miss its tick's end through the rounding of decimal times."""
_UNLOGGED = -1


class TraceIterations:
    """The iterations of one rank, in columns and in order."""

    def __init__(self) -> None:
        self._indices = array("q")
        self._starts_s = array("d")
        self._logged = (array("q"), array("q"), array("q"))
        self._is_open = False

    def __len__(self) -> int:
        return len(self._indices)

    def add(self, span: TraceSpan) -> None:
        """Take the next span."""
        if not self._is_open:
            self._indices.append(span.index)
            self._starts_s.append(math.nan)
        if span.times_s and math.isnan(self._starts_s[-1]):
            self._starts_s[-1] = span.times_s[0]
        self._is_open = span.logged is None
        if span.logged is not None:
            for column, value in zip(self._logged, msgspec.structs.astuple(span.logged), strict=True):
                column.append(_UNLOGGED if value is None else value)

    def find(self, index: int) -> int | None:
        """Return the place of an iteration, None where there is none of that number."""
        at = bisect_left(self._indices, index)
        return at if at < len(self._indices) and self._indices[at] == index else None

    def start_s(self, at: int) -> float | None:
        """Return the time of the first sample of the iteration at a place; None where it has none."""
        start_s = self._starts_s[at]
        return None if math.isnan(start_s) else start_s

    def logged(self, at: int) -> LoggedBytes:
        """Return what was logged once for the iteration at a place."""
        return LoggedBytes(*(None if it[at] == _UNLOGGED else it[at] for it in self._logged))

    def peak_bytes(self) -> int | None:
        """Return the highest peak that was logged, None where none was."""
        highest = max(self._logged[0], default=_UNLOGGED)
        return None if highest == _UNLOGGED else highest


class RankTicks(msgspec.Struct, frozen=True):
    """One rank: which rows are its own, and what is known of all of them."""

    path: Path
    name: TraceName
    start: int
    """Number of its first row."""
    stop: int
    """Number after its last row."""
    samples: int
    start_s: float
    """Time of the first sample; 0 where there is none."""
    end_s: float
    used_max_bytes: int
    allocated_max_bytes: int
    least_gap_s: float
    """Between two samples that follow each other; infinite where there are not two."""
    iterations: TraceIterations
    digest: bytes
    """Of all times and allocations."""
    notes: tuple[str, ...] = ()

    @property
    def coordinates(self) -> RankCoordinates:
        """Where the rank stands in its parallel layout."""
        return self.name.coordinates

    @property
    def is_device_foreign(self) -> bool:
        """Whether device used cannot be that of the rank's own device: less was used than was allocated."""
        return self.samples > 0 and self.used_max_bytes < self.allocated_max_bytes

    @property
    def peak_bytes(self) -> int | None:
        """Most that was allocated, as it was logged once an iteration or else as samples show it."""
        logged = self.iterations.peak_bytes()
        return logged if logged is not None or not self.samples else self.allocated_max_bytes


class TraceRunTicks(msgspec.Struct, frozen=True):
    """The ranks of one run, in order of rank, and their ticks."""

    path: Path
    ranks: tuple[RankTicks, ...]
    rows: TraceRows
    interval_s: float
    notes: tuple[str, ...] = ()
    """Sentences about files left out, ranks that are absent, and figures that are not what they seem."""

    @property
    def start_s(self) -> float:
        """Time of the first sample of all ranks."""
        return min((rank.start_s for rank in self.ranks if rank.samples), default=0.0)

    @property
    def end_s(self) -> float:
        """Time of the last sample of all ranks."""
        return max((rank.end_s for rank in self.ranks if rank.samples), default=0.0)


def tick_of(time_s: float, interval_s: float) -> int:
    """Return the tick that holds a time: tick k spans the seconds after (k - 1) up to k intervals."""
    return math.ceil(time_s / interval_s - ROUNDING)
