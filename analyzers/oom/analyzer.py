"""Out of memory ahead (`oom`), and an assessment of every subject.

The forecast joins a robust line through the floors with the empirical amplitudes of recent steps
(`hazard.py`, `tail.py`); thresholds and what they mean stand in `docs/verdicts.md`.
"""

from collections.abc import Iterator, Sequence

import msgspec

from ...engine.model import Assessment, Evidence, Finding, RiskLevel, Sample, Severity, make_finding_id
from ...engine.model.finding import PROCESS_ENDED
from ...engine.units import format_age, format_bytes
from ..findings.evidence import PROCESS, STARTED, read_number, read_subject_key
from ..findings.lifecycle import HIGH_S, close_finding, grade_time_left, is_visible
from ..findings.subjects import Subject, SubjectKey, subjects_of
from ..floors.episode import Episode
from .forecast import HORIZON_S, STEPS_AHEAD, Forecast
from .watch import Watch

# What an `oom` finding says: title, evidence, method and advice.

KIND = "oom"

IN = "time to out of memory"
IN_LOW = "time at least"
IN_HIGH = "time at most"
PROBABILITY = "probability"
WITHIN = "within"
BELIEF = "probability that growth goes on"
ONSET = "onset"
ONSET_STEP = "step at onset"
FLOOR_AT_ONSET = "floor at onset"
WINDOW = "window"
RATE = "growth a second"
RATE_PER_STEP = "growth a step"
GROWN = "grown since onset"
FLOOR = "floor"
PEAK = "peak above floor"
LIMIT = "capacity"

NEWS_SHARE = 0.1
"""Change of the time left, as a share, that a person would see."""


def state_forecast(
    finding: Finding, subject: Subject, watch: Watch, forecast: Forecast, severity: Severity
) -> Finding:
    """Return a finding with what is foreseen now."""
    device = subject.device
    return msgspec.structs.replace(
        finding,
        device=None if device is None else device.label,
        severity=severity,
        title=_word_title(subject, watch, forecast),
        updated_s=max(subject.sample.time_s, finding.opened_s),
        evidence=_list_evidence(subject, watch, forecast),
        method=_explain_method(forecast),
        advice=_advise(forecast),
    )


def is_news(before: Finding, after: Finding) -> bool:
    """Return whether a person would see the difference."""
    if before.severity != after.severity:
        return True
    told = read_number(before, IN)
    seen = read_number(after, IN)
    left = told - (after.updated_s - before.updated_s)
    return abs(seen - told) > max(1.0, NEWS_SHARE * told) or abs(seen - left) > max(5.0, NEWS_SHARE * told)


def read_episode(finding: Finding) -> Episode | None:
    """Return the growth that a finding rests on; None where it rests on none."""
    if not read_number(finding, RATE):
        return None
    return Episode(
        onset_s=read_number(finding, ONSET),
        onset_bytes=int(read_number(finding, FLOOR_AT_ONSET)),
        onset_step=int(read_number(finding, ONSET_STEP)) or None,
        window_s=read_number(finding, WINDOW),
        bytes_per_s=read_number(finding, RATE),
    )


def _name(subject: Subject) -> str:
    if subject.rank is None or subject.device is None:
        return subject.name
    return f"{_name_device(subject)} ({subject.name})"


def _name_device(subject: Subject) -> str:
    return Subject(subject.sample, subject.device, None).name


def _word_title(subject: Subject, watch: Watch, forecast: Forecast) -> str:
    name = _name(subject)
    if forecast.middle_s is None or forecast.low_s is None or forecast.high_s is None:
        chance = f"{forecast.probability:.0%} within {_format_left(HORIZON_S)}"
        return f"{name} may run out of memory ({chance}): a step as large as some may be does not fit"
    span = (
        f"{round(forecast.low_s)}-{round(forecast.high_s)} s"
        if forecast.high_s < 600
        else f"{_format_left(forecast.low_s)} to {_format_left(forecast.high_s)}"
    )
    pace = _word_pace(watch)
    left = _format_left(forecast.middle_s)
    return f"{name} out of memory in {left} ({span}, {forecast.belief:.0%}): live tensors grow by {pace}"


