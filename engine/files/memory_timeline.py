"""Reader of what `torch.profiler`'s `export_memory_timeline` writes: `.json`, `.json.gz` and `.raw.json.gz`.

The first two are `[times, sizes]`: microseconds, and for each of them nine figures in bytes, of which the
first is always 0 and the others are categories. The raw file is a list of `[time, action, bytes, category]`:
nanoseconds and changes. Categories count from 1 in the former and from 0 in the latter
(`torch/profiler/_memory_profiler.py`). Their sum is what the profiler knew to be allocated.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from ..errors import InputFileError
from ..units import MIB, format_bytes
from .base.input_file import show_path
from .base.packed_file import CUT_NOTE, PackedFile
from .base.series_record import (
    MOST_BYTES,
    MOST_SECONDS,
    RecordError,
    SeriesDevice,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
)
from .snapshot_series import LevelTicks

MOST_LIST_BYTES = 128 * MIB
"""A list of numbers that is longer in the file is refused: it would be held whole."""
MOST_NUMBERS = 1 << 23
"""Times of that many bytes are fewer."""
_BLANK = b" \t\r\n"
_MOST_OPENED = 2
_DECODER = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]])


class InnerList(NamedTuple):
    """One list that holds numbers and no list."""

    opened: int
    """Brackets that open right before its numbers, its own included."""
    numbers: list[int]


def read_inner_lists(file: PackedFile, path: Path, expectation: str) -> Iterator[InnerList]:
    """Yield the lists of whole numbers of a file to its end; what is cut off at the end is left out.

    Args:
        file: The file, of which nothing was read.
        path: Of the file.
        expectation: What is said where something else stands in it.

    Raises:
        InputFileError: Something else stands in it, or a list is longer than could be held.
    """
    closings = 0
    for at, piece in _split(file, path):
        before, bracket, numbers = piece.rpartition(b"[")
        opened = before.count(b"[") + 1
        if not bracket:
            closings += 1
            if piece.strip(_BLANK) or closings > _MOST_OPENED:
                raise _refuse(path, at, piece, expectation)
            continue
        if opened > _MOST_OPENED or before.translate(None, b"[," + _BLANK):
            raise _refuse(path, at, piece, expectation)
        try:
            yield InnerList(opened, _DECODER.decode(b"[" + numbers + b"]"))
        except msgspec.DecodeError as error:
            raise _refuse(path, at, piece, expectation) from error


def _split(file: PackedFile, path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield what stands before each closing bracket, and its place in bytes."""
    parts: list[bytes] = []
    held = numbers = place = 0
    for data in file.chunks():
        *ended, rest = data.split(b"]")
        for piece in ended:
            whole = b"".join((*parts, piece))
            yield place, whole
            place += len(whole) + 1
            parts.clear()
            held = 0
        parts.append(rest)
        held += len(rest)
        if held > MOST_LIST_BYTES:
            file.close()
            raise InputFileError(
                f"{show_path(path)}: byte {place:,}: a list of more than {MOST_LIST_BYTES:,} bytes"
            )
        numbers = rest.count(b",") + (numbers if len(ended) == 0 else 0)
        if numbers > MOST_NUMBERS:
            file.close()
            raise InputFileError(
                f"{show_path(path)}: byte {place:,}: a list of more than {MOST_NUMBERS:,} numbers"
            )


def _refuse(path: Path, at: int, piece: bytes, expectation: str) -> InputFileError:
    shown = ascii(piece.strip(_BLANK)[:24].decode("utf-8", "replace"))
    return InputFileError(
        f"{show_path(path)}: byte {at:,}: {shown} is no list of whole numbers; {expectation}"
    )


CATEGORIES = (
    "parameters",
    "optimizer state",
    "inputs",
    "temporaries",
    "activations",
    "gradients",
    "details of autograd",
    "of unknown kind",
)
_EXPECTATION = (
    "expected [times, sizes] or a list of [time, action, bytes, category] of export_memory_timeline"
)
_ROW_LENGTH = len(CATEGORIES) + 1
_RAW_LENGTH = 4
_PREEXISTING = 1
_ACTIONS = range(1, 5)
_NOT_TOLD = "the file does not tell which device it is of: it stands as device 0"


