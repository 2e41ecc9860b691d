"""How near a device is to running out of memory: the forecast where there is one, else the rule on usage."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from ...engine.model import Assessment, RiskLevel
from ...engine.units import MIB
from .device_log import DeviceLog
from .risk_rule import ThresholdRisk, Thresholds, judge_usage
from .run_log import RunLog

LEVELS: tuple[RiskLevel, ...] = ("unknown", "low", "medium", "high", "critical")
_ADVICE: dict[RiskLevel, str] = {
    "low": "Nothing to do: the forecast sees no error ahead",
    "medium": "Watch it: an error is possible ahead; have a smaller batch size ready",
    "high": "Reduce the batch size or free what is kept between steps: an error is likely ahead",
    "critical": "Act before the next steps: reduce the batch size, free memory, or save a checkpoint",
    "unknown": "Nothing can be foretold yet",
}


class DeviceRisk(NamedTuple):
    """The risk of one device, with what it rests on."""

    level: RiskLevel
    basis: Literal["forecast", "threshold"]
    reason: str
    recommendation: str
    confidence: float | None
    growth_mib_per_s: float | None
    forecast: RiskLevel
    """What the forecast says; `unknown` with device memory alone."""
    assessment: Assessment | None
    """The forecast of the process that stands worst; None where nobody forecasts."""
    threshold: ThresholdRisk


def judge_device(log: RunLog, device: DeviceLog, thresholds: Thresholds) -> DeviceRisk:
    """Return the risk of one device.

    Args:
        log: The period.
        device: The device in it.
        thresholds: Of the rule that decides where there is no forecast.
    """
    threshold = judge_usage(device, thresholds)
    worst = max(list_assessments(log, device), key=_rank, default=None)
    is_known = worst is not None and worst.level != "unknown"
    if worst is None or not is_known or _is_outweighed(worst, threshold, device, thresholds):
        reason = _explain_absence(device) if worst is None else worst.reason
        if worst is not None and is_known:
            reason = (
                f"its usage is above a threshold that was given; the forecast says {worst.level}: {reason}"
            )
        return DeviceRisk(
            threshold.level,
            "threshold",
            reason,
            threshold.recommendation,
            threshold.confidence,
            threshold.growth_mib_per_s,
            "unknown" if worst is None else worst.level,
            worst,
            threshold,
        )
    growth = worst.growth_bytes_per_s
    return DeviceRisk(
        worst.level,
        "forecast",
        worst.reason,
        _find_advice(log, device) or _ADVICE[worst.level],
        worst.confidence,
        threshold.growth_mib_per_s if growth is None else growth / MIB,
        worst.level,
        worst,
        threshold,
    )


def _is_outweighed(
    worst: Assessment, threshold: ThresholdRisk, device: DeviceLog, thresholds: Thresholds
) -> bool:
    """Return whether usage above thresholds that the user gave says more than the forecast."""
    usage = None if device.last is None else device.last.utilization_percent
    if not thresholds.is_given or usage is None or usage < thresholds.warning_percent:
        return False
    return LEVELS.index(threshold.level) > LEVELS.index(worst.level)


def list_assessments(log: RunLog, device: DeviceLog) -> Sequence[Assessment]:
    """Return the forecasts for a device that still hold: those of processes that live, or its own.

    A forecast is published when it changes; its times are told from the newest sample on.
    """
    last = log.last
    living = set() if last is None else {rank.pid for rank in last.ranks if rank.state != "ended"}
    return [
        it if last is None else _bring_forward(it, last.time_s)
        for it in log.assessments_of(device.uuid)
        if it.pid is None or it.pid in living
    ]


def _bring_forward(assessment: Assessment, now_s: float) -> Assessment:
    passed_s = max(0.0, now_s - assessment.time_s)

    def left(time_s: float | None) -> float | None:
        return None if time_s is None else max(0.0, time_s - passed_s)

    return msgspec.structs.replace(
        assessment,
        time_s=max(now_s, assessment.time_s),
        oom_in_s=left(assessment.oom_in_s),
        oom_in_low_s=left(assessment.oom_in_low_s),
        oom_in_high_s=left(assessment.oom_in_high_s),
    )


def _explain_absence(device: DeviceLog) -> str:
    if device.memory_source == "device":
        return "device memory alone foretells no error"
    return "there is no forecast from the allocator's figures yet"


def _rank(assessment: Assessment) -> tuple[int, float]:
    return LEVELS.index(assessment.level), assessment.probability or 0.0


def _find_advice(log: RunLog, device: DeviceLog) -> str | None:
    """Return what the gravest open forecast for the device advises."""
    found = [finding for finding in log.findings_of(device.uuid) if finding.kind == "oom" and finding.is_open]
    worst = max(found, key=lambda finding: LEVELS.index(finding.severity), default=None)
    return None if worst is None else worst.advice or None
