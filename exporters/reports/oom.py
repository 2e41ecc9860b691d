"""The report of `vramscope oom`: the risk of each device, and what it rests on."""

from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from ...analyzers.risk import Risk
from ...engine.model import Assessment, RiskLevel
from ...engine.units import MIB
from .frame import (
    KINDS,
    Provenance,
    ReportEvidence,
    ReportFinding,
    describe_evidence,
    describe_findings,
    stamp_now,
)
from .growth import (
    WINDOW,
    UsedTrend,
    assess_device,
    describe_used,
    find_peak_rate,
    find_rate,
    find_time_to_full,
    list_assessments,
)
from .log import DeviceLog, MemorySource, RunLog

# The rule on usage alone, for devices without allocator data: how full, without a forecast.

SOON_S = 60.0
"""A device that would be full within this time at its current growth has a higher risk."""
FAST_MIB_PER_S = 10.0
LEAST_SPAN_S = 5.0
"""Growth over a shorter time decides nothing."""
SURE_SNAPSHOTS = 30
"""Snapshots from which on the rule has its full confidence."""
_CONFIDENCE = {"critical": 0.9, "high": 0.8, "medium": 0.6, "low": 0.3}
_RECOMMENDATIONS: dict[RiskLevel, str] = {
    "critical": "The device is almost full: free memory, or reduce the batch size",
    "high": "The device fills within a minute at this rate: reduce the batch size or empty the cache",
    "medium": "Watch it: the device is filling up, or its usage grows fast",
    "low": "Nothing to do: the device is neither full nor filling",
    "unknown": "Unknown: the device does not report its memory",
}
# The driver cannot distinguish a cache that the job can reuse from memory that it needs.
_LOOK_INSIDE = "start the job with `vramscope run` (or `vramscope attach PID`) to see how much of it is cache"
_DRIVER_RECOMMENDATIONS: dict[RiskLevel, str] = _RECOMMENDATIONS | {
    "critical": f"The device is almost full, as cache or as need: {_LOOK_INSIDE}",
    "high": f"The device fills within a minute at this rate, with cache or with need: {_LOOK_INSIDE}",
}


class ThresholdRisk(NamedTuple):
    """What usage alone says of one device."""

    level: RiskLevel
    confidence: float | None
    """Confidence of the rule, rising with the samples seen; it was never calibrated."""
    growth_mib_per_s: float | None
    time_to_full_s: float | None
    """Free bytes over growth: when the device would be full, not when a job would fail."""


class Thresholds(NamedTuple):
    """Shares of the device's memory at which the rule changes its word, in percent."""

    warning_percent: float = 85.0
    critical_percent: float = 95.0
    window: int = WINDOW
    """Newest snapshots that a rate is fitted to, where the analyzers have none."""
    is_given: bool = False
    """Whether the user gave them: then usage above them takes precedence over a forecast."""


def judge_usage(log: RunLog, device: DeviceLog, thresholds: Thresholds) -> ThresholdRisk:
    """Return what usage alone says of a device.

    At the critical threshold critical; at the warning threshold medium, or high where it would be full
    within a minute; below it medium where it grows by more than 10 MiB/s, else low. The rule is that of the
    tool whose report this is; growth is that of every report.
    """
    last = device.last
    usage = None if last is None else last.utilization_percent
    rate = find_rate(log, device, thresholds.window)
    growth = None if rate is None else rate / MIB
    if last is None or usage is None:
        return ThresholdRisk("unknown", None, growth, None)
    to_full_s = find_time_to_full(log, device, rate)
    level, base = _judge(
        usage, growth if _is_meaningful(device, thresholds.window) else None, to_full_s, thresholds
    )
    return ThresholdRisk(level, base * min(1.0, device.count / SURE_SNAPSHOTS), growth, to_full_s)


def _is_meaningful(device: DeviceLog, window: int) -> bool:
    """Return whether growth is more than what every step allocates and frees again.

    Live bytes rise and fall within each step; what the device or the allocator holds does not.
    """
    newest = list(device.snapshots)[-window:]
    return device.utilization_of != "allocated" and newest[-1].time_s - newest[0].time_s >= LEAST_SPAN_S


def _judge(
    usage: float, growth: float | None, to_full_s: float | None, thresholds: Thresholds
) -> tuple[RiskLevel, float]:
    if usage >= thresholds.critical_percent:
        return "critical", _CONFIDENCE["critical"]
    if usage >= thresholds.warning_percent:
        is_soon = to_full_s is not None and to_full_s < SOON_S
        return ("high", _CONFIDENCE["high"]) if is_soon else ("medium", _CONFIDENCE["medium"])
    if growth is not None and growth > FAST_MIB_PER_S:
        return "medium", 0.5
    return "low", _CONFIDENCE["low"]


