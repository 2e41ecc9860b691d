"""The readings of a recording as rows: one device at one time, each reading once."""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Literal, NamedTuple, TextIO

from ...engine.errors import InputFileError, UsageError
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
from ...engine.text import make_csv_cell, make_printable, make_printable_lines
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


class RowReader:
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
        UsageError: pyarrow is not installed.
        InputFileError: A value cannot be one of memory.
    """
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(
            "--parquet needs pyarrow, which is not installed: pip install 'vramscope[parquet]'"
        ) from error
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


# A recording as OpenMetrics text with timestamps, from which Prometheus fills in the past.
#
# `promtool tsdb create-blocks-from openmetrics FILE` reads it. The format wants each series in one piece,
# and a recording has all devices side by side: lines wait in memory, and beyond a bound in files of a
# private folder.

HELD_BYTES = 32 << 20
"""Lines that are held in memory."""
_COPIED_BYTES = 1 << 20
_SeriesKey = tuple[int, str]
"""Number of the family and the labels."""


class _Family(NamedTuple):
    """One kind of figure."""

    name: str
    kind: Literal["gauge", "counter"]
    unit: str
    help: str
    read: Callable[[DeviceRow], float | None]


def _to_ratio(row: DeviceRow) -> float | None:
    percent = row.utilization_percent
    return None if percent is None else round(percent / 100.0, 6)


FAMILIES = (
    _Family(
        "vramscope_device_used_bytes",
        "gauge",
        "bytes",
        "Used memory of the device: all processes and the driver's share.",
        lambda it: it.memory.used_bytes,
    ),
    _Family(
        "vramscope_device_used_min_bytes",
        "gauge",
        "bytes",
        "Least used memory of the device within the tick.",
        lambda it: it.memory.used_min_bytes,
    ),
    _Family(
        "vramscope_device_used_max_bytes",
        "gauge",
        "bytes",
        "Most used memory of the device within the tick.",
        lambda it: it.memory.used_max_bytes,
    ),
    _Family(
        "vramscope_device_capacity_bytes",
        "gauge",
        "bytes",
        "Memory of the device.",
        lambda it: it.memory.total_bytes,
    ),
    _Family(
        "vramscope_allocator_allocated_bytes",
        "gauge",
        "bytes",
        "Bytes of live tensors.",
        lambda it: it.allocator.allocated_bytes,
    ),
    _Family(
        "vramscope_allocator_allocated_max_bytes",
        "gauge",
        "bytes",
        "Most bytes of live tensors within the tick.",
        lambda it: it.allocator.allocated_max_bytes,
    ),
    _Family(
        "vramscope_allocator_reserved_bytes",
        "gauge",
        "bytes",
        "Bytes that the caching allocator has reserved.",
        lambda it: it.allocator.reserved_bytes,
    ),
    _Family(
        "vramscope_allocator_retries",
        "counter",
        "",
        "Times that the device refused memory and the allocator flushed its cache.",
        lambda it: it.allocator.retries,
    ),
    _Family(
        "vramscope_allocator_ooms",
        "counter",
        "",
        "Out-of-memory errors of the allocator.",
        lambda it: it.allocator.ooms,
    ),
    _Family("vramscope_training_steps", "counter", "", "Training step (iteration).", lambda it: it.step),
    _Family(
        "vramscope_device_utilization_ratio", "gauge", "ratio", "Share of time with work, 0 to 1.", _to_ratio
    ),
    _Family(
        "vramscope_device_temperature_celsius",
        "gauge",
        "celsius",
        "Temperature of the device.",
        lambda it: it.temperature_c,
    ),
    _Family(
        "vramscope_device_power_watts",
        "gauge",
        "watts",
        "Power draw of the device.",
        lambda it: it.power_w,
    ),
)


def write_metrics(rows: Iterable[DeviceRow], stream: BinaryIO, *, held_bytes: int = HELD_BYTES) -> None:
    """Write rows as OpenMetrics text; what is unmeasured has no line.

    Args:
        rows: Of each device in order of time.
        held_bytes: Lines to hold in memory; those beyond wait in a private folder on disk.
    """
    with TemporaryDirectory(prefix="vramscope-") as folder:
        spool = _Spool(Path(folder), held_bytes)
        for row in rows:
            labels = _describe(row)
            for number, family in enumerate(FAMILIES):
                value = family.read(row)
                if value is not None and _is_allowed(family, value):
                    spool.add((number, labels), _line(family, labels, value, row.time_s))
        _write_families(spool, stream)


class _Spool:
    """Lines by series, in memory as far as it goes."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._held: dict[_SeriesKey, list[bytes]] = {}
        self._files: dict[_SeriesKey, Path] = {}
        self._size_bytes = 0

    def list_series(self) -> list[_SeriesKey]:
        """Return the series in order of family and labels."""
        return sorted(self._held)

    def add(self, key: _SeriesKey, line: bytes) -> None:
        self._held.setdefault(key, []).append(line)
        self._size_bytes += len(line)
        if self._size_bytes > self._most_bytes:
            self._put_away()

    def write(self, key: _SeriesKey, stream: BinaryIO) -> None:
        if key in self._files:
            with self._files[key].open("rb") as file:
                while data := file.read(_COPIED_BYTES):
                    stream.write(data)
        stream.write(b"".join(self._held[key]))

    def _put_away(self) -> None:
        for key, lines in self._held.items():
            path = self._files.setdefault(key, self._folder / str(len(self._files)))
            with path.open("ab") as file:
                file.writelines(lines)
            lines.clear()
        self._size_bytes = 0


