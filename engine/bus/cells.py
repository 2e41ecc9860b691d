"""What a cell of the fleet shows of a sample: of devices and ranks their memory and place, and no more.

Each kind here is a part of one in `engine/model`, under the same names, so that it is read as a sample; what
has its default is not sent. Analysis across nodes follows cells too, and what it compares is among them.
"""

from typing import TypeVar

import msgspec

from ..model import AllocatorReading, DeviceSample, MemoryReading, RankSample, Sample, StepReading
from ..model.device import DeviceKind, DeviceState
from ..model.rank import Backend, RankCoordinates, RankState
from .wire import body_of, decode, encode

Part = TypeVar("Part", bound=msgspec.Struct)


class CellMemory(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Of a `MemoryReading` what is now."""

    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None


class CellAllocator(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Of an `AllocatorReading` what is live and what is held."""

    allocated_bytes: int | None = None
    allocated_max_bytes: int | None = None
    reserved_bytes: int | None = None
    inactive_split_bytes: int | None = None


class CellStep(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Of a `StepReading` all but the size of the step."""

    index: int
    ended_s: float
    duration_s: float | None = None
    floor_bytes: int | None = None
    peak_bytes: int | None = None
    is_peak_exact: bool = False


class CellDevice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Of a `DeviceSample` its memory and its place."""

    uuid: str
    index: int
    name: str | None = None
    kind: DeviceKind = "gpu"
    parent_uuid: str | None = None
    mig_index: int | None = None
    state: DeviceState = "ok"
    reason: str | None = None
    age_s: float | None = None
    memory: CellMemory = CellMemory()
    allocator: CellAllocator | None = None
    rank: RankCoordinates | None = None
    step: int | None = None


class CellRank(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Of a `RankSample` its memory, its steps and its place."""

    pid: int
    started_s: float | None = None
    job: str | None = None
    device_uuid: str | None = None
    backend: Backend | None = None
    is_simulated: bool = False
    coordinates: RankCoordinates | None = None
    state: RankState = "ok"
    reason: str | None = None
    age_s: float | None = None
    allocator: CellAllocator | None = None
    capacity_bytes: int | None = None
    step: CellStep | None = None
    steps_within: int = 0
    floor_min_bytes: int | None = None
    peak_max_bytes: int | None = None
    oom_s: float | None = None
    oom_size_bytes: int | None = None


class CellSample(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Of a `Sample` its devices and ranks."""

    node: str
    seq: int
    time_s: float
    interval_s: float
    devices: tuple[CellDevice, ...] = ()
    ranks: tuple[CellRank, ...] = ()
    notes: tuple[str, ...] = ()
    """Of a node without devices, which its first note explains."""
    clock: str = "wall"
    is_last: bool = False
    devices_left_out: int = 0


_CELLS: dict[type[msgspec.Struct], type[msgspec.Struct]] = {
    MemoryReading: CellMemory,
    AllocatorReading: CellAllocator,
    StepReading: CellStep,
    DeviceSample: CellDevice,
    RankSample: CellRank,
    Sample: CellSample,
}


def take_cells(sample: Sample) -> CellSample:
    """Return what cells show of a sample, to be sent under the kind `sample`."""
    cells = _take(sample, CellSample)
    return msgspec.structs.replace(cells, notes=()) if cells.devices and cells.notes else cells


def trim_to_cells(sample: Sample) -> Sample:
    """Return a sample with no more in it than cells show."""
    return body_of(decode(encode("sample", "", take_cells(sample))), Sample)


def _take(whole: msgspec.Struct, part: type[Part]) -> Part:
    return part(**{name: _take_value(getattr(whole, name)) for name in part.__struct_fields__})


def _take_value(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(_take_value(each) for each in value)
    part = _CELLS.get(type(value)) if isinstance(value, msgspec.Struct) else None
    return value if part is None or not isinstance(value, msgspec.Struct) else _take(value, part)
