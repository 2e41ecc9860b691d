"""How grave a forecast is; the thresholds stand in `docs/verdicts.md`."""

from ...engine.model import RiskLevel, Severity
from ..time_grades import HIGH_S, grade_time_left
from .forecast import Forecast

POSSIBLE = 0.2
"""Probability within the horizon from which on a subject without growth is at medium risk."""
BELIEVED = 0.5
"""Least probability that growth goes on for a forecast to be told."""


def grade_finding(forecast: Forecast) -> Severity | None:
    """Return the severity of a finding on a forecast; None where nothing is foreseen."""
    middle_s = forecast.middle_s
    if middle_s is not None and forecast.belief >= BELIEVED:
        severity = grade_time_left(middle_s)
        is_raised = severity is not None and forecast.is_pressed and middle_s >= HIGH_S
        return "high" if is_raised else severity
    return None


def grade_assessment(forecast: Forecast) -> RiskLevel:
    """Return the level of risk of a forecast: that of its finding, and medium where an error may well be."""
    severity = grade_finding(forecast)
    if severity is None:
        return "medium" if forecast.probability >= POSSIBLE else "low"
    return severity