def _format_left(seconds: float) -> str:
    return format_age(round(seconds))


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
        Evidence(PROCESS, None if rank is None else rank.pid),
        Evidence(STARTED, None if rank is None else rank.started_s, "s"),
        Evidence(IN, forecast.middle_s, "s"),
        Evidence(IN_LOW, forecast.low_s, "s"),
        Evidence(IN_HIGH, forecast.high_s, "s"),
        Evidence(PROBABILITY, forecast.probability),
        Evidence(WITHIN, HORIZON_S, "s"),
        Evidence(BELIEF, forecast.belief),
        Evidence(RATE, rate, "bytes/s"),
        Evidence(RATE_PER_STEP, per_step, "bytes"),
        *_list_growth(watch),
        Evidence(FLOOR, floors.floor_bytes, "bytes"),
        Evidence(PEAK, floors.amplitude_bytes, "bytes"),
        Evidence(LIMIT, watch.limit_bytes, "bytes"),
    )


def _list_growth(watch: Watch) -> tuple[Evidence, ...]:
    episode = watch.growth.episode
    floor = watch.growth.floors.floor_bytes
    if episode is None:
        return ()
    return (
        Evidence(GROWN, None if floor is None else floor - episode.onset_bytes, "bytes"),
        Evidence(ONSET, episode.onset_s, "s"),
        Evidence(ONSET_STEP, episode.onset_step),
        Evidence(FLOOR_AT_ONSET, episode.onset_bytes, "bytes"),
        Evidence(WINDOW, episode.window_s, "s"),
    )


def _explain_method(forecast: Forecast) -> str:
    if forecast.middle_s is None:
        return (
            "The tail of what recent steps took above their floor (peaks over a threshold) reaches beyond "
            "what is left"
        )
    return (
        "First passage: a robust line through the floors since the onset (Theil-Sen), met by what recent "
        "steps took above it; 80 % interval of rate and steps together"
    )


def _advise(forecast: Forecast) -> str:
    if forecast.middle_s is None:
        return (
            "Bound the longest batch: sort or cut by length, lower the micro-batch, or recompute activations"
        )
    return (
        "Save a checkpoint now; then look for what grows from step to step: the finding on the leak says "
        "since when and how fast"
    )


CALM_S = 30.0
"""For how long nothing must be foreseen before a finding closes while growth goes on."""


