"""Reader of the snapshots that Tiny-Torch's profiler and ours export (`export_snapshots`): memory over time.

A JSON object with `metadata` and `snapshots`, the latter a list of readings by device. What Tiny-Torch calls
allocated is device used, as nvidia-smi told it; its fragmentation is a heuristic and is left out. Ours says
in `metadata.memory_source` where `allocated` is the allocator's, with `used` and `reserved` beside it.
"""

import heapq
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Annotated

import msgspec

from ...errors import InputFileError
from ...units import MIB
from ..base.input_file import lower_first, read_input_file, show_path
from ..base.series_record import (
    MOST_BYTES,
    MOST_SECONDS,
    RecordError,
    SeriesDevice,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
    show_cell,
)

SIZE_LIMIT_BYTES = 512 * MIB
"""A larger file is refused before it is read."""
_EXPECTATION = 'expected {"metadata": {...}, "snapshots": {"0": [{"timestamp": ..., "allocated": ...}]}}'
_Bytes = Annotated[float, msgspec.Meta(ge=0, lt=MOST_BYTES)]
_Seconds = Annotated[float, msgspec.Meta(gt=-MOST_SECONDS, lt=MOST_SECONDS)]


class _Reading(msgspec.Struct, gc=False):
    timestamp: _Seconds
    allocated: _Bytes | None = None
    free: _Bytes | None = None
    total: _Bytes | None = None
    used: _Bytes | None = None
    reserved: _Bytes | None = None


class _Metadata(msgspec.Struct):
    memory_source: dict[str, str] = {}


class _Export(msgspec.Struct):
    snapshots: dict[str, list[msgspec.Raw]]
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_READING_DECODER = msgspec.json.Decoder(_Reading)


class SnapshotExport(SeriesReader):
    """Reads the records of one export, once."""

    format: SeriesFormat = "snapshot export"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._given = 0
        self._taken = 0
        try:
            export = msgspec.json.decode(read_input_file(path, SIZE_LIMIT_BYTES), type=_Export)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise InputFileError(f"{show_path(path)}: {lower_first(str(error))}; {_EXPECTATION}") from error
        self._series = export.snapshots
        sources = export.metadata.memory_source
        self._told_by_allocator = {label for label, source in sources.items() if source == "allocator"}
        self._given = self._left_out.seen = sum(map(len, self._series.values()))

    @property
    def read_share(self) -> float:
        """Share of the readings that were taken so far, from 0 to 1."""
        return self._taken / self._given if self._given else 1.0

    @property
    def has_allocator(self) -> bool:
        """Whether any device has figures of its allocator."""
        return bool(self._told_by_allocator)

    @property
    def notes(self) -> tuple[str, ...]:
        meaning = (
            ()
            if self._told_by_allocator
            else (
                "allocated is device used in this format; its fragmentation was not measured and is left out",
            )
        )
        return (
            *meaning,
            *self._devices.describe_names(),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        first = self._left_out.first or _EXPECTATION
        return f"{show_path(self._path)}: no reading in it can be used; {first}"

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
            yield _convert(number, device, reading, has_allocator=label in self._told_by_allocator)


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


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
