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
from ...engine.units import MIB, format_bytes, format_share
from .frame import (
    KINDS,
    Provenance,
    ReportEvidence,
    ReportFinding,
    describe_evidence,
    describe_findings,
    stamp_now,
)
from .log import DeviceLog, MemorySource, RunLog
from .oom import Nothing

FRAGMENT_SCHEMA: Final = "vramscope.fragment/1"
METHOD = (
    "`fragmentation_ratio` is 1 - largest free block / free bytes if a segment map is known, else inactive "
    "split bytes over reserved bytes; null if neither is known. Device memory alone does not show "
    "fragmentation. The trend names its measure; it is the robust slope of that measure and its shift from "
    "the first third to the last, relative to its range. Frequencies come from the allocator's counters."
)
NO_DATA = "no allocator data of this device: start the job with `vramscope run`, or give a file that has it"
NOT_HELD = "reserved memory is unknown, and without it fragmentation cannot be measured"
NOT_SPLIT = (
    "neither a segment map nor inactive split bytes are known, so stranded and cached bytes cannot be "
    "separated"
)
Priority = Literal["low", "medium", "high", "urgent"]
NEGLIGIBLE_SHARE = 0.01
"""Share of the device below which the free bytes that a ratio is about are not worth a change."""
AMPLE_SHARE = 0.1
"""Share of the limit that must be left above the recent peak for fragmentation to cost nothing yet."""
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
    """How the job allocates: sizes of a segment map or a trace, frequencies of the allocator's counters."""

    average_allocation_size_mb: float | None
    allocation_frequency: float | None
    deallocation_frequency: float | None
    temporal_pattern: str | None
    size_distribution: dict[str, int]


class FragmentAdvice(msgspec.Struct, frozen=True, kw_only=True):
    device_id: int
    current_fragmentation_level: Level | None
    fragmentation_ratio: float | None
    defrag_benefit: float | None
    recommendations: list[str]
    priority: Priority


class FragmentDevice(msgspec.Struct, frozen=True, kw_only=True):
    device_id: int
    device_uuid: str | None
    memory_source: MemorySource
    pid: int | None
    """The process of the values; of several on the device the most fragmented."""
    current_metrics: FragmentMetrics
    trend_analysis: FragmentTrend | Nothing
    allocation_pattern: FragmentPattern
    recommendations: FragmentAdvice


class FragmentSummary(msgspec.Struct, frozen=True, kw_only=True):
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
    worst = find_worst(device, figures)
    metrics = _measure(device, None if worst is None else worst.reading)
    return FragmentDevice(
        device_id=device.index,
        device_uuid=provenance.uuid_of(device.uuid),
        memory_source=device.memory_source,
        pid=None if worst is None else worst.reading.pid,
        current_metrics=metrics,
        trend_analysis=_describe_trend(device, None if worst is None else worst.trend),
        allocation_pattern=_describe_pattern(device, None if worst is None else worst.pattern),
        recommendations=_advise(
            device,
            metrics,
            [it for it in findings if it.device == device.index],
            None if worst is None else worst.reading,
        ),
    )


def find_worst(device: DeviceLog, figures: Sequence[FragmentationFigures]) -> FragmentationFigures | None:
    """Return the most fragmented allocator of a device; None if none reports."""
    own = [it for it in figures if it.reading.device_uuid == device.uuid]
    return max(own, key=lambda it: (it.reading.ratio or 0.0, it.reading.unused_share or 0.0), default=None)


def _measure(device: DeviceLog, reading: FragmentationReading | None) -> FragmentMetrics:
    total = None if device.last is None else device.last.total_bytes
    held = device.allocator.reserved_bytes
    live = device.allocator.allocated_bytes
    stranded = None if reading is None else reading.stranded_bytes
    ratio = None if reading is None else reading.ratio
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
        reason=None if ratio is not None else _explain_absence(device, reading),
    )


def _explain_absence(device: DeviceLog, reading: FragmentationReading | None) -> str:
    if reading is not None and reading.measure is not None:
        if reading.unused_share is None:
            return NOT_SPLIT
        return f"{NOT_SPLIT}: both together are {format_share(reading.unused_share, 1)} of what is reserved"
    return NOT_HELD if device.memory_source == "allocator" else NO_DATA


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