class OomTrack:
    """Watch, finding and assessment of one subject."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        self.seen_s = 0.0
        """Time of the newest sample that listed it."""
        self._watch = Watch()
        self._assessed: Assessment | None = None
        """The newest assessment, until it is taken."""
        self._told: Assessment | None = None
        self._settled_until_s: float | None = None
        self._foreseen_s: float | None = None

    def adopt(self, finding: Finding) -> None:
        """Go on with a finding that a predecessor opened."""
        self.finding = finding
        self.seen_s = self._settled_until_s = self._foreseen_s = finding.updated_s

    def observe(self, subject: Subject) -> Iterator[Finding]:
        """Take one sample; yield what opened, changed or closed."""
        time_s = subject.sample.time_s
        watch = self._watch
        watch.observe(subject)
        if not watch.has_allocator:
            self._assessed = assess_device(subject)
            return
        if self._settled_until_s is not None:
            if time_s <= self._settled_until_s:
                return
            self._settled_until_s = None
            if self.finding is not None and watch.growth.episode is None:
                watch.growth.episode = read_episode(self.finding)
        if watch.is_fresh:
            yield from self._conclude(subject)

    def end(self, time_s: float) -> Iterator[Finding]:
        """Yield the finding as closed: its subject has ended."""
        yield from self._close(time_s, PROCESS_ENDED)

    def take_assessment(self) -> Assessment | None:
        """Return the newest assessment where it differs from the one taken before."""
        newest = self._assessed
        self._assessed = None
        if newest is None or (self._told is not None and not is_other(self._told, newest)):
            return None
        self._told = newest
        return newest

    def _conclude(self, subject: Subject) -> Iterator[Finding]:
        watch = self._watch
        time_s = subject.sample.time_s
        forecast = watch.forecast
        if forecast is None:
            return
        self._assessed = assess_forecast(subject, watch, forecast)
        severity = grade_finding(forecast)
        if severity is not None:
            self._foreseen_s = time_s
            finding = self.finding or _open(subject)
            stated = state_forecast(finding, subject, watch, forecast, severity)
            if self.finding is None or is_news(self.finding, stated):
                self.finding = stated
                yield stated
        elif watch.growth.ended_because is not None:
            yield from self._close(time_s, watch.growth.ended_because)
        elif self._foreseen_s is not None and time_s - self._foreseen_s >= CALM_S:
            yield from self._close(time_s, "nothing is foreseen any more")

    def _close(self, time_s: float, because: str) -> Iterator[Finding]:
        finding = self.finding
        self.finding = None
        if finding is not None:
            yield close_finding(finding, time_s, because)


def _open(subject: Subject) -> Finding:
    rank = subject.rank
    uuid = subject.device_uuid
    about = uuid if rank is None else f"{uuid or ''}#{rank.pid}"
    node = subject.sample.node
    time_s = subject.sample.time_s
    return Finding(
        id=make_finding_id(KIND, node, about, time_s),
        kind=KIND,
        node=node,
        device_uuid=uuid,
        device=None if subject.device is None else subject.device.label,
        severity="low",
        title="",
        opened_s=time_s,
        updated_s=time_s,
    )


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
    floors = watch.growth.floors
    rank = subject.rank
    device = subject.device
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
        reason="no headroom left at its peak" if is_spent else _explain_level(watch, forecast, watched_s),
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
    limit_bytes = watch.limit_bytes
    peak_bytes = watch.peak_bytes
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


def _explain_level(watch: Watch, forecast: Forecast, watched_s: float) -> str:
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


ABSENT_S = 10.0
"""Seconds for which a subject must not be listed before its finding closes; longer ticks allow more."""
ABSENT_TICKS = 3.5


class OomAnalyzer:
    """Open one finding per subject when an error is foreseen; say of each how near it is."""

    name = KIND

    def __init__(self) -> None:
        self._tracks: dict[SubjectKey, OomTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed."""
        found: list[Finding] = []
        for subject in subjects_of(sample):
            found += self._track(subject).observe(subject)
        found += self._observe_absent(sample)
        return found

    def assess(self) -> Sequence[Assessment]:
        """Return the assessments that changed, as a person would see it, since this was last asked."""
        changed = [track.take_assessment() for track in self._tracks.values()]
        return [assessment for assessment in changed if assessment is not None]

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of this kind; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind == KIND and finding.is_open:
                self._tracks.setdefault(read_subject_key(finding), OomTrack()).adopt(finding)

    def _track(self, subject: Subject) -> OomTrack:
        track = self._tracks.get(subject.key)
        if track is None:
            track = self._tracks[subject.key] = OomTrack()
        track.seen_s = subject.sample.time_s
        return track

    def _observe_absent(self, sample: Sample) -> Iterator[Finding]:
        absent_s = max(ABSENT_S, ABSENT_TICKS * sample.interval_s)
        late = [
            key
            for key, track in self._tracks.items()
            if key[0] == sample.node and abs(sample.time_s - track.seen_s) >= absent_s
        ]
        listed = _listed(sample) if late else set()
        for key in late:
            if key not in listed:
                yield from self._tracks.pop(key).end(sample.time_s)


def _listed(sample: Sample) -> set[SubjectKey]:
    """Return the subjects that are listed and have not ended, though nothing new may be known of them."""
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