class MemoryTimeline(SeriesReader):
    """Reads the records of one timeline, once.

    Args:
        path: The file, plain or gzip.
        interval_s: Length of a tick; None for one that suits its length.
        on_read: Called with the share that was read; what it raises ends the reading.
    """

    format: SeriesFormat = "memory timeline"

    def __init__(
        self,
        path: Path,
        interval_s: float | None = None,
        on_read: Callable[[float], None] | None = None,
    ) -> None:
        self._file = PackedFile(path, on_read)
        super().__init__(path, self._file)
        self._ticks = LevelTicks(interval_s)
        self._peak: tuple[int, tuple[int, ...]] = (-1, (0,) * len(CATEGORIES))

    @property
    def notes(self) -> tuple[str, ...]:
        peak, parts = self._peak
        named = [(size, name) for size, name in zip(parts, CATEGORIES, strict=True) if size > 0]
        told = ", ".join(f"{format_bytes(size)} {name}" for size, name in sorted(named, reverse=True))
        return (
            "allocated is the sum of the categories of torch.profiler, which leaves out what it did not see",
            *((f"at its peak of {format_bytes(peak)}: {told}",) if told else ()),
            _NOT_TOLD,
            *((CUT_NOTE,) if self._file.is_cut else ()),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        return f"{show_path(self._path)}: no level in it; {self._left_out.first or _EXPECTATION}"

    def records(self) -> Iterator[SeriesRecord]:
        lists = read_inner_lists(self._file, self._path, _EXPECTATION)
        with closing(self):
            first = next(lists, None)
            second = next(lists, None)
            rows = chain(() if second is None else (second,), lists)
            if first is not None and second is not None and second.opened == 2:
                self._read_sizes(array("q", first.numbers), rows)
            elif first is not None:
                self._read_changes(chain((first,), rows))
        yield from self._ticks.records(SeriesDevice("index-0", 0, "0"))

    def _read_sizes(self, times_us: "array[int]", rows: Iterator[InnerList]) -> None:
        count = 0
        for count, row in enumerate(rows, 1):
            self._left_out.seen = count
            try:
                if count > len(times_us):
                    raise RecordError(
                        "count", f"sizes at more than the {len(times_us):,} times that are told"
                    )
                sizes = row.numbers
                if len(sizes) != _ROW_LENGTH or min(sizes) < 0:
                    raise RecordError("row", f"{_show(sizes)}, expected {_ROW_LENGTH} sizes in bytes")
                self._add(times_us[count - 1] / 1e6, sizes[1:])
            except RecordError as error:
                self._left_out.add(error.kind, f"$[1][{count - 1}]", str(error))
        if count < len(times_us):
            missing = f"{len(times_us) - count:,} times have no sizes"
            self._left_out.add("count", f"$[1][{count}]", f"{missing}; the file ends in the middle")

    def _read_changes(self, rows: Iterator[InnerList]) -> None:
        levels = [0] * len(CATEGORIES)
        for number, row in enumerate(rows):
            self._left_out.seen = number
            try:
                time_ns, category, change = _read_change(row.numbers)
                levels[category] += change
                if time_ns is not None:
                    self._add(time_ns / 1e9, levels)
            except RecordError as error:
                self._left_out.add(error.kind, f"$[{number}]", str(error))

    def _add(self, time_s: float, parts: Sequence[int]) -> None:
        total = sum(parts)
        if abs(time_s) >= MOST_SECONDS:
            raise RecordError("time", f"{time_s:g} s, expected a time of this era")
        if not 0 <= total < MOST_BYTES:
            raise RecordError("bytes", f"{total:,} bytes in all, expected memory of a device")
        if total > self._peak[0]:
            self._peak = total, tuple(parts)
        self._ticks.add(time_s, total, None)


def _read_change(row: Sequence[int]) -> tuple[int | None, int, int]:
    """Return time in nanoseconds (None: before the first), category and change in bytes of a row."""
    if len(row) != _RAW_LENGTH or row[1] not in _ACTIONS or not 0 <= row[3] < len(CATEGORIES):
        raise RecordError("row", f"{_show(row)}, expected [time, action, bytes, category]")
    time_ns, action, change, category = row
    return (None if action == _PREEXISTING or time_ns < 0 else time_ns), category, change


def _show(row: Sequence[int]) -> str:
    return ascii(list(row[:10]))[:80]
