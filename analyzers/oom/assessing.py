"""A forecast as an assessment."""

from ...engine.model import Assessment
from ..subjects import Subject
from ..visible_change import is_visible
from .forecast import HORIZON_S, STEPS_AHEAD, Forecast
from .levels import grade_assessment
from .watch import Watch

SEEN_SHARE = 0.1
"""Change of a figure, as a share, that a person would see."""
SEEN_PROBABILITY = 0.05
CONFIDENT_S = 600.0
"""Seconds of watching after which half of what can be known of a subject's habits is known."""
SETTLED_S = 180.0
"""What has been watched for less may still turn out to grow."""


def assess_device(subject: Subject) -> Assessment:
    """Return the assessment of a device of which device used alone is known."""
    device = subject.device
    return Assessment(
        node=subject.sample.node,
        device_uuid=subject.device_uuid,
        device=None if device is None else device.label,
        time_s=subject.sample.time_s,
        level="unknown",
        reason="no allocator data",
        memory_source="device",
    )


def assess_forecast(subject: Subject, watch: Watch, forecast: Forecast) -> Assessment:
    """Return what a forecast says of its subject."""
    floors, rank, device = watch.growth.floors, subject.rank, subject.device
    line = watch.growth.line
    rate = 0.0 if line is None else line.bytes_per_s
    steps_per_s = floors.steps_per_s
    watched_s = subject.sample.time_s - floors.since_s
    level = grade_assessment(forecast)
    # Without growth an error is not foreseen, but the next larger step has nowhere to go.
    is_spent = level == "low" and _has_no_headroom(watch)
    level = "medium" if is_spent else level
    return Assessment(
        node=subject.sample.node,
        device_uuid=subject.device_uuid,
        device=None if device is None else device.label,
        time_s=subject.sample.time_s,
        level=level,
        reason="no headroom left at its peak" if is_spent else _explain(watch, forecast, watched_s),
        pid=None if rank is None else rank.pid,
        started_s=None if rank is None else rank.started_s,
        rank=None if rank is None or rank.coordinates is None else rank.coordinates.rank,
        confidence=_confide(forecast, watched_s),
        horizon_s=HORIZON_S,
        probability=forecast.probability,
        steps_ahead=None if forecast.within_steps is None else STEPS_AHEAD,
        probability_within_steps=forecast.within_steps,
        oom_in_s=forecast.middle_s,
        oom_in_low_s=forecast.low_s,
        oom_in_high_s=forecast.high_s,
        capacity_bytes=watch.limit_bytes,
        floor_bytes=floors.floor_bytes,
        peak_bytes=watch.peak_bytes,
        growth_bytes_per_s=rate,
        growth_bytes_per_step=None if not steps_per_s else rate / steps_per_s,
        watched_s=watched_s,
        watched_steps=floors.steps or None,
    )


def _has_no_headroom(watch: Watch) -> bool:
    """Return whether steps take all that there is; while something grows, the limit is an estimate."""
    limit_bytes, peak_bytes = watch.limit_bytes, watch.peak_bytes
    if limit_bytes is None or peak_bytes is None or watch.growth.episode is not None:
        return False
    return peak_bytes >= limit_bytes


def is_other(told: Assessment, newest: Assessment) -> bool:
    """Return whether a person would see the difference between two assessments."""
    if told.level != newest.level or told.reason != newest.reason:
        return True
    if abs((told.probability or 0.0) - (newest.probability or 0.0)) >= SEEN_PROBABILITY:
        return True
    pairs = (
        (told.oom_in_s, newest.oom_in_s),
        (told.floor_bytes, newest.floor_bytes),
        (told.peak_bytes, newest.peak_bytes),
        (told.capacity_bytes, newest.capacity_bytes),
        (told.watched_s, newest.watched_s),
    )
    return any(is_visible(before, after, SEEN_SHARE) for before, after in pairs)


def _explain(watch: Watch, forecast: Forecast, watched_s: float) -> str:
    episode = watch.growth.episode
    if forecast.middle_s is not None and episode is not None and episode.is_peak:
        return "its peaks grow" if episode.is_believed else "its peaks grow, and may stop growing"
    if forecast.middle_s is not None:
        return "its floor grows"
    if forecast.probability > SEEN_PROBABILITY:
        return "its steps come near the limit"
    return "steady below the limit" if watched_s >= SETTLED_S else "no growth found so far"


def _confide(forecast: Forecast, watched_s: float) -> float:
    """Return how likely the level is right: by the evidence on growth, or by how long all was well."""
    if forecast.middle_s is not None:
        return max(forecast.belief, 1.0 - forecast.belief)
    return 1.0 - 0.5 / (1.0 + watched_s / CONFIDENT_S)
