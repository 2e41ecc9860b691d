"""What an `oom` finding says: title, evidence, method and advice."""

import msgspec

from ...engine.model import Evidence, Finding, Severity
from ...engine.units import format_age, format_bytes
from ..finding_evidence import PROCESS, STARTED, read_number
from ..floors.episode import Episode
from ..subjects import Subject
from .forecast import HORIZON_S, Forecast
from .watch import Watch

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
        method=_explain(forecast),
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


def _explain(forecast: Forecast) -> str:
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
