"""Traces and memory timelines of torch.profiler."""

import heapq
import json
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated, NamedTuple, TypeGuard, cast

import msgspec

from ..errors import InputFileError
from ..model import RankCoordinates
from ..units import MIB, format_bytes
from .base.input_file import show_path
from .base.packed_file import CUT_NOTE, PackedFile
from .base.series_reader import (
    MOST_BYTES,
    MOST_SECONDS,
    RecordError,
    SeriesDevice,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
)
from .framework.oom_text import OomNotes
from .snapshot_series import MOST_DEVICES_OF_PROCESS, LevelTicks, describe_folding

# Only the instant events `[memory]` and `[OutOfMemory]` matter, which `profile_memory=True` adds: a few
# percent of the file. They are found by their name, so that a trace of gigabytes is neither parsed nor read
# into memory whole. Their order does not matter; totals are those after the event.

_HEAD_BYTES = 1 << 20
# What follows the digits must be seen too: a chunk may end within them.
_START = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\s*[,}]')
# The longest text for the pattern above, which may be split between two chunks.
_START_BYTES = 64
_ENDS_EARLY = "the trace is cut short; the rest is missing"
_DEVICE = re.compile(
    rb'"id"\s*:\s*(\d{1,6})\s*,\s*"name"\s*:\s*"([^"\\\x00-\x1f\x7f]{0,128})"\s*,\s*"totalGlobalMem"\s*:\s*(\d{1,15})\b'
)
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*(\{[^{}]{0,4096})')
_RANK = re.compile(rb'"rank"\s*:\s*(\d{1,9})\b')
_WORLD = re.compile(rb'"world_size"\s*:\s*(\d{1,9})\b')


class TraceHead:
    """Collects what is around the events while the bytes of a file pass."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._end = b""
        self._start_s = 0.0
        self._has_start = False

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            *(() if self._has_start else ("times are as in its events; the trace names no base time",)),
            *((_ENDS_EARLY,) if self._ends_early else ()),
        )

    @property
    def _ends_early(self) -> bool:
        """True of an object that is not closed; a list of events may lack its end in this format."""
        end = self._end.rstrip()
        return self._head.lstrip().startswith(b"{") and bool(end) and not end.endswith(b"}")

    def observe(self, data: bytes) -> None:
        self._end = (self._end + data[-_START_BYTES:])[-_START_BYTES:]
        if len(self._head) < _HEAD_BYTES:
            self._head += data[: _HEAD_BYTES - len(self._head)]
        if not self._has_start:
            match = _START.search(self._tail + data)
            self._tail = data[-_START_BYTES:]
            if match is not None and int(match[1]) < MOST_SECONDS * 1e9 / 2:
                self._start_s = int(match[1]) / 1e9
                self._has_start = True

    def records(self, device: SeriesDevice, ticks: LevelTicks) -> Iterator[SeriesRecord]:
        known = {int(it[1]): it for it in _DEVICE.finditer(self._head)}.get(device.index)
        total_bytes = None if known is None else int(known[3])
        if known is not None:
            device = msgspec.structs.replace(device, name=known[2].decode("utf-8", "replace"))
        return ticks.records(
            device,
            start_s=self._start_s,
            total_bytes=total_bytes if total_bytes and total_bytes < MOST_BYTES else None,
            rank=self._find_rank(),
        )

    def _find_rank(self) -> RankCoordinates | None:
        told = _DISTRIBUTED.search(self._head)
        rank = None if told is None else _RANK.search(told[1])
        if told is None or rank is None:
            return None
        world = _WORLD.search(told[1])
        return RankCoordinates(int(rank[1]), None if world is None else int(world[1]), source="trace")


_NAMES = ("[memory]", "[OutOfMemory]")
_NAME = re.compile(rb'"\[(?:memory|OutOfMemory)\]"')
# Bytes before and after the name in which its event must begin and end.
_LONGEST_EVENT = 1 << 13
_MOST_BRACES = 4
_MOST_STRAYS = 1000
# `Device Type` of the host (`c10::DeviceType::CPU`).
_PROCESSOR = 0
_NONE_FOUND = "no [memory] event; expected a trace of torch.profiler with profile_memory=True"
_DECODER = json.JSONDecoder()


class ProfilerTrace(SeriesReader):
    """Reads the records of one trace, once. `path`: plain or gzip."""

    format: SeriesFormat = "profiler trace"

    def __init__(
        self,
        path: Path,
        interval_s: float | None = None,
        on_read: Callable[[float], None] | None = None,
    ) -> None:
        self._file = PackedFile(path, on_read)
        super().__init__(path, self._file)
        self._interval_s = interval_s
        self._head = TraceHead()
        self._levels: dict[str, tuple[SeriesDevice, LevelTicks]] = {}
        self._of_processor = self._strays = 0
        self._ooms = OomNotes()

    @property
    def notes(self) -> tuple[str, ...]:
        count = self._of_processor
        return (
            *((f"events of host memory were left out: {count:,}",) if count else ()),
            *self._ooms.notes,
            *self._head.notes,
            *describe_folding(ticks for _, ticks in self._levels.values()),
            *((CUT_NOTE,) if self._file.is_cut else ()),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        why = self._left_out.first or _NONE_FOUND
        if self._of_processor and not self._left_out.count:
            why = f"all {self._of_processor:,} memory events are of the host; expected some of a GPU"
        return f"{show_path(self._path)}: {why}"

    def records(self) -> Iterator[SeriesRecord]:
        with closing(self):
            for place, event in _find_events(self._file, self._head):
                self._left_out.seen += 1
                if event is None:
                    self._count_stray()
                try:
                    self._add_event(event)
                except RecordError as error:
                    self._left_out.add(error.kind, f"byte {place:,}", str(error))
        series = [self._head.records(device, ticks) for device, ticks in self._levels.values()]
        yield from heapq.merge(*series, key=attrgetter("time_s"))

    def _count_stray(self) -> None:
        """Count a name without an event around it: each costs as much as hundreds of events."""
        self._strays += 1
        if self._strays > _MOST_STRAYS and self._strays * 4 > self._left_out.seen:
            raise InputFileError(
                f"{show_path(self._path)}: more than {_MOST_STRAYS:,} names [memory] are outside of "
                "events; the file is damaged"
            )

    def _add_event(self, event: dict[str, object] | None) -> None:
        if event is None:
            raise RecordError("event", "this name is outside of any event")
        fields = event.get("args")
        if not isinstance(fields, dict):
            raise RecordError("args", "args is missing, expected an object with sizes")
        if fields.get("Device Type") == _PROCESSOR:
            self._of_processor += 1
            return
        allocated = _read_size(fields, "Total Allocated")
        reserved = _read_size(fields, "Total Reserved")
        is_oom = event.get("name") == "[OutOfMemory]"
        if allocated is None and reserved is None and not is_oom:
            raise RecordError("totals", "Total Allocated is missing, expected bytes")
        number = fields.get("Device Id")
        if not _is_whole(number) or not 0 <= number < MOST_DEVICES_OF_PROCESS:
            raise RecordError("device", f"Device Id is {ascii(number)[:24]}, expected a number from 0 to 127")
        device = self._devices.identify(None, number, str(number), None)
        _, ticks = self._levels.setdefault(device.uuid, (device, LevelTicks(self._interval_s)))
        ticks.add(_read_time(event.get("ts")), allocated, reserved, is_oom=is_oom)
        if is_oom:
            self._note_oom(number, fields, allocated)

    def _note_oom(self, number: int, fields: dict[str, object], allocated: int | None) -> None:
        size = fields.get("Bytes")
        asked = "an unknown size was"
        if _is_whole(size) and abs(size) < MOST_BYTES:
            asked = f"{format_bytes(abs(size))} were"
        self._ooms.add(
            f"device {number} ran out of memory: {asked} asked for, {format_bytes(allocated)} allocated"
        )


def _is_whole(value: object) -> TypeGuard[int]:
    """`True` is no whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def _read_time(value: object) -> float:
    if (_is_whole(value) or isinstance(value, float)) and abs(value) < MOST_SECONDS * 1e6:
        return value / 1e6
    raise RecordError("time", f"ts is {ascii(value)[:24]}, expected microseconds")


def _read_size(fields: dict[str, object], key: str) -> int | None:
    size = fields.get(key)
    if size is None:
        return None
    if not _is_whole(size) or not 0 <= size < MOST_BYTES:
        raise RecordError("bytes", f"{key} is {ascii(size)[:24]}, expected bytes of a device")
    return size


def _find_events(file: PackedFile, head: TraceHead) -> Iterator[tuple[int, dict[str, object] | None]]:
    """Yield position and event of each name found; the head sees all bytes."""
    kept = b""
    from_at = 0
    offset = 0
    for data in file.chunks():
        head.observe(data)
        text = kept + data
        # A name near the end waits for what follows it.
        until = len(text) - _LONGEST_EVENT
        yield from _parse_events(text, from_at, until, offset)
        cut = max(0, max(until, from_at) - _LONGEST_EVENT)
        kept = text[cut:]
        from_at = max(until, from_at) - cut
        offset = offset + cut
    yield from _parse_events(kept, from_at, len(kept), offset)


def _parse_events(
    text: bytes, begin: int, end: int, offset: int
) -> Iterator[tuple[int, dict[str, object] | None]]:
    ended_at = 0
    for match in _NAME.finditer(text, begin):
        if match.start() >= end:
            return
        if match.start() < ended_at:
            continue  # within the event before
        event, ended_at = _parse_around(text, match.start())
        yield offset + match.start(), event


def _parse_around(text: bytes, at: int) -> tuple[dict[str, object] | None, int]:
    """Return the event whose name is at a position, and where it ends; None if no event is around it."""
    first = max(0, at - _LONGEST_EVENT)
    begin = at
    for _ in range(_MOST_BRACES):
        begin = text.rfind(b"{", first, begin)
        if begin < 0:
            break
        with suppress(ValueError, RecursionError):
            # A character a byte, so that the end is one of bytes; texts do not matter here.
            event, length = _DECODER.raw_decode(text[begin : at + _LONGEST_EVENT].decode("latin-1"))
            if begin + length > at and event.get("name") in _NAMES:
                return cast("dict[str, object]", event), begin + length
    return None, at


# A timeline is `[times, sizes]`: microseconds, and for each of them nine numbers of bytes: always 0, then the
# categories. The raw file is a list of `[time, action, bytes, category]`: nanoseconds and changes. Categories
# count from 1 in the former and from 0 in the latter (`torch/profiler/_memory_profiler.py`). Their sum is
# what the profiler knew to be allocated.

# A longer list of numbers is refused: it would be read into memory whole.
MOST_LIST_BYTES = 128 * MIB
# As many as fit into that many bytes.
MOST_NUMBERS = 1 << 23
_BLANK = b" \t\r\n"
_MOST_OPENED = 2
_SIZES_DECODER = msgspec.json.Decoder(list[Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]])


