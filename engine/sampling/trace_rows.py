"""Ticks of a run of memory traces, one row each: in memory while they are few, else in a temporary file."""

import os
import struct
import tempfile
import weakref
from collections.abc import Iterator
from typing import NamedTuple

from ..errors import OutputFileError
from ..units import MIB

MOST_MEMORY_BYTES = 64 * MIB
"""What more rows take goes into a file, which has no name and goes with its process."""
_PACKED = struct.Struct("<qdqqqqqi")
_ROWS_AT_ONCE = 1024


class TickRow(NamedTuple):
    """What one rank told in one tick."""

    tick: int
    """Number of the tick; tick k spans the seconds after (k - 1) up to k intervals."""
    newest_s: float
    """Time of its newest sample, to which `used_bytes` and `allocated_bytes` belong."""
    used_bytes: int
    used_min_bytes: int
    used_max_bytes: int
    allocated_bytes: int
    allocated_max_bytes: int
    iteration: int
    """Of the newest sample."""


class TraceRows:
    """Rows of all ranks, one rank after the other."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._descriptor: int | None = None
        self._file_bytes = 0

    @property
    def count(self) -> int:
        """Rows so far."""
        return (self._file_bytes + len(self._buffer)) // _PACKED.size

    def append(self, row: TickRow) -> None:
        """Add a row.

        Raises:
            OutputFileError: The temporary file cannot be written.
        """
        self._buffer += _PACKED.pack(*row)
        if len(self._buffer) > MOST_MEMORY_BYTES:
            self._spill()

    def truncate(self, count: int) -> None:
        """Forget the rows from a number on."""
        keep = count * _PACKED.size
        if keep >= self._file_bytes:
            del self._buffer[keep - self._file_bytes :]
            return
        self._buffer.clear()
        self._file_bytes = keep

    def tick(self, number: int) -> int:
        """Return the tick of a row."""
        return int(_PACKED.unpack(self._read(number, 1))[0])

    def rows(self, start: int, stop: int) -> Iterator[TickRow]:
        """Yield the rows from one number up to another, that one not included."""
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
                self._descriptor = self._open()
            written = os.pwrite(self._descriptor, self._buffer, self._file_bytes)
        except OSError as error:
            raise OutputFileError(
                f"{tempfile.gettempdir()}: figures of a large run cannot be put there: "
                f"{error.strerror or error}; name another folder in TMPDIR"
            ) from error
        # A disk that is nearly full takes a part; the next attempt says why.
        self._file_bytes += written
        del self._buffer[:written]

    def _open(self) -> int:
        with tempfile.TemporaryFile(prefix="vramscope-") as file:
            descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, descriptor)
        return descriptor
