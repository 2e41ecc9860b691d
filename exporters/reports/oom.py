"""The report of `vramscope oom`: the risk of each device, and what it rests on."""

from typing import Final, Literal

import msgspec

from ...engine.model import Assessment, RiskLevel
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
from .oom_risk import LEVELS, DeviceRisk, judge_device, list_assessments
from .risk_rule import Thresholds, fit_growth
from .run_log import RunLog

OOM_SCHEMA: Final = "vramscope.oom/1"
METHOD = (
    "Where an allocator tells of a job: step floors, their robust rate, and the first passage of recent step "
    "amplitudes over what the process can get (basis `forecast`). With device memory alone no error can be "
    "foretold: shares of the device against --threshold and --critical decide (basis `threshold`). Where "
    "these were given, usage above them is a finding (`threshold`) and decides whatever the forecast says."
)
TREND_S = 600.0
"""Seconds that the trend spans, the newest."""


class Nothing(msgspec.Struct, frozen=True):
    """An empty object: there is nothing to tell."""


class ProcessRisk(msgspec.Struct, frozen=True, kw_only=True):
    """The forecast for one process; None is unknown."""

    pid: int | None
    rank: int | None
    risk_level: RiskLevel
    reason: str
    confidence: float | None
    probability: float | None
    horizon_seconds: float | None
    steps_ahead: int | None
    probability_within_steps: float | None
    predicted_oom_time_seconds: float | None
    predicted_oom_time_low_seconds: float | None
    predicted_oom_time_high_seconds: float | None
    capacity: int | None
    """Most bytes that its live tensors can really take."""
    floor: int | None
    peak: int | None
    growth_rate_mb_per_sec: float | None
    growth_mb_per_step: float | None
    watched_seconds: float | None
    watched_steps: int | None


class RiskAssessment(msgspec.Struct, frozen=True, kw_only=True):
    """The risk of one device; MiB, seconds, shares of 0 to 1."""

    risk_level: RiskLevel
    basis: Literal["forecast", "threshold"]
    forecast: RiskLevel
    reason: str
    confidence: float | None
    current_usage_percent: float | None
    growth_rate_mb_per_sec: float | None
    predicted_oom_time_seconds: float | None
    """Median time to the error; None where none is foreseen or nobody can say."""
    predicted_oom_time_low_seconds: float | None
    """Lower end of the 80 % interval."""
    predicted_oom_time_high_seconds: float | None
    probability: float | None
    horizon_seconds: float | None
    time_to_full_seconds: float | None
    """Free bytes over the growth of device memory: an extrapolation, no forecast of an error."""
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
    """One device of the report."""

    device_id: int
    device_uuid: str | None
    memory_source: MemorySource
    risk_assessment: RiskAssessment
    processes: list[ProcessRisk]
    memory_trends: MemoryTrends | Nothing


class RiskSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All devices together."""

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
    recommendations: list[str]
    method: str = METHOD
    evidence: ReportEvidence
    findings: tuple[ReportFinding, ...]


def build_oom(log: RunLog, provenance: Provenance, thresholds: Thresholds) -> OomReport:
    """Return the report of a period.

    Args:
        log: The period.
        provenance: Where its samples come from.
        thresholds: Of the rule that decides where there is no forecast.
    """
    risks = {log.key_of(it): (it, judge_device(log, it, thresholds)) for it in log.devices.values()}
    findings = describe_findings(log, provenance, KINDS["oom"])
    return OomReport(
        timestamp=stamp_now(),
        devices={
            key: _describe(log, device, risk, provenance, thresholds) for key, (device, risk) in risks.items()
        },
        risk_summary=_summarize(log, list(risks.values())),
        recommendations=_recommend([risk for _, risk in risks.values()], findings),
        evidence=describe_evidence(log, provenance),
        findings=findings,
    )


def describe_risk(device: DeviceLog, risk: DeviceRisk) -> RiskAssessment:
    """Return the risk of a device as reports print it."""
    last = device.last
    assessment = None if risk.forecast == "unknown" else risk.assessment
    return RiskAssessment(
        risk_level=risk.level,
        basis=risk.basis,
        forecast=risk.forecast,
        reason=risk.reason,
        confidence=risk.confidence,
        current_usage_percent=None if last is None else last.utilization_percent,
        growth_rate_mb_per_sec=risk.growth_mib_per_s,
        predicted_oom_time_seconds=None if assessment is None else assessment.oom_in_s,
        predicted_oom_time_low_seconds=None if assessment is None else assessment.oom_in_low_s,
        predicted_oom_time_high_seconds=None if assessment is None else assessment.oom_in_high_s,
        probability=None if assessment is None else assessment.probability,
        horizon_seconds=None if assessment is None else assessment.horizon_s,
        time_to_full_seconds=risk.threshold.time_to_full_s,
        recommendation=risk.recommendation,
    )


def describe_trend(device: DeviceLog, *, span_s: float = TREND_S, window: int) -> MemoryTrends | Nothing:
    """Return the newest of what was taken of a device.

    Args:
        device: The device.
        span_s: Seconds to look back from the newest snapshot.
        window: Snapshots that the growth is fitted to.
    """
    source = device.memory_source
    last = device.last
    since_s = 0.0 if last is None else last.time_s - span_s
    points = [(it.time_s, it.taken_bytes(source)) for it in device.snapshots if it.time_s >= since_s]
    known = [(time_s, taken) for time_s, taken in points if taken is not None]
    if not known:
        return Nothing()
    values = [taken for _, taken in known]
    return MemoryTrends(
        device_id=device.index,
        start_time=known[0][0],
        end_time=known[-1][0],
        min_memory=min(values),
        max_memory=max(values),
        avg_memory=sum(values) / len(values),
        current_memory=values[-1],
        growth_rate_mb_per_sec=fit_growth(device, window),
        data_points=len(values),
    )


def _describe(
    log: RunLog, device: DeviceLog, risk: DeviceRisk, provenance: Provenance, thresholds: Thresholds
) -> OomDevice:
    return OomDevice(
        device_id=device.index,
        device_uuid=provenance.uuid_of(device.uuid),
        memory_source=device.memory_source,
        risk_assessment=describe_risk(device, risk),
        processes=[_describe_process(it) for it in list_assessments(log, device)],
        memory_trends=describe_trend(device, window=thresholds.window),
    )


def _describe_process(assessment: Assessment) -> ProcessRisk:
    per_s = assessment.growth_bytes_per_s
    per_step = assessment.growth_bytes_per_step
    return ProcessRisk(
        pid=assessment.pid,
        rank=assessment.rank,
        risk_level=assessment.level,
        reason=assessment.reason,
        confidence=assessment.confidence,
        probability=assessment.probability,
        horizon_seconds=assessment.horizon_s,
        steps_ahead=assessment.steps_ahead,
        probability_within_steps=assessment.probability_within_steps,
        predicted_oom_time_seconds=assessment.oom_in_s,
        predicted_oom_time_low_seconds=assessment.oom_in_low_s,
        predicted_oom_time_high_seconds=assessment.oom_in_high_s,
        capacity=assessment.capacity_bytes,
        floor=assessment.floor_bytes,
        peak=assessment.peak_bytes,
        growth_rate_mb_per_sec=None if per_s is None else per_s / MIB,
        growth_mb_per_step=None if per_step is None else per_step / MIB,
        watched_seconds=assessment.watched_s,
        watched_steps=assessment.watched_steps,
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
    """Return what to do, the gravest first: the advice of open findings, then of the devices."""
    ordered = sorted(
        (it for it in findings if it.closed_s is None), key=lambda it: -LEVELS.index(it.severity)
    )
    graver = sorted(
        (it for it in risks if it.level not in ("low", "unknown")), key=lambda it: -LEVELS.index(it.level)
    )
    said = [*(it.advice for it in ordered if it.advice), *(it.recommendation for it in graver)]
    return list(dict.fromkeys(said))
