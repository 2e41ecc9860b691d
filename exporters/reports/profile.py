"""The report of `vramscope profile`: current, peak and average use of each device."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from ...engine.model import HeadroomEstimate
from .frame import (
    KINDS,
    Provenance,
    ReportEvidence,
    ReportFinding,
    describe_evidence,
    describe_findings,
    stamp_now,
)
from .growth import UsedTrend, describe_used
from .log import DeviceLog, MemorySource, RunLog, Snapshot, UtilizationOf, add_known

PROFILE_SCHEMA: Final = "vramscope.profile/1"
METHOD = (
    "Measured values: `allocated` is live bytes of the caching allocator if the input has them, else device "
    "used; peaks include what was seen between two snapshots; fragmentation is inactive split bytes over "
    "reserved bytes."
)


class CurrentMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one device at the newest sample."""

    allocated: int | None
    free: int | None
    total: int | None
    utilization: float | None
    """Percent."""
    used: int | None
    reserved: int | None


class ProfileStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Over all snapshots of the period; utilisation in percent, fragmentation 0 to 1."""

    avg_utilization: float | None
    max_utilization: float | None
    avg_fragmentation: float | None
    max_fragmentation: float | None
    num_snapshots: int


class ProfileDevice(msgspec.Struct, frozen=True, kw_only=True):
    device_id: int
    device_uuid: str | None
    name: str | None
    memory_source: MemorySource
    utilization_of: UtilizationOf | None
    current_memory: CurrentMemory
    peak_memory: int | None
    peak_used: int | None
    headroom: int | None
    """Total less the most that was used."""
    state: str
    reason: str | None
    statistics: ProfileStatistics
    device_trend: UsedTrend | None = None
    """How device used goes, where no allocator reports."""


class ProcessHeadroom(msgspec.Struct, frozen=True, kw_only=True):
    """What the steps of one process say of the largest that would fit: an estimate, never a measurement."""

    pid: int | None
    rank: int | None
    estimates: tuple[HeadroomEstimate, ...]
    """By tokens and by samples, as far as the program reports its sizes."""


class ProfilePhase(msgspec.Struct, frozen=True, kw_only=True):
    """One `vramscope.phase` of a program on one device; bytes, of the newest call unless noted."""

    phase: str
    device_id: int | None
    """As in `devices`; of a program that reports about itself as torch numbers devices."""
    pid: int | None = None
    """None for a program that reports about itself."""
    rank: int | None = None
    calls: int
    before_allocated: int | None
    before_reserved: int | None
    after_allocated: int | None
    after_reserved: int | None
    difference_allocated: int | None
    difference_reserved: int | None
    peak_allocated: int | None
    """Most of all calls."""
    is_peak_exact: bool
    """Whether it is the allocator's own peak; else it is the most that was read, a lower bound."""
    seconds: float | None


class ProfileSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All devices together; sums leave out devices whose value is unknown."""

    total_devices: int
    total_current_memory: int | None
    total_peak_memory: int | None
    monitoring_duration: float
    """Seconds from the first sample to the last."""


class ProfileReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope profile` prints."""

    schema: Literal["vramscope.profile/1"] = PROFILE_SCHEMA
    timestamp: str
    devices: dict[str, ProfileDevice]
    summary: ProfileSummary
    headroom: dict[str, tuple[ProcessHeadroom, ...]]
    """By device as in `devices`; those whose processes do not report the sizes of their steps are left
    out."""
    phases: list[ProfilePhase] = []
    """Phases of the program that reports about itself, else of every process in the samples; in the order in
    which they first ended."""
    method: str = METHOD
    evidence: ReportEvidence
    findings: tuple[ReportFinding, ...]


def build_profile(log: RunLog, provenance: Provenance, phases: Sequence[ProfilePhase] = ()) -> ProfileReport:
    """Return the profile of a period.

    Args:
        phases: Named parts of the program, where it reports about itself; else those that the log has.
    """
    devices = {log.key_of(device): _describe(log, device, provenance) for device in log.devices.values()}
    return ProfileReport(
        timestamp=stamp_now(),
        devices=devices,
        summary=ProfileSummary(
            total_devices=len(devices),
            total_current_memory=add_known(it.current_memory.allocated for it in devices.values()),
            total_peak_memory=add_known(it.peak_memory for it in devices.values()),
            monitoring_duration=log.span_s,
        ),
        headroom=describe_headroom(log),
        phases=list(phases) or _describe_phases(log),
        evidence=describe_evidence(log, provenance),
        findings=describe_findings(log, provenance, KINDS["profile"]),
    )


def describe_headroom(log: RunLog) -> dict[str, tuple[ProcessHeadroom, ...]]:
    """Return the largest steps that would fit, as far as known, by the key of the device in the report."""
    known = {
        log.key_of(device): tuple(
            ProcessHeadroom(pid=it.pid, rank=it.rank, estimates=it.headroom)
            for it in log.assessments_of(device.uuid)
            if it.headroom
        )
        for device in log.devices.values()
    }
    return {key: headroom for key, headroom in known.items() if headroom}


