"""The readings of a recording as rows: one device at one time, each reading once."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...engine.model import AllocatorReading, DeviceSample, MemoryReading, Sample
from ...engine.text import make_printable

_PLACES = 6
"""Decimals of a time: microseconds, which a time since the epoch can still hold."""
_NAMED = "name-"
_NUMBERED = "index-"
"""How readers of series begin the made-up UUID of a device that their input names or numbers."""
_NO_ALLOCATOR = AllocatorReading()
_NO_MEMORY = MemoryReading()


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

    A reading that a sample repeats (a device that did not answer meanwhile) is one row. Of a device that is
    not `ok` the last figures are kept in a sample; a row says that nothing was measured.

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
            found.sort(key=_place_of)
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


def _place_of(row: DeviceRow) -> tuple[float, str]:
    return row.time_s, row.device


def _find_time(time_s: float, age_s: float | None) -> float:
    read_s = time_s if age_s is None else time_s - age_s
    return round(read_s if math.isfinite(read_s) else time_s, _PLACES) + 0.0


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