def _write_families(spool: _Spool, stream: BinaryIO) -> None:
    told = -1
    for key in spool.list_series():
        if key[0] != told:
            told = key[0]
            family = FAMILIES[told]
            unit = f"# UNIT {family.name} {family.unit}\n" if family.unit else ""
            head = f"# TYPE {family.name} {family.kind}\n{unit}# HELP {family.name} {family.help}\n"
            stream.write(head.encode())
        spool.write(key, stream)
    stream.write(b"# EOF\n")


def _is_allowed(family: _Family, value: float) -> bool:
    return math.isfinite(value) and (family.kind == "gauge" or value >= 0)


def _line(family: _Family, labels: str, value: float, time_s: float) -> bytes:
    suffix = "_total" if family.kind == "counter" else ""
    return f"{family.name}{suffix}{labels} {value!r} {time_s!r}\n".encode()


def _describe(row: DeviceRow) -> str:
    pairs = (("node", row.node), ("device", row.label), ("uuid", row.uuid))
    return "{" + ",".join(f'{name}="{_escape(text)}"' for name, text in pairs) + "}"


def _escape(text: str) -> str:
    return make_printable_lines(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# A recording as JSON lines, as `vramscope --json` printed them when it was measured.


def read_statuses(recording: Recording, samples: Iterable[Sample]) -> Iterator[NodeStatus]:
    """Yield the status object of each sample, with the findings that stood then."""
    told = _Following(recording.told() if len(recording.nodes) == 1 else iter(()))
    for sample in samples:
        findings, assessments = told.at(sample.time_s)
        yield describe_sample(sample, findings, assessments=assessments)


class _Following:
    """The state at a time, from the updates until then."""

    def __init__(self, told: Iterator[Told]) -> None:
        self._told = told
        self._next = next(told, None)
        self._findings: dict[str, Finding] = {}
        self._assessments: tuple[Assessment, ...] = ()

    def at(self, time_s: float) -> tuple[tuple[Finding, ...], tuple[Assessment, ...]]:
        """Return the open findings and those that have just closed, and the assessments."""
        self._findings = {key: it for key, it in self._findings.items() if it.is_open}
        while self._next is not None and self._next.time_s <= time_s:
            self._findings.update((finding.id, finding) for finding in self._next.findings)
            if self._next.assessments is not None:
                self._assessments = self._next.assessments
            self._next = next(self._told, None)
        return order_findings(self._findings.values()), self._assessments
