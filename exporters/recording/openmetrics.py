"""A recording as OpenMetrics text with timestamps, from which Prometheus fills in the past.

`FAMILIES` are those of each device: `/metrics` has them too, so that both continue each other.
`promtool tsdb create-blocks-from openmetrics FILE` reads the text. The format wants each series in one
piece, and a recording has all devices side by side: lines wait in memory, and beyond a bound in files of a
private folder.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Literal, NamedTuple

from ...engine.text import make_printable_lines
from .rows import DeviceRow

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
    current = -1
    for key in spool.list_series():
        if key[0] != current:
            current = key[0]
            family = FAMILIES[current]
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
