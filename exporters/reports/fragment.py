"""The report of `vramscope fragment`: what each allocator holds and the job cannot have."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from ...analyzers.fragmentation import (
    AllocationPattern,
    FragmentationReading,
    FragmentationTrend,
    Level,
    Measure,
    level_of,
)
from ...engine.units import MIB
from .device_log import DeviceLog, MemorySource
from .frame import (
    KINDS,
    Provenance,
    ReportEvidence,
    ReportFinding,
    describe_evidence,
    describe_findings,
    stamp_now,
)
from .oom import Nothing
from .run_log import RunLog

FRAGMENT_SCHEMA: Final = "vramscope.fragment/1"
METHOD = (
    "`fragmentation_ratio` is 1 - largest free block / free bytes where a segment map tells of blocks, else "
    "inactive split bytes over reserved bytes; null where neither is known. Device memory alone tells "
    "nothing of fragmentation."
)
NOT_TOLD = "no allocator tells of this device: start the job with `vramscope run`, or give a file that has it"
NOT_HELD = (
    "what its allocator holds (reserved) is not told, and without it nothing can be said of fragmentation"
)
Priority = Literal["low", "medium", "high", "urgent"]
_PRIORITIES: dict[Level, Priority] = {
    "low": "low",
    "moderate": "medium",
    "high": "high",
    "severe": "urgent",
}


class FragmentationFigures(msgspec.Struct, frozen=True):
    """What an analyzer says of one allocator."""

    reading: FragmentationReading
    trend: FragmentationTrend | None = None
    pattern: AllocationPattern | None = None


class FragmentMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Fragmentation at the newest sample; shares of 0 to 1, None where it was not measured."""

    fragmentation_level: Level | None
    fragmentation_ratio: float | None
    measure: Measure | None
    """What the ratio is: `external` of a segment map, `stranded` of the allocator's counters."""
    num_free_blocks: int | None
    largest_free_block_mb: float | None
    allocation_efficiency: float | None
    """Allocated over reserved bytes, now."""
    defrag_benefit: float | None
    """Stranded bytes over the device's total."""
    internal_fragmentation: float | None
    external_fragmentation: float | None
    stranded_mb: float | None
    cached_mb: float | None
    unused_share: float | None
    """Reserved and not allocated at the fullest recent moment: cache and stranded bytes together."""
    headroom_mb: float | None
    reason: str | None
    """Why nothing was measured."""


class FragmentTrend(msgspec.Struct, frozen=True, kw_only=True):
    """How fragmentation went."""

    device_id: int
    duration_minutes: float
    data_points: int
    measure: Measure
    current_fragmentation: float
    min_fragmentation: float
    max_fragmentation: float
    avg_fragmentation: float
    trend_slope: float | None
    """A second."""
    trend_description: str


class FragmentPattern(msgspec.Struct, frozen=True, kw_only=True):
    """How the job allocates, where a segment map or a trace tells."""

    average_allocation_size_mb: float | None
    allocation_frequency: float | None
    deallocation_frequency: float | None
    temporal_pattern: str | None
    size_distribution: dict[str, int]


class FragmentAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one device."""

    device_id: int
    current_fragmentation_level: Level | None
    fragmentation_ratio: float | None
    defrag_benefit: float | None
    recommendations: list[str]
    priority: Priority


class FragmentDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device of the report."""

    device_id: int
    device_uuid: str | None
    memory_source: MemorySource
    pid: int | None
    """The process of which the figures are, where several share the device the most fragmented."""
    current_metrics: FragmentMetrics
    trend_analysis: FragmentTrend | Nothing
    allocation_pattern: FragmentPattern
    recommendations: FragmentAdvice


class FragmentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All devices together."""

    total_devices: int
    fragmentation_distribution: dict[str, int]
    total_defrag_benefit: float | None
    high_fragmentation_devices: list[int]


class FragmentReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope fragment` prints."""

    schema: Literal["vramscope.fragment/1"] = FRAGMENT_SCHEMA
    timestamp: str
    devices: dict[str, FragmentDevice]
    summary: FragmentSummary
    method: str = METHOD
    evidence: ReportEvidence
    findings: tuple[ReportFinding, ...]


def build_fragment(
    log: RunLog, provenance: Provenance, figures: Sequence[FragmentationFigures]
) -> FragmentReport:
    """Return the report of a period.

    Args:
        log: The period.
        provenance: Where its samples come from.
        figures: What the analyzer says of each allocator.
    """
    findings = describe_findings(log, provenance, KINDS["fragment"])
    devices = {
        log.key_of(it): describe_fragmentation(it, provenance, figures, findings)
        for it in log.devices.values()
    }
    benefits = [it.current_metrics.defrag_benefit for it in devices.values()]
    known = [benefit for benefit in benefits if benefit is not None]
    levels = Counter(it.current_metrics.fragmentation_level for it in devices.values())
    return FragmentReport(
        timestamp=stamp_now(),
        devices=devices,
        summary=FragmentSummary(
            total_devices=len(devices),
            fragmentation_distribution={
                **{level: levels[level] for level in _PRIORITIES},
                "unknown": levels[None],
            },
            total_defrag_benefit=sum(known) if known else None,
            high_fragmentation_devices=[
                it.device_id
                for it in devices.values()
                if it.current_metrics.fragmentation_level in ("high", "severe")
            ],
        ),
        evidence=describe_evidence(log, provenance),
        findings=findings,
    )