class InnerList(NamedTuple):
    """A list of numbers without lists in it."""

    # Brackets that open right before its numbers, its own included.
    opened: int
    numbers: list[int]


def read_inner_lists(file: PackedFile, path: Path, expectation: str) -> Iterator[InnerList]:
    """Yield the lists of whole numbers of a file to its end; what is cut off at the end is left out."""
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
            yield InnerList(opened, _SIZES_DECODER.decode(b"[" + numbers + b"]"))
        except msgspec.DecodeError as error:
            raise _refuse(path, at, piece, expectation) from error


def _split(file: PackedFile, path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield what comes before each closing bracket, and its position in bytes."""
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
        f"{show_path(path)}: byte {at:,}: {shown} is not a list of whole numbers; {expectation}"
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
_TIMELINE_EXPECTATION = (
    "expected [times, sizes] or a list of [time, action, bytes, category] of export_memory_timeline"
)
_ROW_LENGTH = len(CATEGORIES) + 1
_RAW_LENGTH = 4
_PREEXISTING = 1
_ACTIONS = range(1, 5)
_NOT_TOLD = "the file does not name its device; it is read as device 0"


class MemoryTimeline(SeriesReader):
    """Reads the records of one timeline, once; arguments as for `ProfilerTrace`."""

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
            "allocated is the sum of torch.profiler's categories; what it did not see is missing",
            *((f"at its peak of {format_bytes(peak)}: {told}",) if told else ()),
            _NOT_TOLD,
            *describe_folding([self._ticks]),
            *((CUT_NOTE,) if self._file.is_cut else ()),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        return f"{show_path(self._path)}: no levels; {self._left_out.first or _TIMELINE_EXPECTATION}"

    def records(self) -> Iterator[SeriesRecord]:
        lists = read_inner_lists(self._file, self._path, _TIMELINE_EXPECTATION)
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
                    raise RecordError("count", f"sizes for more than the {len(times_us):,} times given")
                sizes = row.numbers
                if len(sizes) != _ROW_LENGTH or min(sizes) < 0:
                    raise RecordError("row", f"{_quote(sizes)}, expected {_ROW_LENGTH} sizes in bytes")
                self._add(times_us[count - 1] / 1e6, sizes[1:])
            except RecordError as error:
                self._left_out.add(error.kind, f"$[1][{count - 1}]", str(error))
        if count < len(times_us):
            missing = f"{len(times_us) - count:,} times have no sizes"
            self._left_out.add("count", f"$[1][{count}]", f"{missing}; the file is cut short")

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
            raise RecordError("time", f"{time_s:g} s, expected a time since 1970")
        if not 0 <= total < MOST_BYTES:
            raise RecordError("bytes", f"{total:,} bytes in all, expected memory of a device")
        if total > self._peak[0]:
            self._peak = total, tuple(parts)
        self._ticks.add(time_s, total, None)


def _read_change(row: Sequence[int]) -> tuple[int | None, int, int]:
    """Return time in nanoseconds (None: before the first), category and change in bytes of a row."""
    if len(row) != _RAW_LENGTH or row[1] not in _ACTIONS or not 0 <= row[3] < len(CATEGORIES):
        raise RecordError("row", f"{_quote(row)}, expected [time, action, bytes, category]")
    time_ns, action, change, category = row
    return (None if action == _PREEXISTING or time_ns < 0 else time_ns), category, change


def _quote(row: Sequence[int]) -> str:
    return ascii(list(row[:10]))[:80]
