"""Reader of traces of the PyTorch profiler (Kineto, the Chrome trace format): memory after each allocation.

Of the file only the instant events `[memory]` and `[OutOfMemory]` matter, which `profile_memory=True` adds.
They are looked for by their name, so that a trace of gigabytes, of which they are a few percent, is neither
parsed whole nor held. Their order does not matter; totals are those after the event.
"""

import heapq
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from operator import attrgetter
from pathlib import Path
from typing import TypeGuard, cast

import msgspec

from ..errors import InputFileError
from ..model import RankCoordinates
from ..units import format_bytes
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
from .framework.oom_text import OomNotes
from .snapshot_series import MOST_DEVICES_OF_PROCESS, LevelTicks

_HEAD_BYTES = 1 << 20
# What follows the digits must be seen too: a chunk may end within them.
_START = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\s*[,}]')
_START_BYTES = 64
"""The longest text that the pattern above should meet, and which may be split between two chunks."""
_DEVICE = re.compile(
    rb'"id"\s*:\s*(\d{1,6})\s*,\s*"name"\s*:\s*"([^"\\\x00-\x1f\x7f]{0,128})"\s*,\s*"totalGlobalMem"\s*:\s*(\d{1,15})\b'
)
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*(\{[^{}]{0,4096})')
_RANK = re.compile(rb'"rank"\s*:\s*(\d{1,9})\b')
_WORLD = re.compile(rb'"world_size"\s*:\s*(\d{1,9})\b')


class TraceHead:
    """Gathers what stands around the events while the bytes of a file pass by."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._start_s = 0.0
        self._has_start = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the clock."""
        return () if self._has_start else ("times are as its events tell them; no base is named",)

    def observe(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        if len(self._head) < _HEAD_BYTES:
            self._head += data[: _HEAD_BYTES - len(self._head)]
        if not self._has_start:
            match = _START.search(self._tail + data)
            self._tail = data[-_START_BYTES:]
            if match is not None and int(match[1]) < MOST_SECONDS * 1e9 / 2:
                self._start_s = int(match[1]) / 1e9
                self._has_start = True

    def records(self, device: SeriesDevice, ticks: LevelTicks) -> Iterator[SeriesRecord]:
        """Yield the records of a device, complete with what the head tells of it."""
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
_LONGEST_EVENT = 1 << 13
"""Bytes before and after the name in which its event must begin and end."""
_MOST_BRACES = 4
_MOST_STRAYS = 1000
_PROCESSOR = 0
"""`Device Type` of the host (`c10::DeviceType::CPU`)."""
_NONE_FOUND = "no [memory] event in it; expected a trace of torch.profiler with profile_memory=True"
_DECODER = json.JSONDecoder()


class ProfilerTrace(SeriesReader):
    """Reads the records of one trace, once.

    Args:
        path: The file, plain or gzip.
        interval_s: Length of a tick; None for one that suits its length.
        on_read: Called with the share that was read; what it raises ends the reading.
    """

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
            *((f"events of memory of the host were left out: {count:,}",) if count else ()),
            *self._ooms.notes,
            *self._head.notes,
            *((CUT_NOTE,) if self._file.is_cut else ()),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        why = self._left_out.first or _NONE_FOUND
        if self._of_processor and not self._left_out.count:
            why = f"all {self._of_processor:,} events of memory are of the host; expected some of a GPU"
        return f"{show_path(self._path)}: {why}"

    def records(self) -> Iterator[SeriesRecord]:
        with closing(self):
            for place, event in _find_events(self._file, self._head):
                self._left_out.seen += 1
                if event is None:
                    self._count_stray()
                try:
                    self._take(event)
                except RecordError as error:
                    self._left_out.add(error.kind, f"byte {place:,}", str(error))
        series = [self._head.records(device, ticks) for device, ticks in self._levels.values()]
        yield from heapq.merge(*series, key=attrgetter("time_s"))

    def _count_stray(self) -> None:
        """Count a name without an event around it: each costs as much as hundreds of events."""
        self._strays += 1
        if self._strays > _MOST_STRAYS and self._strays * 4 > self._left_out.seen:
            raise InputFileError(
                f"{show_path(self._path)}: more than {_MOST_STRAYS:,} names [memory] stand in no event; "
                "the file is damaged"
            )

    def _take(self, event: dict[str, object] | None) -> None:
        if event is None:
            raise RecordError("event", "no event is around this name")
        fields = event.get("args")
        if not isinstance(fields, dict):
            raise RecordError("args", "args is missing, expected an object of figures")
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
        asked = "a size that is not told was"
        if _is_whole(size) and abs(size) < MOST_BYTES:
            asked = f"{format_bytes(abs(size))} were"
        self._ooms.add(
            f"device {number} ran out of memory: {asked} asked for, {format_bytes(allocated)} allocated"
        )


def _is_whole(value: object) -> TypeGuard[int]:
    """Tell a whole number from everything else, `true` included."""
    return isinstance(value, int) and not isinstance(value, bool)


def _read_time(value: object) -> float:
    """Return microseconds as seconds."""
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
    """Yield place in bytes and event of each name that is looked for; tell the head all that is read."""
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
    """Return the event that has its name at a place, and where it ends; None where none is around it."""
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
