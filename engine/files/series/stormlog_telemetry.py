"""Reader of the telemetry of stormlog (schema version 2): JSON lines, or one list of objects."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ...errors import InputFileError
from ...model import RankCoordinates
from ...units import MIB
from ..base.input_file import lower_first, show_path
from ..base.packed_file import CUT_NOTE, LineFile, read_packed_file
from ..base.series_reader import (
    MOST_BYTES,
    MOST_SECONDS,
    RecordError,
    SeriesDevice,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
    show_cell,
)
from .open import CUT_OFF

# A longer list is refused; lines may be of any number.
LIST_LIMIT_BYTES = 512 * MIB
_LONGEST_LINE = 1 << 20
_EXPECTATION = 'expected objects with "schema_version": 2, timestamp_ns, device_id and sizes in bytes'
_HEAD_CHARACTERS = 1 << 14
# `device_id` of a process without a GPU.
_HOST = -1
_Bytes = Annotated[int, msgspec.Meta(ge=0, lt=MOST_BYTES)]
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_MARK = re.compile(r'"schema_version"\s*:\s*2\b')


class _Event(msgspec.Struct, gc=False):
    schema_version: Literal[2]
    timestamp_ns: Annotated[int, msgspec.Meta(ge=0, lt=int(MOST_SECONDS) * 10**9 // 2)]
    device_id: Annotated[int, msgspec.Meta(ge=_HOST, lt=2**31)]
    event_type: str = ""
    host: str = ""
    job_id: str | None = None
    rank: _Count | None = None
    local_rank: _Count | None = None
    world_size: _Count | None = None
    allocator_allocated_bytes: _Bytes | None = None
    allocator_reserved_bytes: _Bytes | None = None
    allocator_active_bytes: _Bytes | None = None
    device_used_bytes: _Bytes | None = None
    device_free_bytes: _Bytes | None = None
    device_total_bytes: _Bytes | None = None


_DECODER = msgspec.json.Decoder(_Event)
_LIST_DECODER = msgspec.json.Decoder(list[msgspec.Raw])


def is_stormlog_telemetry(text: str) -> bool:
    """Return whether a text begins with an event, alone or the first of a list."""
    first = text[:_HEAD_CHARACTERS]
    return "timestamp_ns" in first and _MARK.search(first) is not None


class StormlogTelemetry(SeriesReader):
    format: SeriesFormat = "stormlog telemetry"

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path, longest_line=_LONGEST_LINE)
        super().__init__(path, self._lines)
        self._is_list = self._lines.head.lstrip()[:1] == b"["
        self._of_host = 0
        self._jobs: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        jobs = ", ".join(map(show_cell, list(self._jobs)[:4]))
        return (
            *((f"jobs in it: {jobs}",) if jobs else ()),
            *(
                (f"events of processes without a GPU were left out: {self._of_host:,}",)
                if self._of_host
                else ()
            ),
            *((CUT_NOTE,) if self._lines.is_cut else ()),
            *self._devices.describe_names(),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        host = "all events are of processes without a GPU" if self._of_host else _EXPECTATION
        return f"{show_path(self._path)}: no usable event; {self._left_out.first or host}"

    def records(self) -> Iterator[SeriesRecord]:
        for number, place, data in self._read_list() if self._is_list else self._read_lines():
            try:
                event = _DECODER.decode(data)
                record = self._convert(number, event)
            except RecordError as error:
                self._left_out.add(error.kind, place, str(error))
            except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
                self._left_out.add("event", place, f"{lower_first(str(error))}; {_EXPECTATION}")
            else:
                if record is not None:
                    yield record

    def _read_lines(self) -> Iterator[tuple[int, str, str]]:
        for first, lines in self._lines.blocks():
            self._left_out.seen = first + len(lines)
            for number, line in enumerate(lines, first):
                if line.strip():
                    yield number, f"line {number}", line
        if self._lines.unfinished is not None:
            number = self._lines.unfinished_number
            line = self._lines.unfinished
            if line.rstrip().endswith("}"):
                yield number, f"line {number}", line
            else:
                self._left_out.add("cut", f"line {number}", CUT_OFF)

    def _read_list(self) -> Iterator[tuple[int, str, msgspec.Raw]]:
        self._lines.close()
        try:
            events = _LIST_DECODER.decode(read_packed_file(self._path, LIST_LIMIT_BYTES))
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise InputFileError(
                f"{show_path(self._path)}: {lower_first(str(error))}; {_EXPECTATION}"
            ) from error
        self._left_out.seen = len(events)
        return ((number, f"$[{number - 1}]", raw) for number, raw in enumerate(events, 1))

    def _convert(self, number: int, event: _Event) -> SeriesRecord | None:
        if event.device_id == _HOST:
            self._of_host += 1
            return None
        if event.job_id is not None and len(self._jobs) < 4:
            self._jobs[event.job_id] = None
        device = self._find_device(event)
        return SeriesRecord(
            number,
            event.timestamp_ns / 1e9,
            device,
            event.allocator_allocated_bytes,
            event.allocator_reserved_bytes,
            event.device_used_bytes,
            event.device_total_bytes or None,
            free_bytes=event.device_free_bytes,
            active_bytes=event.allocator_active_bytes,
            rank=_find_rank(event),
        )

    def _find_device(self, event: _Event) -> SeriesDevice:
        """Return the device of a rank by its rank, else by its number, with the name of a second host."""
        if event.rank is not None and event.world_size is not None and event.world_size > 1:
            return self._devices.identify(None, event.rank, f"rank {event.rank}", None)
        return self._devices.identify_on(event.host, None, event.device_id, None)


def _find_rank(event: _Event) -> RankCoordinates | None:
    if event.rank is None:
        return None
    return RankCoordinates(event.rank, event.world_size, local_rank=event.local_rank, source="trace")
