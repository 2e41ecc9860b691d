"""History on the wire: what a hub hands to a late viewer, and the samples it can be turned back into."""

from collections.abc import Callable, Iterator

import msgspec

from ..model import (
    AllocatorReading,
    DeviceSample,
    DeviceState,
    HostSample,
    MemoryReading,
    RankCoordinates,
    Sample,
)
from ..model.device import DeviceKind
from .rank_rows import RankHeader, ranks_of
from .ring import ColumnRing, Row

HOST_KEY = "host"
"""Where the host's own memory stands among the devices of a ring."""
STATES: tuple[DeviceState, ...] = ("ok", "lost", "stale", "unsupported", "ended")


class DeviceHeader(msgspec.Struct, frozen=True):
    """What a ring keeps of a device beside its columns."""

    index: int
    name: str | None = None
    kind: DeviceKind = "gpu"
    parent_uuid: str | None = None
    mig_index: int | None = None
    rank: RankCoordinates | None = None


class HistoryBlock(msgspec.Struct, frozen=True):
    """The whole ring: columns as little-endian arrays, oldest first (see `ColumnRing.dump`)."""

    node: str
    clock: str
    devices: dict[str, DeviceHeader]
    fine_ticks: dict[str, bytes]
    fine: dict[str, dict[str, bytes]]
    coarse_ticks: dict[str, bytes]
    coarse: dict[str, dict[str, bytes]]
    ranks: dict[str, RankHeader] = {}
    """Training processes, by their key among the columns of `fine`."""
    peaks: dict[str, tuple[int, float]] = {}
    """Most device-used bytes of each device and when, to the tick: minutes do not say when within them."""


def header_of(device: DeviceSample) -> DeviceHeader:
    """Return what the ring keeps of a device beside its columns."""
    return DeviceHeader(
        device.index, device.name, device.kind, device.parent_uuid, device.mig_index, device.rank
    )


def values_of(device: DeviceSample) -> dict[str, int]:
    """Return the columns of one device in one tick; figures that are not of this tick are left out."""
    memory = device.memory
    allocator = device.allocator
    measured = {"state": STATES.index(device.state), "total": memory.total_bytes}
    if device.state == "ok":
        utilization = None if device.details_age_s is not None else device.utilization_percent
        measured["used"] = memory.used_bytes
        measured["free"] = memory.free_bytes
        measured["used_min"] = memory.used_min_bytes
        measured["used_max"] = memory.used_max_bytes
        measured["utilization"] = None if utilization is None else max(0, min(100, round(utilization)))
        measured["step"] = device.step
        if allocator is not None:
            measured["allocated"] = allocator.allocated_bytes
            measured["allocated_max"] = allocator.allocated_max_bytes
            measured["reserved"] = allocator.reserved_bytes
    return {name: value for name, value in measured.items() if value is not None}


def host_values_of(host: HostSample) -> dict[str, int]:
    """Return the columns of the host in one tick."""
    measured = {"total": host.total_bytes, "used": host.used_bytes}
    return {"state": 0} | {name: value for name, value in measured.items() if value is not None}


def samples_of(
    ring: ColumnRing,
    headers: dict[str, DeviceHeader],
    ranks: dict[str, RankHeader],
    node: str,
    clock: str,
    *,
    skipped: Callable[[Row], bool] | None = None,
) -> Iterator[Sample]:
    """Yield the samples of a ring, oldest first, with the fields that the ring keeps, but those skipped."""
    for position, row in ring.rows():
        if skipped is not None and skipped(row):
            continue
        devices = []
        for uuid, header in headers.items():
            state = ring.value(uuid, "state", position)
            if state is not None and state < len(STATES):
                devices.append(_device(ring, uuid, header, position, STATES[state]))
        yield Sample(
            node=node,
            seq=row.seq,
            time_s=row.time_s,
            interval_s=row.interval_s,
            devices=tuple(devices),
            host=_host(ring, position),
            ranks=ranks_of(ring, ranks, position, row.time_s),
            clock="trace" if clock == "trace" else "wall",
        )


def _host(ring: ColumnRing, position: int) -> HostSample | None:
    if ring.value(HOST_KEY, "state", position) is None:
        return None
    total, used = (ring.value(HOST_KEY, name, position) for name in ("total", "used"))
    return HostSample(total_bytes=total, used_bytes=used)


def _device(
    ring: ColumnRing, uuid: str, header: DeviceHeader, position: int, state: DeviceState
) -> DeviceSample:
    return DeviceSample(
        uuid=uuid,
        index=header.index,
        name=header.name,
        kind=header.kind,
        parent_uuid=header.parent_uuid,
        mig_index=header.mig_index,
        state=state,
        memory=MemoryReading(
            total_bytes=ring.value(uuid, "total", position),
            used_bytes=ring.value(uuid, "used", position),
            free_bytes=ring.value(uuid, "free", position),
            used_min_bytes=ring.value(uuid, "used_min", position),
            used_max_bytes=ring.value(uuid, "used_max", position),
        ),
        allocator=_allocator(ring, uuid, position),
        utilization_percent=ring.value(uuid, "utilization", position),
        rank=header.rank,
        step=ring.value(uuid, "step", position),
    )


def _allocator(ring: ColumnRing, uuid: str, position: int) -> AllocatorReading | None:
    names = ("allocated", "allocated_max", "reserved")
    known = [ring.value(uuid, name, position) for name in names]
    return AllocatorReading(*known) if any(value is not None for value in known) else None