# How near a device is to running out of memory: the forecast where there is one, else the rule on usage.

LEVELS: tuple[RiskLevel, ...] = ("unknown", "low", "medium", "high", "critical")
_ADVICE: dict[RiskLevel, str] = {
    "low": "Nothing to do: no error is expected",
    "medium": "Watch it: an error is possible; have a smaller batch size ready",
    "high": "Reduce the batch size or free what is kept between steps: an error is likely",
    "critical": "Act before the next steps: reduce the batch size, free memory, or save a checkpoint",
    "unknown": "No forecast yet",
}


Basis: TypeAlias = Literal["forecast", "finding", "threshold"]
"""A forecast from the allocator's data; a finding that says more, as of an error that was met or of
fragmentation; or the thresholds on usage alone."""


class DeviceRisk(NamedTuple):
    level: RiskLevel
    basis: Basis
    reason: str
    recommendation: str
    confidence: float | None
    growth_mib_per_s: float | None
    forecast: RiskLevel
    """What the live view says; `unknown` with device memory alone."""
    assessment: Assessment | None
    """The forecast of the process at most risk; None without a forecast."""
    threshold: ThresholdRisk


def judge_device(log: RunLog, device: DeviceLog, thresholds: Thresholds) -> DeviceRisk:
    """Return the risk of one device, as the live view has it; `thresholds` decide where it has none."""
    threshold = judge_usage(log, device, thresholds)
    worst = max(list_assessments(log, device), key=_rank, default=None)
    risk = assess_device(log, device)
    is_known = risk.level != "unknown"
    # The words of a forecast are shorter than the finding that opened with it.
    is_forecast = worst is not None and worst.level == risk.level
    reason = worst.reason if worst is not None and is_forecast else risk.reason
    if not is_known or _is_outweighed(risk, threshold, device, thresholds):
        if is_known:
            reason = f"usage is above the given threshold; the forecast is {risk.level}: {reason}"
        elif worst is None and device.memory_source == "device":
            reason = "device memory alone gives no forecast"
        return DeviceRisk(
            threshold.level,
            "threshold",
            reason,
            _recommend_by_usage(device, threshold.level),
            threshold.confidence,
            threshold.growth_mib_per_s,
            risk.level,
            worst,
            threshold,
        )
    return DeviceRisk(
        risk.level,
        "forecast" if is_forecast else "finding",
        reason,
        _find_advice(log, device, risk) or _ADVICE[risk.level],
        worst.confidence if worst is not None and is_forecast else None,
        threshold.growth_mib_per_s,
        risk.level,
        worst,
        threshold,
    )


def _recommend_by_usage(device: DeviceLog, level: RiskLevel) -> str:
    is_driver_alone = device.memory_source == "device" and device.kind not in ("unified", "cpu")
    return (_DRIVER_RECOMMENDATIONS if is_driver_alone else _RECOMMENDATIONS)[level]


def _is_outweighed(risk: Risk, threshold: ThresholdRisk, device: DeviceLog, thresholds: Thresholds) -> bool:
    """Return whether usage above thresholds that the user gave says more than the forecast."""
    usage = None if device.last is None else device.last.utilization_percent
    if not thresholds.is_given or usage is None or usage < thresholds.warning_percent:
        return False
    return LEVELS.index(threshold.level) > LEVELS.index(risk.level)


def _rank(assessment: Assessment) -> tuple[int, float]:
    return LEVELS.index(assessment.level), assessment.probability or 0.0


def _find_advice(log: RunLog, device: DeviceLog, risk: Risk) -> str | None:
    """Return the advice of the finding that a risk rests on, else of the most severe open forecast."""
    found = [log.renew(it) for it in log.findings_of(device.uuid) if it.is_open]
    named = [it for it in found if it.title == risk.reason] or [it for it in found if it.kind == "oom"]
    worst = max(named, key=lambda finding: LEVELS.index(finding.severity), default=None)
    return None if worst is None else worst.advice or None


