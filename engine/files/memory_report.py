"""Reports of Tiny-Torch and snapshots that its profiler or ours exports."""

import heapq
from collections.abc import Iterator
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import msgspec

from ..errors import InputFileError
from ..units import GIB, MIB
from .base.input_file import lower_first, read_input_file, show_path
from .base.packed_file import read_packed_file
from .base.series_reader import (
    MOST_BYTES,
    MOST_SECONDS,
    RecordError,
    SeriesDevice,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
    show_cell,
)

# Only what was read from a device counts: the current use, and its peak if there is one. In Tiny-Torch
# "allocated" is device used, from nvidia-smi, and fragmentation is a heuristic or drawn at random, so it is
# not read. Ours says in `memory_source` if the value is the allocator's.

SIZE_LIMIT_BYTES = 64 * MIB
_EXPECTATION = 'expected a report, {"timestamp": "2025-06-23T10:30:00", "devices": {"0": {...}}}'
_RANDOM = "has only fragmentation values, which Tiny-Torch draws at random, and no bytes in use"
_Bytes = Annotated[float, msgspec.Meta(ge=0, lt=MOST_BYTES)]
_Mebibytes = Annotated[float, msgspec.Meta(ge=0, lt=MOST_BYTES / MIB)]
_Gibibytes = Annotated[float, msgspec.Meta(ge=0, lt=MOST_BYTES / GIB)]


class _Memory(msgspec.Struct):
    allocated: _Bytes | None = None
    used: _Bytes | None = None
    reserved: _Bytes | None = None
    free: _Bytes | None = None
    total: _Bytes | None = None


class _Trends(msgspec.Struct):
    current_memory: _Bytes | None = None
    max_memory: _Bytes | None = None


class _Growth(msgspec.Struct):
    end_mb: _Mebibytes | None = None


class _Device(msgspec.Struct):
    device_uuid: str | None = None
    memory_source: str | None = None
    current_memory: _Memory | None = None
    # The newer dialect's name of `current_memory`.
    current_usage: _Memory | None = None
    peak_memory: _Bytes | None = None
    memory_trends: _Trends | None = None
    gpu_memory: _Growth | None = None
    current_metrics: msgspec.Raw = msgspec.Raw()
    total_gb: _Gibibytes | None = None
    used_gb: _Gibibytes | None = None
    free_gb: _Gibibytes | None = None


class _Details(msgspec.Struct):
    devices: dict[str, msgspec.Raw] = {}


class _Report(msgspec.Struct):
    timestamp: str | float
    devices: dict[str, msgspec.Raw] | None = None
    node_details: _Details | None = None


_DEVICE_DECODER = msgspec.json.Decoder(_Device)


class MemoryReport(SeriesReader):
    format: SeriesFormat = "memory report"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self._report = msgspec.json.decode(read_packed_file(path, SIZE_LIMIT_BYTES), type=_Report)
            self._time_s = _read_time(self._report.timestamp)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError, OverflowError) as error:
            raise InputFileError(f"{show_path(path)}: {lower_first(str(error))}; {_EXPECTATION}") from error
        self._records = list(self._read())

    @property
    def has_allocator(self) -> bool:
        return any(record.allocated_bytes is not None for record in self._records)

    @property
    def notes(self) -> tuple[str, ...]:
        meaning = "one sample a report, at its end; a peak is the highest of the whole time watched"
        source = "allocated is device used in this format; fragmentation is left out"
        return (meaning, *(() if self.has_allocator else (source,)), *self._left_out.notes())

    def explain_absence(self) -> str:
        return f"{show_path(self._path)}: no reading of a device; {self._left_out.first or _EXPECTATION}"

    def records(self) -> Iterator[SeriesRecord]:
        yield from self._records

    def _read(self) -> Iterator[SeriesRecord]:
        details = self._report.node_details
        devices = self._report.devices
        place = "$.devices" if details is None or devices else "$.node_details.devices"
        listed = devices or ({} if details is None else details.devices)
        for number, (label, raw) in enumerate(listed.items(), 1):
            try:
                yield self._convert(number, label, _DEVICE_DECODER.decode(raw))
            except RecordError as error:
                self._left_out.add(error.kind, f"{place}[{show_cell(label)}]", str(error))
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                self._left_out.add("device", f"{place}[{show_cell(label)}]", lower_first(str(error)))

    def _convert(self, number: int, label: str, told: _Device) -> SeriesRecord:
        memory = told.current_memory or told.current_usage or _Memory()
        trends = told.memory_trends or _Trends()
        taken = memory.allocated if trends.current_memory is None else trends.current_memory
        if told.gpu_memory is not None and told.gpu_memory.end_mb is not None:
            taken = told.gpu_memory.end_mb * MIB
        if told.used_gb is not None:
            taken = told.used_gb * GIB
        peak = told.peak_memory if trends.max_memory is None else trends.max_memory
        if taken is None and peak is None:
            raise RecordError("reading", _RANDOM if bytes(told.current_metrics) else "no bytes in use")
        is_allocator = told.memory_source == "allocator"
        total = memory.total if told.total_gb is None else told.total_gb * GIB
        free = memory.free if told.free_gb is None else told.free_gb * GIB
        device = self._devices.identify(told.device_uuid, None, label, None) if told.device_uuid else None
        return SeriesRecord(
            number,
            self._time_s,
            device or self._devices.find(label),
            allocated_bytes=_whole(taken) if is_allocator else None,
            allocated_max_bytes=_whole(peak) if is_allocator else None,
            reserved_bytes=_whole(memory.reserved) if is_allocator else None,
            used_bytes=_whole(memory.used if is_allocator else taken),
            used_max_bytes=None if is_allocator else _whole(peak),
            total_bytes=_whole(total) or None,
            free_bytes=_whole(free),
        )