def _describe_pattern(device: DeviceLog, pattern: AllocationPattern | None) -> FragmentPattern:
    """Return how a job allocates; the counters of all its processes if no trace has the frequencies."""
    known = pattern or AllocationPattern(0, None, {})
    counts = device.counts
    has_rates = known.allocations_per_s is not None
    return FragmentPattern(
        average_allocation_size_mb=_mib(known.average_bytes),
        allocation_frequency=known.allocations_per_s if has_rates else counts.allocations_per_s,
        deallocation_frequency=known.frees_per_s if has_rates else counts.frees_per_s,
        temporal_pattern=known.temporal_pattern if has_rates else counts.pattern,
        size_distribution=dict(known.sizes),
    )


def _advise(
    device: DeviceLog,
    metrics: FragmentMetrics,
    findings: Sequence[ReportFinding],
    reading: FragmentationReading | None,
) -> FragmentAdvice:
    said = [it.advice for it in findings if it.advice and it.closed_s is None]
    level = metrics.fragmentation_level
    is_negligible = False
    if level not in (None, "low") and reading is not None:
        is_negligible = not said and _is_negligible(device, reading)
        said += _recommend(device, reading, is_negligible=is_negligible)
    return FragmentAdvice(
        device_id=device.index,
        current_fragmentation_level=level,
        fragmentation_ratio=metrics.fragmentation_ratio,
        defrag_benefit=metrics.defrag_benefit,
        recommendations=list(dict.fromkeys(said)) or ([metrics.reason] if metrics.reason else []),
        priority="low" if level is None or is_negligible else _PRIORITIES[level],
    )


def _free_bytes(reading: FragmentationReading) -> int:
    """Return the free bytes that the ratio is about."""
    concerned = reading.cached_bytes if reading.measure == "external" else reading.stranded_bytes
    return concerned or reading.stranded_bytes or 0


def _is_negligible(device: DeviceLog, reading: FragmentationReading) -> bool:
    total = None if device.last is None else device.last.total_bytes
    return total is not None and _free_bytes(reading) < NEGLIGIBLE_SHARE * total


def _recommend(device: DeviceLog, reading: FragmentationReading, *, is_negligible: bool) -> list[str]:
    """Return what to do about an allocator, from its own figures."""
    free = _free_bytes(reading)
    if is_negligible:
        return [f"Only {format_bytes(free)} is free in pieces, under 1 % of the device: nothing to do"]
    stranded = reading.stranded_bytes
    cached = reading.cached_bytes
    said = []
    if reading.measure == "external":
        largest = format_bytes(reading.largest_free_bytes)
        said.append(
            f"{format_bytes(free)} is free in {reading.free_blocks or 0:,} blocks, the largest of {largest}: "
            "a larger request needs new memory from the device"
        )
    is_expandable = "expandable_segments:true" in device.settings.get(reading.pid or 0, "").lower()
    if stranded:
        remedy = (
            "expandable segments are on already, so bring the lengths of batches into a few buckets"
            if is_expandable
            else "start the job with PYTORCH_ALLOC_CONF=expandable_segments:True, or bring the lengths of "
            "batches into a few buckets"
        )
        said.append(
            f"{format_bytes(stranded)} is stranded next to live blocks and cannot be given back: {remedy}; "
            "`vramscope inspect` of a memory snapshot shows what other settings would have reserved"
        )
    spare = max(0, (cached or 0) - (stranded or 0))
    if cached is not None and spare >= NEGLIGIBLE_SHARE * (reading.reserved_bytes or 0):
        said.append(
            f"torch.cuda.empty_cache() between two phases gives {format_bytes(spare)} of cache back to "
            "the device"
        )
    if reading.headroom_bytes is not None:
        left = format_bytes(reading.headroom_bytes)
        is_enough = reading.headroom_bytes >= AMPLE_SHARE * (reading.limit_bytes or 0)
        said.append(
            f"No problem yet: {left} is left above the recent peak"
            if is_enough
            else f"only {left} is left above the recent peak: these pieces may cause an out-of-memory error"
        )
    return said


def _mib(value_bytes: float | None) -> float | None:
    return None if value_bytes is None else value_bytes / MIB
