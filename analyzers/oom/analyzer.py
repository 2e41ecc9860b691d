"""Out of memory ahead (`oom`), and an assessment of every subject.

The forecast joins a robust line through the floors with the empirical amplitudes of recent steps
(`forecast.py`); `docs/verdicts.md` explains the thresholds.
"""

from collections.abc import Sequence

from ...engine.model import (
    SEVERITIES,
    Assessment,
    DeviceTrend,
    Evidence,
    Finding,
    RiskLevel,
    Sample,
    Severity,
)
from ...engine.model.finding import BELIEVED, PROCESS_ENDED
from ...engine.units import format_bytes, format_left, format_share
from ..device_trend import DeviceTrendTrack, is_other_trend
from ..findings.evidence import (
    BELIEF,
    CAPACITY,
    FLOOR,
    FLOOR_AT_ONSET,
    GROWN,
    ONSET,
    ONSET_STEP,
    PEAK_ABOVE_FLOOR,
    PROBABILITY,
    PROCESS,
    RATE,
    RATE_PER_STEP,
    STARTED,
    TIME_AT_LEAST,
    TIME_AT_MOST,
    TIME_LEFT,
    WINDOW,
    EvidenceKey,
    read_subject_key,
)
from ..findings.lifecycle import (
    HIGH_S,
    SEVERE_SHARE,
    SEVERE_SHARE_OF_PEAKS,
    OpenFinding,
    Tracks,
    begin_finding,
    grade_time_left,
    is_visible,
    restate,
)
from ..findings.subjects import Subject, SubjectKey, subjects_of
from ..floors.episode import resume_growth
from ..trend_words import NO_ALLOCATOR_DATA
from .forecast import HORIZON_S, STEPS_AHEAD, Forecast
from .watch import Watch

# What an `oom` finding says: title, evidence, method and advice.

KIND = "oom"

_WITHIN = EvidenceKey("within", "s")

# Change of the time left, as a share, that a person would notice.
NEWS_SHARE = 0.1


def state_forecast(
    finding: Finding, subject: Subject, watch: Watch, forecast: Forecast, severity: Severity
) -> Finding:
    return restate(
        finding,
        subject.sample.time_s,
        device=subject.device_label,
        severity=severity,
        title=_word_title(subject, watch, forecast),
        evidence=_list_evidence(subject, watch, forecast),
        method=_explain_method(watch, forecast),
        advice=_advise(watch, forecast),
    )


def is_news(before: Finding, after: Finding) -> bool:
    """Return whether a person would notice the difference."""
    if before.severity != after.severity or _is_doubted(before) != _is_doubted(after):
        return True
    published = TIME_LEFT.read_number(before) or 0.0
    seen = TIME_LEFT.read_number(after) or 0.0
    left = published - (after.updated_s - before.updated_s)
    least = NEWS_SHARE * published
    return abs(seen - published) > max(1.0, least) or abs(seen - left) > max(5.0, least)


def _is_doubted(finding: Finding) -> bool:
    return (BELIEF.read_number(finding) or 0.0) < BELIEVED


def _name(subject: Subject) -> str:
    if subject.rank is None or subject.device is None:
        return subject.name
    return f"{Subject(subject.sample, subject.device, None).name} ({subject.name})"


def _word_title(subject: Subject, watch: Watch, forecast: Forecast) -> str:
    name = _name(subject)
    if forecast.middle_s is None or forecast.low_s is None or forecast.high_s is None:
        chance = f"{format_share(forecast.probability)} within {format_left(HORIZON_S)}"
        return f"{name} may run out of memory ({chance}): the largest steps may not fit"
    span = (
        f"{round(forecast.low_s)}-{round(forecast.high_s)} s"
        if forecast.high_s < 600
        else f"{format_left(forecast.low_s)} to {format_left(forecast.high_s)}"
    )
    pace = _word_pace(watch)
    left = format_left(forecast.middle_s)
    what = "peaks" if _is_of_peaks(watch) else "live tensors"
    ends = "out of memory in" if forecast.belief >= BELIEVED else "may run out of memory in"
    return f"{name} {ends} {left} ({span}, {format_share(forecast.belief)}): {what} grow by {pace}"


def _word_pace(watch: Watch) -> str:
    line = watch.growth.line
    steps_per_s = watch.growth.floors.steps_per_s
    rate = 0.0 if line is None else line.bytes_per_s
    if steps_per_s:
        return f"{format_bytes(round(rate / steps_per_s))} a step"
    return f"{format_bytes(round(rate * 60))} a minute"