def _read_time(timestamp: str | float) -> float:
    """Return seconds since the epoch of a date without a zone, read as local time, or of a number."""
    is_number = isinstance(timestamp, int | float)
    time_s = float(timestamp) if is_number else datetime.fromisoformat(str(timestamp)[:64]).timestamp()
    if not -MOST_SECONDS < time_s < MOST_SECONDS:
        raise ValueError(f"timestamp is {time_s:g}, expected seconds since 1970")
    return time_s


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


# A JSON object with `metadata` and `snapshots`, the latter a list of readings by device. What Tiny-Torch
# calls allocated is device used, from nvidia-smi; its fragmentation is a heuristic and is left out. Ours says
# in `metadata.memory_source` if `allocated` is the allocator's, and then has `used` and `reserved` too.

EXPORT_LIMIT_BYTES = 512 * MIB
_EXPORT_EXPECTATION = (
    'expected {"metadata": {...}, "snapshots": {"0": [{"timestamp": ..., "allocated": ...}]}}'
)
_ExportBytes = Annotated[float, msgspec.Meta(ge=0, lt=MOST_BYTES)]
_Seconds = Annotated[float, msgspec.Meta(gt=-MOST_SECONDS, lt=MOST_SECONDS)]


class _Reading(msgspec.Struct, gc=False):
    timestamp: _Seconds
    allocated: _ExportBytes | None = None
    free: _ExportBytes | None = None
    total: _ExportBytes | None = None
    used: _ExportBytes | None = None
    reserved: _ExportBytes | None = None


class _Metadata(msgspec.Struct):
    memory_source: dict[str, str] = {}


class _Export(msgspec.Struct):
    snapshots: dict[str, list[msgspec.Raw]]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_READING_DECODER = msgspec.json.Decoder(_Reading)


class SnapshotExport(SeriesReader):
    format: SeriesFormat = "snapshot export"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._given = 0
        self._taken = 0
        try:
            export = msgspec.json.decode(read_input_file(path, EXPORT_LIMIT_BYTES), type=_Export)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise InputFileError(
                f"{show_path(path)}: {lower_first(str(error))}; {_EXPORT_EXPECTATION}"
            ) from error
        self._series = export.snapshots
        sources = export.metadata.memory_source
        self._has_own_allocated = {label for label, source in sources.items() if source == "allocator"}
        self._given = self._left_out.seen = sum(map(len, self._series.values()))

    @property
    def read_share(self) -> float:
        """Readings yielded so far, from 0 to 1."""
        return self._taken / self._given if self._given else 1.0

    @property
    def has_allocator(self) -> bool:
        return bool(self._has_own_allocated)

    @property
    def notes(self) -> tuple[str, ...]:
        meaning = (
            ()
            if self._has_own_allocated
            else ("allocated is device used in this format; fragmentation was not measured and is left out",)
        )
        return (
            *meaning,
            *self._devices.describe_names(),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        first = self._left_out.first or _EXPORT_EXPECTATION
        return f"{show_path(self._path)}: no usable reading; {first}"

    def records(self) -> Iterator[SeriesRecord]:
        series = [self._read(label, readings) for label, readings in self._series.items()]
        return heapq.merge(*series, key=attrgetter("time_s"))

    def _read(self, label: str, readings: list[msgspec.Raw]) -> Iterator[SeriesRecord]:
        try:
            device = self._devices.find(label)
        except RecordError as error:
            self._left_out.add(error.kind, f"$.snapshots[{show_cell(label)}]", str(error))
            return
        for number, raw in enumerate(readings, 1):
            self._taken += 1
            try:
                reading = _READING_DECODER.decode(raw)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                place = f"$.snapshots[{show_cell(label)}][{number - 1}]"
                self._left_out.add("reading", place, lower_first(str(error)))
                continue
            yield _convert(number, device, reading, has_allocator=label in self._has_own_allocated)


def _convert(number: int, device: SeriesDevice, reading: _Reading, *, has_allocator: bool) -> SeriesRecord:
    return SeriesRecord(
        line=number,
        time_s=reading.timestamp,
        device=device,
        allocated_bytes=_whole(reading.allocated) if has_allocator else None,
        reserved_bytes=_whole(reading.reserved) if has_allocator else None,
        used_bytes=_whole(reading.used if has_allocator else reading.allocated),
        total_bytes=_whole(reading.total) or None,
        free_bytes=_whole(reading.free),
    )
