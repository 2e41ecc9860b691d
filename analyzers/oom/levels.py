"""How grave a forecast is; the thresholds stand in `docs/verdicts.md`."""

from ...engine.model import RiskLevel, Severity
from .forecast import Forecast

CRITICAL_S, HIGH_S, MEDIUM_S, LOW_S = 120.0, 600.0, 3600.0, 21600.0
"""Median seconds to the error below which a forecast is so grave; beyond the last there is no finding."""
POSSIBLE = 0.2
"""Probability within the horizon from which on a subject without growth is at medium risk."""
BELIEVED = 0.5
"""Least probability that growth goes on for a forecast to be told."""


def grade_finding(forecast: Forecast) -> Severity | None:
    """Return the severity of a finding on a forecast; None where nothing is foreseen."""
    middle_s = forecast.middle_s
    if middle_s is not None and forecast.belief >= BELIEVED:
        for limit_s, severity in _LIMITS:
            if middle_s < limit_s:
                return "high" if forecast.is_pressed and middle_s >= HIGH_S else severity
    return None


def grade_assessment(forecast: Forecast) -> RiskLevel:
    """Return the level of risk of a forecast: that of its finding, and medium where an error may well be."""
    severity = grade_finding(forecast)
    if severity is None:
        return "medium" if forecast.probability >= POSSIBLE else "low"
    return severity


_LIMITS: tuple[tuple[float, Severity], ...] = (
    (CRITICAL_S, "critical"),
    (HIGH_S, "high"),
    (MEDIUM_S, "medium"),
    (LOW_S, "low"),
)