def _list_evidence(subject: Subject, watch: Watch, forecast: Forecast) -> tuple[Evidence, ...]:
    rank = subject.rank
    floors = watch.growth.floors
    line = watch.growth.line
    rate = None if line is None else line.bytes_per_s
    per_step = None if rate is None or not floors.steps_per_s else round(rate / floors.steps_per_s)
    return (
        PROCESS(None if rank is None else rank.pid),
        STARTED(None if rank is None else rank.started_s),
        TIME_LEFT(forecast.middle_s),
        TIME_AT_LEAST(forecast.low_s),
        TIME_AT_MOST(forecast.high_s),
        PROBABILITY(forecast.probability),
        _WITHIN(HORIZON_S),
        BELIEF(forecast.belief),
        RATE(rate),
        RATE_PER_STEP(per_step),
        *_list_growth(watch),
        FLOOR(floors.floor_bytes),
        PEAK_ABOVE_FLOOR(floors.amplitude_bytes),
        CAPACITY(watch.limit_bytes),
    )


def _list_growth(watch: Watch) -> tuple[Evidence, ...]:
    episode = watch.growth.episode
    floor = watch.growth.floors.floor_bytes
    if episode is None:
        return ()
    if episode.is_peak:
        # Its level at the onset was a peak: the floor has not grown.
        return (ONSET(episode.onset_s), ONSET_STEP(episode.onset_step), WINDOW(episode.window_s))
    return (
        GROWN(None if floor is None else floor - episode.onset_bytes),
        ONSET(episode.onset_s),
        ONSET_STEP(episode.onset_step),
        FLOOR_AT_ONSET(episode.onset_bytes),
        WINDOW(episode.window_s),
    )


def _explain_method(watch: Watch, forecast: Forecast) -> str:
    if forecast.middle_s is None:
        return (
            "The largest recent steps above their floor (tail of peaks over a threshold) need more "
            "than is left"
        )
    through = "peaks" if _is_of_peaks(watch) else "floors"
    return (
        f"First passage: a robust line through the {through} since the onset (Theil-Sen) plus what recent "
        "steps took above it; 80 % interval of rate and steps together"
    )


def _is_of_peaks(watch: Watch) -> bool:
    """Return whether steps take more and more, above floors that do not grow: no leak."""
    episode = watch.growth.episode
    return episode is not None and episode.is_peak


def _advise(watch: Watch, forecast: Forecast) -> str:
    if forecast.middle_s is None:
        return (
            "Bound the longest batch: sort or cut by length, lower the micro-batch, or recompute activations"
        )
    if _is_of_peaks(watch):
        return (
            "Save a checkpoint now; nothing is kept between steps, but they take more and more: bound the "
            "length or the batch, or recompute activations"
        )
    return (
        "Save a checkpoint now; then look for what grows from step to step: the leak finding says "
        "since when and how fast"
    )


# How long no error must be forecast before a finding closes while growth continues.
CALM_S = 30.0


class OomTrack(OpenFinding):
    def __init__(self) -> None:
        super().__init__()
        self._watch = Watch()
        # How used memory goes, where nothing but that is known.
        self._trend = DeviceTrendTrack()
        # The newest assessment, until it is collected.
        self._assessed: Assessment | None = None
        self._published: Assessment | None = None
        self._forecast_s: float | None = None

    def adopt(self, finding: Finding) -> None:
        super().adopt(finding)
        self._forecast_s = finding.updated_s

    def observe(self, subject: Subject) -> Sequence[Finding]:
        watch = self._watch
        watch.observe(subject)
        if not watch.has_allocator:
            self._assessed = assess_device(subject, self._trend.observe(subject))
            return ()
        because = watch.lost_because
        if because is not None:
            self._forecast_s = None
            is_assessed = self._published is not None or self._assessed is not None
            self._assessed = assess_unknown(subject, because) if is_assessed else None
        if self.is_settled(subject.sample.time_s):
            return ()
        if because is not None:
            return self.close(subject.sample.time_s, because)
        resume_growth(self, watch.growth)
        return self._conclude(subject) if watch.is_fresh else ()

    def take_assessment(self) -> Assessment | None:
        """Return the newest assessment where it differs from the one returned before."""
        newest = self._assessed
        self._assessed = None
        if newest is None or (self._published is not None and not is_other(self._published, newest)):
            return None
        self._published = newest
        return newest

    def _conclude(self, subject: Subject) -> Sequence[Finding]:
        watch = self._watch
        time_s = subject.sample.time_s
        forecast = watch.forecast
        if forecast is None:
            return ()
        self._assessed = assess_forecast(subject, watch, forecast)
        severity = grade_finding(forecast)
        if severity is not None:
            self._forecast_s = time_s
            stated = state_forecast(self.finding or _open(subject), subject, watch, forecast, severity)
            return self.state(stated) if self.finding is None or is_news(self.finding, stated) else ()
        if watch.growth.ended_because is not None:
            return self.close(time_s, watch.growth.ended_because)
        if self._forecast_s is not None and time_s - self._forecast_s >= CALM_S:
            return self.close(time_s, "no longer forecast")
        return ()