def _describe_phases(log: RunLog) -> list[ProfilePhase]:
    return [
        ProfilePhase(
            phase=phase.name,
            device_id=None if rank.device_uuid not in log.devices else log.devices[rank.device_uuid].index,
            pid=rank.pid,
            rank=None if rank.coordinates is None else rank.coordinates.rank,
            calls=phase.calls,
            before_allocated=phase.allocated_before_bytes,
            before_reserved=phase.reserved_before_bytes,
            after_allocated=phase.allocated_after_bytes,
            after_reserved=phase.reserved_after_bytes,
            difference_allocated=_subtract(phase.allocated_after_bytes, phase.allocated_before_bytes),
            difference_reserved=_subtract(phase.reserved_after_bytes, phase.reserved_before_bytes),
            peak_allocated=phase.most_bytes,
            is_peak_exact=phase.is_most_exact,
            seconds=phase.duration_s,
        )
        for rank in log.phased.values()
        for phase in rank.phases
    ]


def _subtract(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def describe_memory(device: DeviceLog) -> CurrentMemory:
    """Return the newest values of a device; all None without a snapshot."""
    last = device.last
    if last is None:
        return CurrentMemory(
            allocated=None, free=None, total=None, utilization=None, used=None, reserved=None
        )
    return CurrentMemory(
        allocated=last.taken_bytes(device.memory_source),
        free=last.free_bytes,
        total=last.total_bytes,
        utilization=last.utilization_percent,
        used=last.used_bytes,
        reserved=last.reserved_bytes,
    )


def _describe(log: RunLog, device: DeviceLog, provenance: Provenance) -> ProfileDevice:
    current = describe_memory(device)
    peak_used = device.peak_used_bytes
    return ProfileDevice(
        device_id=device.index,
        device_uuid=provenance.uuid_of(device.uuid),
        name=device.name,
        memory_source=device.memory_source,
        utilization_of=device.utilization_of,
        current_memory=current,
        peak_memory=device.peak_bytes,
        peak_used=peak_used,
        headroom=None if current.total is None or peak_used is None else current.total - peak_used,
        state=device.state,
        reason=device.reason,
        statistics=ProfileStatistics(
            avg_utilization=device.utilization.mean,
            max_utilization=device.utilization.most,
            avg_fragmentation=device.fragmentation.mean,
            max_fragmentation=device.fragmentation.most,
            num_snapshots=device.count,
        ),
        device_trend=describe_used(log, device),
    )


# The time series of a period, as `export_snapshots` writes it and readers of series read it back.

SNAPSHOTS_SCHEMA: Final = "vramscope.snapshots/1"


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The process that took the snapshots."""

    pid: int
    memory_percent: float
    cpu_percent: float
    num_threads: int


class ExportedSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One device at one moment; bytes, percent, and a share of 0 to 1."""

    timestamp: float
    allocated: int | None
    free: int | None
    total: int | None
    utilization: float | None
    fragmentation: float | None
    used: int | None
    reserved: int | None
    process_info: ProcessInfo | None


class ExportMetadata(msgspec.Struct, frozen=True, kw_only=True):
    export_time: str
    sampling_interval: float | None
    devices: list[int]
    memory_source: dict[str, MemorySource]


class SnapshotExport(msgspec.Struct, frozen=True, kw_only=True):
    """The file; readers know it by its first key."""

    metadata: ExportMetadata
    snapshots: dict[str, list[ExportedSnapshot]]
    schema: Literal["vramscope.snapshots/1"] = SNAPSHOTS_SCHEMA


def build_export(
    log: RunLog, *, interval_s: float | None, device_id: int | None = None, process: ProcessInfo | None = None
) -> SnapshotExport:
    chosen = [it for it in log.devices.values() if device_id is None or it.index == device_id]
    return SnapshotExport(
        metadata=ExportMetadata(
            export_time=stamp_now(),
            sampling_interval=interval_s,
            devices=[device.index for device in chosen],
            memory_source={log.key_of(device): device.memory_source for device in chosen},
        ),
        snapshots={
            log.key_of(device): [_export(it, device, process) for it in device.snapshots] for device in chosen
        },
    )


def _export(snapshot: Snapshot, device: DeviceLog, process: ProcessInfo | None) -> ExportedSnapshot:
    return ExportedSnapshot(
        timestamp=snapshot.time_s,
        allocated=snapshot.taken_bytes(device.memory_source),
        free=snapshot.free_bytes,
        total=snapshot.total_bytes,
        utilization=snapshot.utilization_percent,
        fragmentation=snapshot.fragmentation,
        used=snapshot.used_bytes,
        reserved=snapshot.reserved_bytes,
        process_info=process,
    )
