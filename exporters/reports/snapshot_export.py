"""The time series of a period, as `export_snapshots` writes it and readers of series read it back."""

from typing import Final, Literal

import msgspec

from .device_log import DeviceLog, MemorySource, Snapshot
from .frame import stamp_now
from .run_log import RunLog

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
    """How the snapshots were taken."""

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
    """Return the snapshots that are kept of a period.

    Args:
        log: The period.
        interval_s: Seconds from one snapshot to the next, as it was set.
        device_id: Index of the only device to export; None for all.
        process: The process that took them, where that is worth saying.
    """
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