def _open(subject: Subject) -> Finding:
    return begin_finding(
        KIND,
        subject.sample.node,
        subject.sample.time_s,
        device_uuid=subject.device_uuid,
        device=subject.device_label,
        about=subject.about,
    )


# Change of a value, as a share, that a person would notice.
SEEN_SHARE = 0.1
SEEN_PROBABILITY = 0.05
# Seconds of watching after which half of what can be known about a subject's habits is known.
CONFIDENT_S = 600.0
# A subject watched for less may still turn out to grow.
SETTLED_S = 180.0


def assess_device(subject: Subject, trend: DeviceTrend | None) -> Assessment:
    """Return the assessment of a device for which only device used is known, with the trend of that."""
    device = subject.device
    return Assessment(
        node=subject.sample.node,
        device_uuid=subject.device_uuid,
        device=None if device is None else device.label,
        time_s=subject.sample.time_s,
        level="unknown",
        reason=NO_ALLOCATOR_DATA,
        memory_source="device",
        device_trend=trend,
    )


def assess_unknown(subject: Subject, because: str) -> Assessment:
    """Return the assessment of a process after its error or restart: no forecast until more of it is seen."""
    rank = subject.rank
    return Assessment(
        node=subject.sample.node,
        device_uuid=subject.device_uuid,
        device=subject.device_label,
        time_s=subject.sample.time_s,
        level="unknown",
        reason=because,
        pid=None if rank is None else rank.pid,
        started_s=None if rank is None else rank.started_s,
        rank=None if rank is None or rank.coordinates is None else rank.coordinates.rank,
    )


def assess_forecast(subject: Subject, watch: Watch, forecast: Forecast) -> Assessment:
    floors = watch.growth.floors
    rank = subject.rank
    device = subject.device
    steps_per_s = floors.steps_per_s
    watched_s = subject.sample.time_s - floors.since_s
    level = grade_assessment(forecast)
    # Without growth no error is forecast, but the next larger step has no room.
    is_spent = level == "low" and _has_no_headroom(watch)
    # What rises and is not proven yet is not denied: at this pace there may be little time. How likely an
    # error is, or how sure that all stays well, cannot be said before it is known how long it rises.
    pace = watch.find_pace()
    is_rising = level == "low" and (watch.is_rising or (watch.growth.line is None and pace > 0))
    level = "medium" if is_spent or (is_rising and watch.is_rising and _is_fast(watch)) else level
    return Assessment(
        node=subject.sample.node,
        device_uuid=subject.device_uuid,
        device=None if device is None else device.label,
        time_s=subject.sample.time_s,
        level=level,
        reason="no headroom left at its peak"
        if is_spent
        else _explain_level(watch, forecast, pace, watched_s),
        pid=None if rank is None else rank.pid,
        started_s=None if rank is None else rank.started_s,
        rank=None if rank is None or rank.coordinates is None else rank.coordinates.rank,
        confidence=None if is_rising else _confide(forecast, watched_s),
        horizon_s=HORIZON_S,
        probability=None if is_rising else forecast.probability,
        steps_ahead=None if is_rising or forecast.within_steps is None else STEPS_AHEAD,
        probability_within_steps=None if is_rising else forecast.within_steps,
        oom_in_s=forecast.middle_s,
        oom_in_low_s=forecast.low_s,
        oom_in_high_s=forecast.high_s,
        capacity_bytes=watch.limit_bytes,
        floor_bytes=floors.floor_bytes,
        peak_bytes=watch.peak_bytes,
        growth_bytes_per_s=pace,
        growth_bytes_per_step=None if not steps_per_s else pace / steps_per_s,
        is_growth_of_peaks=_is_of_peaks(watch),
        watched_s=watched_s,
        watched_steps=floors.steps or None,
    )


def _has_no_headroom(watch: Watch) -> bool:
    """Return whether steps need all that there is; while something grows, the limit is an estimate."""
    limit_bytes = watch.limit_bytes
    peak_bytes = watch.peak_bytes
    if limit_bytes is None or peak_bytes is None or watch.growth.episode is not None:
        return False
    return peak_bytes >= limit_bytes


def _is_fast(watch: Watch) -> bool:
    """Return whether what rises would leave no room within ten minutes."""
    floors = watch.growth.floors
    pace = floors.newest_pace
    return pace is not None and max(0.0, floors.headroom_bytes) < HIGH_S * pace


