"""Watched runs made by hand."""

from benchmarks.verdict_detectors import Claim, Forecast
from benchmarks.verdict_runs import Leak, Shape, Truth
from benchmarks.verdict_watch import Moment, Watched

LIVE = Shape("live", 1.0)
BENIGN = Truth()
LEAKING = Truth((Leak(100.0, 1100.0),), oom_s=1100.0, growth_s=100.0)


def make_watched(
    truth: Truth,
    claims: list[Claim],
    moments: list[Moment] | None = None,
    *,
    shape: Shape = LIVE,
    duration_s: float = 3600.0,
    last_step: int | None = None,
    alarms: tuple[tuple[float, float], ...] = (),
    name: str = "it",
) -> Watched:
    """Return a run on one device with the claims and forecasts of one detector."""
    found = {name: claims}
    return Watched(
        "family",
        "family/0",
        shape,
        truth,
        duration_s,
        100,
        1,
        last_step,
        found,
        moments or [],
        alarms=alarms,
    )


def make_claim(kind: str, opened_s: float, closed_s: float | None = None) -> Claim:
    """Return a finding."""
    return Claim(f"{kind} {opened_s}", kind, opened_s, closed_s, "high")


def make_moment(time_s: float, forecast: Forecast, life_share: float | None = None, step: int = 0) -> Moment:
    """Return what the detector foretold at a moment."""
    return Moment(time_s, step, life_share, {"it": forecast})
