"""Samples and findings as the tests of analyzers write them."""

from collections.abc import Iterable, Sequence

from vramscope.engine.model import (
    AllocatorReading,
    Assessment,
    DeviceKind,
    DeviceSample,
    DeviceState,
    Finding,
    MemoryReading,
    RiskLevel,
    Sample,
    Severity,
)
from vramscope.engine.units import GIB

TOTAL = 80 * GIB


def device(
    used_gib: float | None = 40.0,
    *,
    index: int = 0,
    total_bytes: int | None = TOTAL,
    state: DeviceState = "ok",
    reason: str | None = None,
    age_s: float | None = 0.0,
    kind: DeviceKind = "gpu",
    mig_index: int | None = None,
    allocated_gib: float | None = None,
    reserved_gib: float | None = None,
) -> DeviceSample:
    """Return a device that uses so many GiB."""
    used_bytes = None if used_gib is None else round(used_gib * GIB)
    allocator = None
    if allocated_gib is not None or reserved_gib is not None:
        allocator = AllocatorReading(
            allocated_bytes=None if allocated_gib is None else round(allocated_gib * GIB),
            reserved_bytes=None if reserved_gib is None else round(reserved_gib * GIB),
        )
    return DeviceSample(
        uuid=f"GPU-{index}" if mig_index is None else f"MIG-{index}-{mig_index}",
        index=index,
        mig_index=mig_index,
        kind=kind,
        state=state,
        reason=reason,
        age_s=age_s,
        allocator=allocator,
        memory=MemoryReading(
            total_bytes=total_bytes,
            used_bytes=used_bytes,
            used_min_bytes=used_bytes,
            used_max_bytes=used_bytes,
            free_bytes=None
            if used_bytes is None or total_bytes is None
            else max(0, total_bytes - used_bytes),
        ),
    )


def sample(
    *devices: DeviceSample, time_s: float = 0.0, notes: Sequence[str] = (), interval_s: float = 1.0
) -> Sample:
    """Return a sample of a node called n."""
    return Sample("n", int(time_s), time_s, interval_s, devices, notes=tuple(notes))


def series(figures: Iterable[float | None], *, start_s: float = 0.0, step_s: float = 1.0) -> list[Sample]:
    """Return one sample a tick of one device that uses so many GiB of 80."""
    return [sample(device(used), time_s=start_s + step_s * tick) for tick, used in enumerate(figures)]


def finding(
    kind: str = "oom",
    severity: Severity = "critical",
    *,
    uuid: str | None = "GPU-0",
    title: str = "GPU 0 out of memory in 1 m 16 s (65–90 s, 93 %): tensors kept by eval(), +20 MiB a step",
    opened_s: float = 0.0,
    closed_s: float | None = None,
) -> Finding:
    """Return a finding of another analyzer."""
    return Finding(
        f"{kind}-{uuid}-{opened_s}", kind, "n", uuid, "0", severity, title, opened_s, opened_s, closed_s
    )


def assessment(
    level: RiskLevel = "low",
    *,
    uuid: str | None = "GPU-0",
    pid: int | None = 7,
    reason: str = "floors do not rise",
    capacity_gib: float | None = 77.3,
    peak_gib: float | None = 60.1,
    oom_in_s: float | None = None,
    time_s: float = 0.0,
) -> Assessment:
    """Return what a forecast says of a process on GPU 0, unless told otherwise."""
    return Assessment(
        "n",
        uuid,
        "0",
        time_s,
        level,
        reason,
        pid=pid,
        oom_in_s=oom_in_s,
        capacity_bytes=None if capacity_gib is None else round(capacity_gib * GIB),
        peak_bytes=None if peak_gib is None else round(peak_gib * GIB),
    )