def is_other(published: Assessment, newest: Assessment) -> bool:
    """Return whether a person would notice the difference between two assessments."""
    if (published.level, published.reason, published.is_doubted) != (
        newest.level,
        newest.reason,
        newest.is_doubted,
    ):
        return True
    if is_other_trend(published.device_trend, newest.device_trend):
        return True
    if abs((published.probability or 0.0) - (newest.probability or 0.0)) >= SEEN_PROBABILITY:
        return True
    pairs = (
        (published.oom_in_s, newest.oom_in_s),
        (published.floor_bytes, newest.floor_bytes),
        (published.peak_bytes, newest.peak_bytes),
        (published.capacity_bytes, newest.capacity_bytes),
        (published.watched_s, newest.watched_s),
        (published.growth_bytes_per_s, newest.growth_bytes_per_s),
    )
    return any(is_visible(before, after, SEEN_SHARE) for before, after in pairs)


def _explain_level(watch: Watch, forecast: Forecast, pace: float, watched_s: float) -> str:
    episode = watch.growth.episode
    if forecast.middle_s is not None and episode is not None and episode.is_peak:
        return "its peaks grow" if episode.is_believed else "its peaks grow but may stop growing"
    if forecast.middle_s is not None:
        return "its floor grows"
    if watch.is_rising or pace > 0:
        return "its floor rises, too soon to say for how long"
    if forecast.probability > SEEN_PROBABILITY:
        return "its steps come near the limit"
    return "steady below the limit" if watched_s >= SETTLED_S else "no growth found so far"


def _confide(forecast: Forecast, watched_s: float) -> float:
    """Return how sure it is: that growth goes on, where a time is given, or by how long all was well."""
    if forecast.middle_s is not None:
        return forecast.belief
    return 1.0 - 0.5 / (1.0 + watched_s / CONFIDENT_S)


# Probability within the horizon from which on a subject without growth is at medium risk.
POSSIBLE = 0.2


def grade_finding(forecast: Forecast) -> Severity | None:
    """Return the severity of a finding on a forecast; None where no error is forecast."""
    middle_s = forecast.middle_s
    if middle_s is None or not forecast.is_believed:
        return None
    severe_share = SEVERE_SHARE_OF_PEAKS if forecast.is_of_peaks else SEVERE_SHARE
    severity = grade_time_left(middle_s, forecast.share, severe_share)
    if forecast.is_scattered and severity is not None:
        return min(severity, "medium", key=SEVERITIES.index)
    return severity


def grade_assessment(forecast: Forecast) -> RiskLevel:
    """Return the level of risk of a forecast: that of its finding, and medium where an error may well be."""
    severity = grade_finding(forecast)
    if severity is None:
        return "medium" if forecast.probability >= POSSIBLE else "low"
    return severity


# A function, and no lambda, so that analyzers can be pickled.
def _make_track(_: SubjectKey) -> OomTrack:
    return OomTrack()


class OomAnalyzer:
    """Opens one finding per subject when an error is forecast; assesses how near each is to one."""

    name = KIND

    def __init__(self) -> None:
        self._tracks = Tracks(_make_track)

    def observe(self, sample: Sample) -> Sequence[Finding]:
        found: list[Finding] = []
        for subject in subjects_of(sample):
            found += self._tracks.see(subject.key, sample.time_s).observe(subject)
        for rank in sample.ranks:
            if rank.state == "ended":
                ended = self._tracks.pop((sample.node, rank.device_uuid or "", rank.pid, rank.started_s))
                found += () if ended is None else ended.close(sample.time_s, PROCESS_ENDED)
        for _, track in self._tracks.pop_absent(sample, _listed):
            found += track.close(sample.time_s, PROCESS_ENDED)
        return found

    def assess(self) -> Sequence[Assessment]:
        """Return the assessments that changed, as a person would notice, since the last call."""
        changed = [track.take_assessment() for _, track in self._tracks.items()]
        return [assessment for assessment in changed if assessment is not None]

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of this kind; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind == KIND and finding.is_open:
                self._tracks.adopt(read_subject_key(finding), finding)


def _listed(sample: Sample) -> set[SubjectKey]:
    """Return the subjects that are listed and have not ended, though nothing new may be known about them."""
    devices: set[SubjectKey] = {
        (sample.node, device.uuid, None, None)
        for device in sample.devices
        if device.state not in ("lost", "ended")
    }
    ranks: set[SubjectKey] = {
        (sample.node, rank.device_uuid or "", rank.pid, rank.started_s)
        for rank in sample.ranks
        if rank.state != "ended"
    }
    return devices | ranks
