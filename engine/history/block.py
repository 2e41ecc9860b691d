"""History on the wire: what a hub sends to a late viewer, and the samples it can be turned back into."""

from collections.abc import Callable, Iterable, Iterator, Set

import msgspec

from ..model import (
    AllocatorReading,
    Backend,
    DeviceSample,
    DeviceState,
    HostSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    RankState,
    Sample,
    ServerDevice,
    ServerKind,
    ServerSample,
    StepReading,
)
from ..model.sample import DeviceKind
from .ring import SECTOR_BYTES, ColumnRing, Row

# Bytes are kept in units of 512, rounded up, and at most 2 TiB.

RANK_STATES: tuple[RankState, ...] = ("ok", "stale", "ended")
# Processes in a ring, or as many as run at once; the one not seen for the longest goes first.
MAX_RANKS = 64
_MAX_CELL = 2**32 - 2
_LIMITS = {"retries": 2**31 - 1, "ooms": 2**15 - 1, "steps_within": 2**15 - 1}
_MS_PER_S = 1000
# A step's age is stored in milliseconds, its duration in tenths of them.
_DURATIONS_PER_S = 10_000
_NO_STEPS = 0


class RankHeader(msgspec.Struct, frozen=True):
    """Facts about a training process that are not in columns, as last seen."""

    pid: int
    started_s: float | None = None
    job: str | None = None
    device_uuid: str | None = None
    backend: Backend | None = None
    is_simulated: bool = False
    coordinates: RankCoordinates | None = None
    flight_record: str | None = None
    oom_s: float | None = None
    oom_size_bytes: int | None = None
    notes: tuple[str, ...] = ()
    capacity_bytes: int | None = None


def rank_key(rank: RankSample) -> str:
    """Key of a process among the devices of a ring."""
    return f"rank:{rank.pid}:{rank.started_s}"


def rank_header_of(rank: RankSample) -> RankHeader:
    """The facts that are not in columns."""
    return RankHeader(
        rank.pid,
        rank.started_s,
        rank.job,
        rank.device_uuid,
        rank.backend,
        rank.is_simulated,
        rank.coordinates,
        rank.flight_record,
        rank.oom_s,
        rank.oom_size_bytes,
        rank.notes,
        rank.capacity_bytes,
    )


def rank_values_of(rank: RankSample, time_s: float) -> dict[str, int]:
    """Return the columns of one process in the tick that ended at `time_s`."""
    allocator = rank.allocator or AllocatorReading()
    measured = {
        "state": RANK_STATES.index(rank.state),
        "allocated": _round_up(allocator.allocated_bytes),
        "allocated_max": _round_up(allocator.allocated_max_bytes),
        "reserved": _round_up(allocator.reserved_bytes),
        "requested": _round_up(allocator.requested_bytes),
        "active": _round_up(allocator.active_bytes),
        "inactive_split": _round_up(allocator.inactive_split_bytes),
        "retries": allocator.retries,
        "ooms": allocator.ooms,
        "resident": _round_up(rank.resident_bytes),
        "steps_within": rank.steps_within,
        "floor_min": _round_up(rank.floor_min_bytes),
        "peak_max": _round_up(rank.peak_max_bytes),
        **({} if rank.step is None else _step_values_of(rank.step, time_s)),
    }
    return {
        name: max(0, min(value, _LIMITS.get(name, _MAX_CELL * SECTOR_BYTES)))
        for name, value in measured.items()
        if value is not None
    }


def ranks_of(
    ring: ColumnRing, headers: dict[str, RankHeader], position: int, time_s: float
) -> tuple[RankSample, ...]:
    """Return the processes of one tick, with the fields of the ring."""
    found = ((ring.value(key, "state", position), key, header) for key, header in headers.items())
    return tuple(
        RankSample(
            pid=header.pid,
            started_s=header.started_s,
            job=header.job,
            device_uuid=header.device_uuid,
            backend=header.backend,
            is_simulated=header.is_simulated,
            coordinates=header.coordinates,
            state=RANK_STATES[state],
            allocator=_allocator_of(ring, key, position),
            capacity_bytes=header.capacity_bytes,
            resident_bytes=ring.value(key, "resident", position),
            step=_step_of(ring, key, position, time_s),
            steps_within=ring.value(key, "steps_within", position) or _NO_STEPS,
            floor_min_bytes=ring.value(key, "floor_min", position),
            peak_max_bytes=ring.value(key, "peak_max", position),
            flight_record=header.flight_record,
            oom_s=header.oom_s,
            oom_size_bytes=header.oom_size_bytes,
            notes=header.notes,
        )
        for state, key, header in found
        if state is not None and state < len(RANK_STATES)
    )


