"""How grave it is that memory runs out in so long; the thresholds stand in `docs/verdicts.md`."""

from ..engine.model import Severity

CRITICAL_S = 120.0
HIGH_S = 600.0
MEDIUM_S = 3600.0
LOW_S = 21600.0
"""Seconds to the error below which it is so grave; beyond the last nothing is told."""

_LIMITS: tuple[tuple[float, Severity], ...] = (
    (CRITICAL_S, "critical"),
    (HIGH_S, "high"),
    (MEDIUM_S, "medium"),
    (LOW_S, "low"),
)


def grade_time_left(seconds: float) -> Severity | None:
    """Return how grave it is to have so many seconds left; None where they are too many to tell."""
    return next((severity for limit_s, severity in _LIMITS if seconds < limit_s), None)
