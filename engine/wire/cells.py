"""The part of a sample that a cell of the fleet shows: memory and place of devices and ranks.

Each kind here is a part of one in `engine/model`, under the same names, so that it is read as a sample;
defaults are not sent. Analysis across nodes follows cells too, so they include what it compares.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from ..alerts.state import AlertState
from ..model import AllocatorReading, DeviceSample, HubStatus, RankSample, Sample
from ..model.sample import Backend, DeviceKind, DeviceState, RankCoordinates, RankState
from ..ranks.messages import PackedSegments
from .messages import TOPIC_CELLS, FindingBatch, body_of, decode, encode
from .selection import Cut, Told, cut


class CellMemory(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None


class CellAllocator(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The live and reserved bytes of an `AllocatorReading`."""

    allocated_bytes: int | None = None
    allocated_max_bytes: int | None = None
    reserved_bytes: int | None = None
    inactive_split_bytes: int | None = None


class CellStep(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A `StepReading` without the size of the step."""

    index: int
    ended_s: float
    duration_s: float | None = None
    floor_bytes: int | None = None
    peak_bytes: int | None = None
    is_peak_exact: bool = False


class CellOwner(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    user: str | None = None
    slurm_job: str | None = None
    slurm_job_name: str | None = None
    namespace: str | None = None
    pod: str | None = None


class CellDevice(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
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
    owners: tuple[CellOwner, ...] = ()


class CellRank(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Memory, steps and place of a `RankSample`."""

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
    node: str
    seq: int
    time_s: float
    interval_s: float
    devices: tuple[CellDevice, ...] = ()
    ranks: tuple[CellRank, ...] = ()
    # Only of a node without devices, which its first note explains.
    notes: tuple[str, ...] = ()
    clock: str = "wall"
    is_last: bool = False
    devices_left_out: int = 0


def take_cells(sample: Sample) -> CellSample:
    """Return the part of a sample that cells show, to be sent under the kind `sample`."""
    return CellSample(
        sample.node,
        sample.seq,
        sample.time_s,
        sample.interval_s,
        tuple([_trim_device(device) for device in sample.devices]),
        tuple([_trim_rank(rank) for rank in sample.ranks]),
        () if sample.devices else sample.notes,
        sample.clock,
        sample.is_last,
        sample.devices_left_out,
    )


def trim_to_cells(sample: Sample) -> Sample:
    """Return a sample with no more in it than cells show."""
    return body_of(decode(encode("sample", "", take_cells(sample))), Sample)


def _fields_of(part: type[msgspec.Struct]) -> Callable[[object], tuple[Any, ...]]:
    """Return a reader of all fields of a part, in their order: an agent needs it every second."""
    return attrgetter(*part.__struct_fields__)


_read_memory, _read_allocator, _read_step = (_fields_of(it) for it in (CellMemory, CellAllocator, CellStep))
_read_owner = _fields_of(CellOwner)
_read_device = _fields_of(CellDevice)
_read_rank = _fields_of(CellRank)


def _trim_allocator(allocator: AllocatorReading | None) -> CellAllocator | None:
    return None if allocator is None else CellAllocator(*_read_allocator(allocator))


def _trim_device(device: DeviceSample) -> CellDevice:
    cell = CellDevice(*_read_device(device))
    memory = CellMemory(*_read_memory(device.memory))
    allocator = _trim_allocator(device.allocator)
    owners = tuple([CellOwner(*_read_owner(owner)) for owner in device.find_owners()])
    return replace(cell, memory=memory, allocator=allocator, owners=owners)


def _trim_rank(rank: RankSample) -> CellRank:
    cell = CellRank(*_read_rank(rank))
    step = None if rank.step is None else CellStep(*_read_step(rank.step))
    return replace(cell, allocator=_trim_allocator(rank.allocator), step=step)


_KINDS: dict[type[Told], str] = {
    Sample: "sample",
    FindingBatch: "findings",
    AlertState: "alerts",
    HubStatus: "hub",
    PackedSegments: "segments",
}


def encode_told(topic: bytes, hub_id: str, told: Told) -> bytes:
    if topic == TOPIC_CELLS and isinstance(told, Sample):
        return encode("sample", hub_id, take_cells(told))
    return encode(_KINDS[type(told)], hub_id, told)


def encode_part(topic: bytes, hub_id: str, told: Told, part: Cut, sample: Sample | None) -> bytes | None:
    """The same as far as a peer gets it; None if nothing is left of it."""
    found = cut(told, part, sample)
    return None if found is None else encode_told(topic, hub_id, found)
