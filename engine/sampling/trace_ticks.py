"""A run of memory traces in ticks: facts about each rank, and where its rows are."""

import math
import os
import struct
import tempfile
import weakref
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..errors import OutputFileError
from ..files.memory_trace.reading import LoggedBytes, TraceName, TraceSpan
from ..model import RankCoordinates
from ..units import MIB

# Further rows go into a file, which has no name and ends with its process.
MOST_MEMORY_BYTES = 64 * MIB
_PACKED = struct.Struct("<qdqqqqqi")
_ROWS_AT_ONCE = 1024


class TickRow(NamedTuple):
    # Tick k spans the seconds after (k - 1) up to k intervals.
    tick: int
    # Time of its newest sample, the one of `used_bytes`, `allocated_bytes` and `iteration`.
    newest_s: float
    used_bytes: int
    used_min_bytes: int
    used_max_bytes: int
    allocated_bytes: int
    allocated_max_bytes: int
    iteration: int


class TraceRows:
    """Rows of all ranks, one rank after the other."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._descriptor: int | None = None
        self._file_bytes = 0

    @property
    def count(self) -> int:
        return (self._file_bytes + len(self._buffer)) // _PACKED.size

    def append(self, row: TickRow) -> None:
        """Add a row; raises `OutputFileError` if the temporary file cannot be written."""
        self._buffer += _PACKED.pack(*row)
        if len(self._buffer) > MOST_MEMORY_BYTES:
            self._spill()

    def truncate(self, count: int) -> None:
        keep = count * _PACKED.size
        if keep >= self._file_bytes:
            del self._buffer[keep - self._file_bytes :]
            return
        self._buffer.clear()
        self._file_bytes = keep

    def tick(self, number: int) -> int:
        return int(_PACKED.unpack(self._read(number, 1))[0])

    def rows(self, start: int, stop: int) -> Iterator[TickRow]:
        """Yield the rows from `start` up to `stop`, that one not included."""
        for at in range(start, stop, _ROWS_AT_ONCE):
            count = min(_ROWS_AT_ONCE, stop - at)
            yield from map(TickRow._make, _PACKED.iter_unpack(self._read(at, count)))

    def _read(self, start: int, count: int) -> bytes:
        at = start * _PACKED.size
        size = count * _PACKED.size
        if self._descriptor is None or at >= self._file_bytes:
            at -= self._file_bytes
            return bytes(self._buffer[at : at + size])
        # pread leaves the place of no other reader.
        found = os.pread(self._descriptor, min(size, self._file_bytes - at), at)
        return found + self._buffer[: size - len(found)]

    def _spill(self) -> None:
        try:
            if self._descriptor is None:
                with tempfile.TemporaryFile(prefix="vramscope-") as file:
                    self._descriptor = os.dup(file.fileno())
                weakref.finalize(self, os.close, self._descriptor)
            written = os.pwrite(self._descriptor, self._buffer, self._file_bytes)
        except OSError as error:
            raise OutputFileError(
                f"{tempfile.gettempdir()}: cannot store the data of a large run: "
                f"{error.strerror or error}; set TMPDIR to another folder"
            ) from error
        # A disk that is nearly full takes a part; the next attempt says why.
        self._file_bytes += written
        del self._buffer[:written]


# Share of a tick by which a sample may miss its tick's end through the rounding of decimal times.
ROUNDING = 1e-6
_UNLOGGED = -1


class TraceIterations:
    def __init__(self) -> None:
        self._indices = array("q")
        self._starts_s = array("d")
        self._logged = (array("q"), array("q"), array("q"))
        self._is_open = False

    def __len__(self) -> int:
        return len(self._indices)

    def add(self, span: TraceSpan) -> None:
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
        at = bisect_left(self._indices, index)
        return at if at < len(self._indices) and self._indices[at] == index else None

    def start_s(self, at: int) -> float | None:
        """Time of the first sample of the iteration at a position; None if it has none."""
        start_s = self._starts_s[at]
        return None if math.isnan(start_s) else start_s

    def logged(self, at: int) -> LoggedBytes:
        return LoggedBytes(*(None if it[at] == _UNLOGGED else it[at] for it in self._logged))

    def peak_bytes(self) -> int | None:
        highest = max(self._logged[0], default=_UNLOGGED)
        return None if highest == _UNLOGGED else highest


class RankTicks(msgspec.Struct, frozen=True):
    """One rank: which rows are its own, and facts about all of them."""

    path: Path
    name: TraceName
    # Number of its first row; `stop` is the one after its last.
    start: int
    stop: int
    samples: int
    # Time of the first sample; 0 if there is none.
    start_s: float
    end_s: float
    used_max_bytes: int
    allocated_max_bytes: int
    # Between two consecutive samples; infinite if there are no two.
    least_gap_s: float
    iterations: TraceIterations
    # Hash of all times and allocations.
    digest: bytes
    notes: tuple[str, ...] = ()

    @property
    def coordinates(self) -> RankCoordinates:
        return self.name.coordinates

    @property
    def is_device_foreign(self) -> bool:
        """Less was used than was allocated, so this is not the memory of the rank's own device."""
        return self.samples > 0 and self.used_max_bytes < self.allocated_max_bytes

    @property
    def peak_bytes(self) -> int | None:
        """Most allocated, as logged once an iteration or else by the samples."""
        logged = self.iterations.peak_bytes()
        return logged if logged is not None or not self.samples else self.allocated_max_bytes


class TraceRunTicks(msgspec.Struct, frozen=True):
    path: Path
    ranks: tuple[RankTicks, ...]
    rows: TraceRows
    interval_s: float
    # Files left out, ranks that are absent, and values that are not what they seem.
    notes: tuple[str, ...] = ()

    @property
    def start_s(self) -> float:
        return min((rank.start_s for rank in self.ranks if rank.samples), default=0.0)

    @property
    def end_s(self) -> float:
        return max((rank.end_s for rank in self.ranks if rank.samples), default=0.0)


def tick_of(time_s: float, interval_s: float) -> int:
    """Return the tick of a time: tick k spans the seconds after (k - 1) up to k intervals."""
    return math.ceil(time_s / interval_s - ROUNDING)