def describe_fragmentation(
    device: DeviceLog,
    provenance: Provenance,
    figures: Sequence[FragmentationFigures],
    findings: Sequence[ReportFinding] = (),
) -> FragmentDevice:
    """Return what is known of one device."""
    own = [it for it in figures if it.reading.device_uuid == device.uuid]
    worst = max(own, key=lambda it: (it.reading.ratio or 0.0, it.reading.unused_share or 0.0), default=None)
    metrics = _measure(device, None if worst is None else worst.reading)
    return FragmentDevice(
        device_id=device.index,
        device_uuid=provenance.uuid_of(device.uuid),
        memory_source=device.memory_source,
        pid=None if worst is None else worst.reading.pid,
        current_metrics=metrics,
        trend_analysis=_describe_trend(device, None if worst is None else worst.trend),
        allocation_pattern=_describe_pattern(None if worst is None else worst.pattern),
        recommendations=_advise(device, metrics, [it for it in findings if it.device == device.index]),
    )


def _measure(device: DeviceLog, reading: FragmentationReading | None) -> FragmentMetrics:
    total = None if device.last is None else device.last.total_bytes
    held = device.allocator.reserved_bytes
    live = device.allocator.allocated_bytes
    stranded = None if reading is None else reading.stranded_bytes
    ratio = None if reading is None else reading.ratio
    told = reading is not None and reading.measure is not None
    return FragmentMetrics(
        fragmentation_level=level_of(ratio),
        fragmentation_ratio=ratio,
        measure=None if reading is None or ratio is None else reading.measure,
        num_free_blocks=None if reading is None else reading.free_blocks,
        largest_free_block_mb=None if reading is None else _mib(reading.largest_free_bytes),
        allocation_efficiency=None if live is None or not held else live / held,
        defrag_benefit=None if stranded is None or not total else stranded / total,
        internal_fragmentation=None if reading is None else reading.internal,
        external_fragmentation=None if reading is None else reading.external,
        stranded_mb=_mib(stranded),
        cached_mb=None if reading is None else _mib(reading.cached_bytes),
        unused_share=None if reading is None else reading.unused_share,
        headroom_mb=None if reading is None else _mib(reading.headroom_bytes),
        reason=None if told else NOT_HELD if device.memory_source == "allocator" else NOT_TOLD,
    )


def _describe_trend(device: DeviceLog, trend: FragmentationTrend | None) -> FragmentTrend | Nothing:
    if trend is None:
        return Nothing()
    return FragmentTrend(
        device_id=device.index,
        duration_minutes=trend.duration_s / 60.0,
        data_points=len(trend.points),
        measure=trend.measure,
        current_fragmentation=trend.current,
        min_fragmentation=trend.least,
        max_fragmentation=trend.most,
        avg_fragmentation=trend.average,
        trend_slope=trend.slope_per_s,
        trend_description=trend.description,
    )


def _describe_pattern(pattern: AllocationPattern | None) -> FragmentPattern:
    if pattern is None:
        return FragmentPattern(
            average_allocation_size_mb=None,
            allocation_frequency=None,
            deallocation_frequency=None,
            temporal_pattern=None,
            size_distribution={},
        )
    return FragmentPattern(
        average_allocation_size_mb=_mib(pattern.average_bytes),
        allocation_frequency=pattern.allocations_per_s,
        deallocation_frequency=pattern.frees_per_s,
        temporal_pattern=pattern.temporal_pattern,
        size_distribution=dict(pattern.sizes),
    )


def _advise(device: DeviceLog, metrics: FragmentMetrics, findings: Sequence[ReportFinding]) -> FragmentAdvice:
    said = [it.advice for it in findings if it.advice and it.closed_s is None]
    level = metrics.fragmentation_level
    return FragmentAdvice(
        device_id=device.index,
        current_fragmentation_level=level,
        fragmentation_ratio=metrics.fragmentation_ratio,
        defrag_benefit=metrics.defrag_benefit,
        recommendations=list(dict.fromkeys(said)) or ([metrics.reason] if metrics.reason else []),
        priority="low" if level is None else _PRIORITIES[level],
    )


def _mib(value_bytes: float | None) -> float | None:
    return None if value_bytes is None else value_bytes / MIB
