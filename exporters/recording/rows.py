"""The readings of a recording as rows, one device at one time, each once; as CSV, Parquet and JSON."""

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import BinaryIO, NamedTuple, TextIO

from ...engine.errors import InputFileError
from ...engine.extras import require_package
from ...engine.files.series.open import COLUMNS
from ...engine.model import (
    AllocatorReading,
    Assessment,
    DeviceSample,
    Finding,
    MemoryReading,
    NodeStatus,
    Sample,
    order_findings,
)
from ...engine.recording import Recording, Told
from ...engine.text import make_csv_cell, make_printable
from ..status.document import describe_sample

PLACES = 6
"""Decimals of a time: microseconds, which a time since the epoch can still hold."""
_NAMED = "name-"
_NUMBERED = "index-"
"""How readers of series begin the made-up UUID of a device that their input names or numbers."""
_NO_ALLOCATOR = AllocatorReading()
_NO_MEMORY = MemoryReading()

Cell = float | int | str | None
Values = tuple[Cell, ...]


class DeviceRow(NamedTuple):
    """One reading of one device. None is unmeasured."""

    time_s: float
    """When its memory was read, in seconds of the recording's clock."""
    node: str
    device: str
    """What a series calls it: its number or name where the recording was made of one, else its UUID."""
    uuid: str
    label: str
    """What people call it."""
    step: int | None
    memory: MemoryReading
    allocator: AllocatorReading
    utilization_percent: float | None
    temperature_c: float | None
    power_w: float | None

    @property
    def allocated_max_bytes(self) -> int | None:
        """Most that was allocated within the tick; the reading itself where only the moment is known."""
        most = self.allocator.allocated_max_bytes
        return self.allocator.allocated_bytes if most is None else most

    @property
    def used_max_bytes(self) -> int | None:
        """Most that was used within the tick; the reading itself where only the moment is known."""
        return self.memory.used_bytes if self.memory.used_max_bytes is None else self.memory.used_max_bytes


class DeviceRowReader:
    """Makes rows of samples.

    A reading that a sample repeats (a device that did not answer meanwhile) is one row. A sample keeps the
    last values of a device that is not `ok`; a row says that nothing was measured.

    Args:
        has_nodes: Whether to put the name of its node before each device, as several nodes need.
    """

    def __init__(self, *, has_nodes: bool) -> None:
        self._has_nodes = has_nodes
        self._newest_s: dict[tuple[str, str], float] = {}
        self._cells: dict[tuple[str, str], str] = {}
        self.late = 0
        """Readings that were left out because they are older than the one before: a clock was set back."""

    def rows(self, samples: Iterable[Sample]) -> Iterator[DeviceRow]:
        """Yield the rows of samples, those of one sample in order of time."""
        for sample in samples:
            found = [row for device in sample.devices if (row := self._read(sample, device)) is not None]
            found.sort(key=lambda row: (row.time_s, row.device))
            yield from found

    def _read(self, sample: Sample, device: DeviceSample) -> DeviceRow | None:
        key = sample.node, device.uuid
        is_measured = device.state == "ok"
        time_s = _find_time(sample.time_s, device.age_s if is_measured else None)
        newest_s = self._newest_s.get(key, -math.inf)
        if time_s <= newest_s:
            self.late += time_s < newest_s
            return None
        self._newest_s[key] = time_s
        if key not in self._cells:
            self._cells[key] = _name_device(sample.node if self._has_nodes else "", device)
        return DeviceRow(
            time_s,
            sample.node,
            self._cells[key],
            device.uuid,
            device.label,
            _find_step(sample, device),
            device.memory if is_measured else _NO_MEMORY,
            (device.allocator or _NO_ALLOCATOR) if is_measured else _NO_ALLOCATOR,
            *_read_details(device),
        )


def _read_details(device: DeviceSample) -> tuple[float | None, float | None, float | None]:
    """Return utilisation, temperature and power; nothing where they are of some earlier time."""
    if device.details_age_s is not None:
        return None, None, None
    return device.utilization_percent, device.temperature_c, device.power_w


def _find_time(time_s: float, age_s: float | None) -> float:
    read_s = time_s if age_s is None else time_s - age_s
    return round(read_s if math.isfinite(read_s) else time_s, PLACES) + 0.0


def _find_step(sample: Sample, device: DeviceSample) -> int | None:
    """Return the step in progress, else the newest that a training process on the device has ended."""
    if device.step is not None:
        return device.step
    ended = (rank.step.index for rank in sample.ranks if rank.device_uuid == device.uuid and rank.step)
    return max(ended, default=None)


def _name_device(node: str, device: DeviceSample) -> str:
    name = device.uuid
    for prefix in (_NAMED, _NUMBERED):
        name = name.removeprefix(prefix) if name.startswith(prefix) else name
    text = f"{node}/{name}" if node else name
    return make_printable(text).strip() or device.label


# A recording as a series CSV, which every `--input` and `vramscope import` read again.