def _round_up(value: int | None) -> int | None:
    return None if value is None else -(-value // SECTOR_BYTES) * SECTOR_BYTES


def _step_values_of(step: StepReading, time_s: float) -> dict[str, int | None]:
    duration_s = step.duration_s
    age_ms = round((time_s - step.ended_s) * _MS_PER_S)
    return {
        "step": min(step.index, _MAX_CELL),
        "step_age": min(age_ms, _MAX_CELL),
        "step_duration": None if duration_s is None else min(round(duration_s * _DURATIONS_PER_S), _MAX_CELL),
        "step_floor": _round_up(step.floor_bytes),
        "step_peak": _round_up(step.peak_bytes),
        "is_peak_exact": int(step.is_peak_exact),
    }


def _allocator_of(ring: ColumnRing, key: str, position: int) -> AllocatorReading:
    return AllocatorReading(
        allocated_bytes=ring.value(key, "allocated", position),
        allocated_max_bytes=ring.value(key, "allocated_max", position),
        reserved_bytes=ring.value(key, "reserved", position),
        requested_bytes=ring.value(key, "requested", position),
        active_bytes=ring.value(key, "active", position),
        inactive_split_bytes=ring.value(key, "inactive_split", position),
        retries=ring.value(key, "retries", position),
        ooms=ring.value(key, "ooms", position),
    )


def _step_of(ring: ColumnRing, key: str, position: int, time_s: float) -> StepReading | None:
    index = ring.value(key, "step", position)
    if index is None:
        return None
    age_ms, duration = (ring.value(key, name, position) for name in ("step_age", "step_duration"))
    return StepReading(
        index=index,
        ended_s=time_s - (age_ms or 0) / _MS_PER_S,
        duration_s=None if duration is None else duration / _DURATIONS_PER_S,
        floor_bytes=ring.value(key, "step_floor", position),
        peak_bytes=ring.value(key, "step_peak", position),
        is_peak_exact=ring.value(key, "is_peak_exact", position) == 1,
    )


# Key of the host's own memory among the devices of a ring.
HOST_KEY = "host"
STATES: tuple[DeviceState, ...] = ("ok", "lost", "stale", "unsupported", "ended")


class ServerHeader(msgspec.Struct, frozen=True):
    """A server of models on a device, as last seen: whoever starts later knows why the device is full."""

    name: str
    kind: ServerKind | None = None


class DeviceHeader(msgspec.Struct, frozen=True):
    """Facts about a device that are not in columns."""

    index: int
    name: str | None = None
    kind: DeviceKind = "gpu"
    parent_uuid: str | None = None
    mig_index: int | None = None
    rank: RankCoordinates | None = None
    servers: tuple[ServerHeader, ...] = ()


class HistoryBlock(msgspec.Struct, frozen=True):
    """The whole ring: columns as little-endian arrays, oldest first (see `ColumnRing.dump`)."""

    node: str
    clock: str
    devices: dict[str, DeviceHeader]
    fine_ticks: dict[str, bytes]
    fine: dict[str, dict[str, bytes]]
    coarse_ticks: dict[str, bytes]
    coarse: dict[str, dict[str, bytes]]
    # Training processes, by their key among the columns of `fine`.
    ranks: dict[str, RankHeader] = {}
    # Most device-used bytes of each device and when, to the tick: minutes do not say when within them.
    peaks: dict[str, tuple[int, float]] = {}


def header_of(device: DeviceSample, servers: Iterable[ServerSample] = ()) -> DeviceHeader:
    return DeviceHeader(
        device.index,
        device.name,
        device.kind,
        device.parent_uuid,
        device.mig_index,
        device.rank,
        tuple(
            ServerHeader(it.name, it.kind)
            for it in servers
            if any(place.uuid == device.uuid for place in it.devices)
        ),
    )


def values_of(device: DeviceSample) -> dict[str, int]:
    """Return the columns of one device in one tick; values that are not of this tick are left out."""
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
    """Yield the samples of a ring, oldest first, with the fields of the ring, without the skipped ones."""
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
            servers=_servers_of(headers, {device.uuid for device in devices}),
        )


def _servers_of(headers: dict[str, DeviceHeader], present: Set[str]) -> tuple[ServerSample, ...]:
    """Return the servers on some devices, for which nothing more is kept."""
    places: dict[ServerHeader, list[ServerDevice]] = {}
    for uuid, header in headers.items():
        for server in header.servers if uuid in present else ():
            places.setdefault(server, []).append(ServerDevice(uuid))
    return tuple(
        ServerSample(server.kind, server.name, state="starting", devices=tuple(devices))
        for server, devices in places.items()
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
