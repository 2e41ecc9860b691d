"""What callbacks of an `OOMDetector` are handed."""

from enum import Enum
from typing import Literal

import msgspec

from vramscope.engine.model import RiskLevel
from vramscope.exporters.reports.device_log import DeviceLog
from vramscope.exporters.reports.oom_risk import DeviceRisk


class OOMRiskLevel(Enum):
    """Risk of running out of memory; `unknown` where nobody can say."""

    UNKNOWN = "unknown"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class OOMPrediction(msgspec.Struct, frozen=True, kw_only=True):
    """The risk of one device; None is unknown."""

    device_id: int
    risk_level: OOMRiskLevel
    predicted_oom_time: float | None
    """Median seconds to the error, from now; None where none is foreseen."""
    confidence: float | None
    current_usage: float | None
    """Share of the device's memory that is taken, 0 to 1."""
    growth_rate: float | None
    """MiB a second."""
    recommendation: str
    basis: Literal["forecast", "threshold"]
    """A forecast from the allocator's figures, or the rule on usage alone."""
    reason: str
    predicted_oom_time_low: float | None = None
    """Lower end of the 80 % interval."""
    predicted_oom_time_high: float | None = None
    probability: float | None = None
    """Probability of an error within `horizon` seconds."""
    horizon: float | None = None
    is_simulated: bool = False
    """Whether it is of a scenario that never happened."""


class OOMEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An out-of-memory error that a process met; None is unknown."""

    timestamp: float
    device_id: int
    requested_memory: int | None
    available_memory: int | None
    total_memory: int | None
    stack_trace: str | None = None
    context_info: dict[str, object] | None = None


LEVELS: dict[RiskLevel, OOMRiskLevel] = {
    "unknown": OOMRiskLevel.UNKNOWN,
    "low": OOMRiskLevel.LOW,
    "medium": OOMRiskLevel.MEDIUM,
    "high": OOMRiskLevel.HIGH,
    "critical": OOMRiskLevel.CRITICAL,
}


def make_prediction(device: DeviceLog, risk: DeviceRisk, *, is_simulated: bool = False) -> OOMPrediction:
    """Return the risk of a device as callbacks see it."""
    usage = None if device.last is None else device.last.utilization_percent
    forecast = None if risk.forecast == "unknown" else risk.assessment
    return OOMPrediction(
        device_id=device.index,
        risk_level=LEVELS[risk.level],
        predicted_oom_time=None if forecast is None else forecast.oom_in_s,
        confidence=risk.confidence,
        current_usage=None if usage is None else usage / 100.0,
        growth_rate=risk.growth_mib_per_s,
        recommendation=risk.recommendation,
        basis=risk.basis,
        reason=risk.reason,
        predicted_oom_time_low=None if forecast is None else forecast.oom_in_low_s,
        predicted_oom_time_high=None if forecast is None else forecast.oom_in_high_s,
        probability=None if forecast is None else forecast.probability,
        horizon=None if forecast is None else forecast.horizon_s,
        is_simulated=is_simulated,
    )
