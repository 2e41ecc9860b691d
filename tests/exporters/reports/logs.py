"""Periods made by hand: a few devices, sample by sample."""

from collections.abc import Iterable

from vramscope.engine.model import (
    AllocatorReading,
    Assessment,
    DeviceSample,
    Evidence,
    Finding,
    MemoryReading,
    RankSample,
    RiskLevel,
    Sample,
    Severity,
)
from vramscope.exporters.reports.frame import Provenance
from vramscope.exporters.reports.log import RunLog

GIB, MIB = 1 << 30, 1 << 20
TOTAL = 80 * GIB
INPUT = Provenance(
    source="input", input="series.csv", format="series CSV", real_uuid=lambda _: None, label=lambda it: it
)
DRIVER = Provenance(source="driver")


def make_device(
    used: int | None = None,
    *,
    index: int = 0,
    allocated: int | None = None,
    reserved: int | None = None,
    stranded: int | None = None,
    used_max: int | None = None,
    **fields: object,
) -> DeviceSample:
    """Return a healthy device of 80 GiB."""
    free = None if used is None else TOTAL - used
    allocator = None
    if allocated is not None or reserved is not None:
        allocator = AllocatorReading(allocated, allocated, reserved, inactive_split_bytes=stranded)
    known: dict[str, object] = {
        "uuid": f"GPU-{index}",
        "index": index,
        "memory": MemoryReading(TOTAL, used, free, used, used if used_max is None else used_max),
        "allocator": allocator,
    }
    return DeviceSample(**{**known, **fields})  # type: ignore[arg-type] # named by the caller


def make_sample(
    time_s: float, *devices: DeviceSample, ranks: tuple[RankSample, ...] = (), interval_s: float = 1.0
) -> Sample:
    """Return one sample of a node."""
    return Sample("node", round(time_s), time_s, interval_s, devices, ranks=ranks)


def make_log(samples: Iterable[Sample], **settings: float) -> RunLog:
    """Return the log of some samples."""
    log = RunLog(**settings)  # type: ignore[arg-type] # named by the caller
    for sample in samples:
        log.observe(sample)
    return log


def make_finding(
    kind: str = "oom",
    severity: Severity = "high",
    *,
    opened_s: float = 5.0,
    closed_s: float | None = None,
    evidence: tuple[Evidence, ...] = (Evidence("peak", 5, "bytes"),),
    device_uuid: str | None = "GPU-0",
) -> Finding:
    """Return a finding about device 0."""
    return Finding(
        id=f"{kind}-{opened_s:g}",
        kind=kind,
        node="node",
        device_uuid=device_uuid,
        device="0",
        severity=severity,
        title=f"{kind} of device 0",
        opened_s=opened_s,
        updated_s=opened_s + 1,
        closed_s=closed_s,
        evidence=evidence,
        method="by hand",
        advice=f"act on {kind}",
    )


def make_assessment(level: RiskLevel, **fields: object) -> Assessment:
    """Return a forecast for device 0."""
    known: dict[str, object] = {
        "node": "node",
        "device_uuid": "GPU-0",
        "device": "0",
        "time_s": 5.0,
        "level": level,
        "reason": "floors rise",
    }
    return Assessment(**{**known, **fields})  # type: ignore[arg-type] # named by the caller