OOM_SCHEMA: Final = "vramscope.oom/1"
METHOD = (
    "With allocator data of a job: step floors, their robust rate, and the first passage of recent step "
    "amplitudes over what the process can get (basis `forecast`). Device memory alone gives no forecast: the "
    "used share is compared with --threshold and --critical (basis `threshold`). If these are given, usage "
    "above them is a finding (`threshold`) and takes precedence over the forecast. A finding that says more "
    "than the forecast decides (basis `finding`)."
)
TREND_S = 600.0
"""Seconds that the trend spans, the newest."""


class Nothing(msgspec.Struct, frozen=True):
    """An empty object: there is no data."""


_JSON_NAMES = {
    "level": "risk_level",
    "horizon_s": "horizon_seconds",
    "oom_in_s": "predicted_oom_time_seconds",
    "oom_in_low_s": "predicted_oom_time_low_seconds",
    "oom_in_high_s": "predicted_oom_time_high_seconds",
    "capacity_bytes": "capacity",
    "floor_bytes": "floor",
    "peak_bytes": "peak",
    "watched_s": "watched_seconds",
}
"""Names of the original's reports for the fields of an `Assessment`."""


class ProcessRisk(msgspec.Struct, frozen=True, kw_only=True, rename=_JSON_NAMES):
    """The forecast for one process; None is unknown."""

    pid: int | None
    rank: int | None
    level: RiskLevel
    reason: str
    confidence: float | None
    probability: float | None
    horizon_s: float | None
    steps_ahead: int | None
    probability_within_steps: float | None
    oom_in_s: float | None
    oom_in_low_s: float | None
    oom_in_high_s: float | None
    capacity_bytes: int | None
    """Most bytes that its live tensors can really take."""
    floor_bytes: int | None
    peak_bytes: int | None
    growth_rate_mb_per_sec: float | None = None
    growth_mb_per_step: float | None = None
    watched_s: float | None
    watched_steps: int | None


class RiskAssessment(msgspec.Struct, frozen=True, kw_only=True):
    """The risk of one device; MiB, seconds, shares of 0 to 1."""

    risk_level: RiskLevel
    basis: Basis
    forecast: RiskLevel
    """The level that the live view shows."""
    reason: str
    confidence: float | None
    current_usage_percent: float | None
    growth_rate_mb_per_sec: float | None
    """For what stays between steps, as `leak` has it."""
    peak_growth_rate_mb_per_sec: float | None = None
    """How fast steps take more and more, where growth is seen in peaks; else None."""
    predicted_oom_time_seconds: float | None
    """Median time to the error; None if none is expected or it is unknown."""
    predicted_oom_time_low_seconds: float | None
    """Lower end of the 80 % interval."""
    predicted_oom_time_high_seconds: float | None
    probability: float | None
    horizon_seconds: float | None
    time_to_full_seconds: float | None
    """Free bytes over the growth: an extrapolation, no forecast of an error; None where there is one."""
    recommendation: str


class MemoryTrends(msgspec.Struct, frozen=True, kw_only=True):
    """The newest minutes of one device, in bytes; times in the clock of the samples."""

    device_id: int
    start_time: float
    end_time: float
    min_memory: int
    max_memory: int
    avg_memory: float
    current_memory: int
    growth_rate_mb_per_sec: float | None
    data_points: int


class OomDevice(msgspec.Struct, frozen=True, kw_only=True):
    device_id: int
    device_uuid: str | None
    memory_source: MemorySource
    risk_assessment: RiskAssessment
    processes: list[ProcessRisk]
    memory_trends: MemoryTrends | Nothing
    device_trend: UsedTrend | None = None
    """How device used goes, where no allocator reports."""


class RiskSummary(msgspec.Struct, frozen=True, kw_only=True):
    total_devices: int
    risk_distribution: dict[str, int]
    high_risk_devices: list[int]
    monitoring_duration_hours: float


class OomReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramscope oom` prints."""

    schema: Literal["vramscope.oom/1"] = OOM_SCHEMA
    timestamp: str
    devices: dict[str, OomDevice]
    risk_summary: RiskSummary
    is_threshold_given: bool = False
    """Whether the user gave --threshold or --critical."""
    recommendations: list[str]
    method: str = METHOD
    evidence: ReportEvidence
    findings: tuple[ReportFinding, ...]


def build_oom(log: RunLog, provenance: Provenance, thresholds: Thresholds) -> OomReport:
    risks = {log.key_of(it): (it, judge_device(log, it, thresholds)) for it in log.devices.values()}
    findings = describe_findings(log, provenance, KINDS["oom"])
    return OomReport(
        timestamp=stamp_now(),
        devices={
            key: _describe(log, device, risk, provenance, thresholds) for key, (device, risk) in risks.items()
        },
        risk_summary=_summarize(log, list(risks.values())),
        is_threshold_given=thresholds.is_given,
        recommendations=_recommend([risk for _, risk in risks.values()], findings),
        evidence=describe_evidence(log, provenance),
        findings=findings,
    )


def describe_risk(log: RunLog, device: DeviceLog, risk: DeviceRisk) -> RiskAssessment:
    last = device.last
    peaks = find_peak_rate(log, device)
    known = None if risk.forecast == "unknown" else risk.assessment
    forecast = known or Assessment("", None, None, 0.0, "unknown", "")
    return RiskAssessment(
        risk_level=risk.level,
        basis=risk.basis,
        forecast=risk.forecast,
        reason=risk.reason,
        confidence=risk.confidence,
        current_usage_percent=None if last is None else last.utilization_percent,
        growth_rate_mb_per_sec=risk.growth_mib_per_s,
        peak_growth_rate_mb_per_sec=None if peaks is None else peaks / MIB,
        predicted_oom_time_seconds=forecast.oom_in_s,
        predicted_oom_time_low_seconds=forecast.oom_in_low_s,
        predicted_oom_time_high_seconds=forecast.oom_in_high_s,
        probability=forecast.probability,
        horizon_seconds=forecast.horizon_s,
        time_to_full_seconds=None if forecast.oom_in_s is not None else risk.threshold.time_to_full_s,
        recommendation=risk.recommendation,
    )


def describe_trend(
    log: RunLog, device: DeviceLog, *, span_s: float = TREND_S, window: int
) -> MemoryTrends | Nothing:
    source = device.memory_source
    last = device.last
    since_s = 0.0 if last is None else last.time_s - span_s
    points = [(it.time_s, it.taken_bytes(source)) for it in device.snapshots if it.time_s >= since_s]
    known = [(time_s, taken) for time_s, taken in points if taken is not None]
    if not known:
        return Nothing()
    rate = find_rate(log, device, window)
    values = [taken for _, taken in known]
    return MemoryTrends(
        device_id=device.index,
        start_time=known[0][0],
        end_time=known[-1][0],
        min_memory=min(values),
        max_memory=max(values),
        avg_memory=sum(values) / len(values),
        current_memory=values[-1],
        growth_rate_mb_per_sec=None if rate is None else rate / MIB,
        data_points=len(values),
    )


def _describe(
    log: RunLog, device: DeviceLog, risk: DeviceRisk, provenance: Provenance, thresholds: Thresholds
) -> OomDevice:
    return OomDevice(
        device_id=device.index,
        device_uuid=provenance.uuid_of(device.uuid),
        memory_source=device.memory_source,
        risk_assessment=describe_risk(log, device, risk),
        processes=[_describe_process(it) for it in list_assessments(log, device)],
        memory_trends=describe_trend(log, device, window=thresholds.window),
        device_trend=describe_used(log, device),
    )


def _describe_process(assessment: Assessment) -> ProcessRisk:
    per_s = assessment.growth_bytes_per_s
    per_step = assessment.growth_bytes_per_step
    return msgspec.structs.replace(
        msgspec.convert(assessment, ProcessRisk, from_attributes=True),
        growth_rate_mb_per_sec=None if per_s is None else per_s / MIB,
        growth_mb_per_step=None if per_step is None else per_step / MIB,
    )


def _summarize(log: RunLog, risks: list[tuple[DeviceLog, DeviceRisk]]) -> RiskSummary:
    counts = dict.fromkeys(("low", "medium", "high", "critical", "unknown"), 0)
    for _, risk in risks:
        counts[risk.level] += 1
    return RiskSummary(
        total_devices=len(risks),
        risk_distribution=counts,
        high_risk_devices=[device.index for device, risk in risks if risk.level in ("high", "critical")],
        monitoring_duration_hours=log.span_s / 3600.0,
    )


def _recommend(risks: list[DeviceRisk], findings: tuple[ReportFinding, ...]) -> list[str]:
    """Return what to do, the most severe first: the advice of open findings, then of the devices."""
    ordered = sorted(
        (it for it in findings if it.closed_s is None), key=lambda it: -LEVELS.index(it.severity)
    )
    at_risk = sorted(
        (it for it in risks if it.level not in ("low", "unknown")), key=lambda it: -LEVELS.index(it.level)
    )
    said = [*(it.advice for it in ordered if it.advice), *(it.recommendation for it in at_risk)]
    return list(dict.fromkeys(said))