def write_csv(rows: Iterable[DeviceRow], stream: TextIO) -> None:
    """Write rows, about in order of time, under the header of a series; an empty cell is unmeasured."""
    write_csv_table(COLUMNS, map(_to_cells, rows), stream)


def _to_cells(row: DeviceRow) -> Values:
    memory = row.memory
    allocator = row.allocator
    return (
        row.time_s,
        row.device,
        allocator.allocated_bytes,
        allocator.reserved_bytes,
        memory.used_bytes,
        # No device has a capacity of nothing: such a figure was never measured.
        memory.total_bytes or None,
        row.step,
        row.allocated_max_bytes,
        row.used_max_bytes,
    )


# A recording as Parquet, by pyarrow, which is an extra of ours: `pip install 'vramscope[parquet]'`.

ROWS_AT_ONCE = 1 << 16
"""Rows of a row group, which are held in memory."""
PARQUET_COLUMNS = (
    ("time_s", "double"),
    ("device", "string"),
    ("allocated_bytes", "int64"),
    ("reserved_bytes", "int64"),
    ("used_bytes", "int64"),
    ("total_bytes", "int64"),
    ("step", "int64"),
    ("used_min_bytes", "int64"),
    ("used_max_bytes", "int64"),
    ("allocated_max_bytes", "int64"),
    ("utilization_percent", "double"),
    ("temperature_c", "double"),
    ("power_w", "double"),
    ("node", "string"),
    ("uuid", "string"),
    ("label", "string"),
)
"""Name and type of each column: those of a series first."""


def write_parquet(rows: Iterable[DeviceRow], stream: BinaryIO) -> None:
    """Write rows as one table, in their order; null is unmeasured. See `write_table`."""
    write_table(PARQUET_COLUMNS, map(_to_values, rows), stream)


def write_csv_table(names: Iterable[str], rows: Iterable[Values], stream: TextIO) -> None:
    """Write rows under a header, as spreadsheets read them safely; an empty cell is unmeasured."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        writer.writerow([make_csv_cell(cell) if isinstance(cell, str) else cell for cell in row])


def write_table(columns: Sequence[tuple[str, str]], rows: Iterable[Values], stream: BinaryIO) -> None:
    """Write rows as one table of Parquet.

    Args:
        columns: Name and type of each.
        rows: Values in the order of the columns.
        stream: Where to; need not be seekable.

    Raises:
        PackageMissingError: pyarrow is not installed.
        InputFileError: A value cannot be one of memory.
    """
    require_package("pyarrow")
    import pyarrow as arrow
    from pyarrow import parquet

    types = [arrow.type_for_alias(kind) for _, kind in columns]
    schema = arrow.schema([(name, kind) for (name, _), kind in zip(columns, types, strict=True)])
    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        for part in _split(rows):
            try:
                arrays = [
                    arrow.array(it, kind) for it, kind in zip(zip(*part, strict=True), types, strict=True)
                ]
            except OverflowError as error:
                raise InputFileError(
                    "the recording has a number that does not fit into 64 bits; expected memory of a device"
                ) from error
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _split(rows: Iterable[Values]) -> Iterator[list[Values]]:
    remaining = iter(rows)
    while part := list(islice(remaining, ROWS_AT_ONCE)):
        yield part


def _to_values(row: DeviceRow) -> Values:
    memory = row.memory
    allocator = row.allocator
    return (
        *(row.time_s, row.device),
        *(allocator.allocated_bytes, allocator.reserved_bytes, memory.used_bytes, memory.total_bytes or None),
        *(row.step, memory.used_min_bytes, row.used_max_bytes, row.allocated_max_bytes),
        *(row.utilization_percent, row.temperature_c, row.power_w),
        *(row.node, row.uuid, row.label),
    )


# A recording as JSON lines, as `vramscope --json` printed them when it was measured.


def read_statuses(recording: Recording, samples: Iterable[Sample]) -> Iterator[NodeStatus]:
    """Yield the status object of each sample, with the findings that stood then."""
    state = _Following(recording.told() if len(recording.nodes) == 1 else iter(()))
    for sample in samples:
        findings, assessments = state.at(sample.time_s)
        yield describe_sample(sample, findings, assessments=assessments)


class _Following:
    """The state at a time, from the updates until then."""

    def __init__(self, updates: Iterator[Told]) -> None:
        self._updates = updates
        self._next = next(updates, None)
        self._findings: dict[str, Finding] = {}
        self._assessments: tuple[Assessment, ...] = ()

    def at(self, time_s: float) -> tuple[tuple[Finding, ...], tuple[Assessment, ...]]:
        """Return the open findings and those that have just closed, and the assessments."""
        self._findings = {key: it for key, it in self._findings.items() if it.is_open}
        while self._next is not None and self._next.time_s <= time_s:
            self._findings.update((finding.id, finding) for finding in self._next.findings)
            if self._next.assessments is not None:
                self._assessments = self._next.assessments
            self._next = next(self._updates, None)
        return order_findings(self._findings.values()), self._assessments
