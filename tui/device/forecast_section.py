"""How near a process is to running out of memory, in figures; what is unknown stays a dash."""

from collections.abc import Iterator, Sequence

from ...analyzers.risk import find_assessments
from ...engine.model import Assessment, DeviceSample, RankSample
from ...engine.units import format_age, format_bytes
from ..draw.glyphs import Glyphs
from ..draw.numbers import span_text
from ..draw.spans import Line, Role, Span
from ..widgets.device_fields import join_facts, wrap_words


def choose_assessment(
    device: DeviceSample, rank: RankSample | None, assessments: Sequence[Assessment]
) -> Assessment | None:
    """Return what is assessed of a process on a device, or of the device where nobody reports.

    Args:
        device: The device.
        rank: The process that is shown; None where none reports.
        assessments: Those of the node.
    """
    of_device = find_assessments(device, assessments)
    key = (None, None) if rank is None else (rank.pid, rank.started_s)
    return next((found for found in of_device if (found.pid, found.started_s) == key), None)


def draw_forecast(found: Assessment | None, now_s: float, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the risk with its reason, and below it the figures behind it; nothing where nothing is assessed.

    Args:
        found: What is assessed.
        now_s: Time of the newest sample.
        width: Cells across.
        glyphs: Characters to draw with.
    """
    if found is None:
        return []
    role: Role = found.level
    head: Line = [
        Span(f" {glyphs.risk(found.level)} OOM risk {found.level}", role),
        Span(f": {found.reason}", "text"),
        Span(_describe_trust(found), "muted"),
    ]
    lines = [head]
    left = list(_list_facts(found, now_s, glyphs))
    while left:
        line, rest = join_facts(left, width - 4)
        line, rest = (line, rest) if line else (left[0], left[1:])
        lines.append([Span("   "), *line])
        left = rest
    return [*lines, *_draw_headroom(found, width)]


def _draw_headroom(found: Assessment, width: int) -> list[Line]:
    """Return what steps of different sizes say of the largest that would fit."""
    lines: list[Line] = []
    for estimate in found.headroom:
        head, *rest = wrap_words(estimate.sentence, width - 4) or [""]
        name, _, figures = head.partition(" ")
        lines.append([Span(f"   {name} ", "muted"), Span(figures)])
        lines += [[Span(f"   {line}")] for line in rest]
    return lines


def _describe_trust(found: Assessment) -> str:
    parts = [] if found.confidence is None else [f"{100 * found.confidence:.0f} % sure"]
    if found.watched_steps is not None:
        parts.append(f"watched for {found.watched_steps:,} steps")
    elif found.watched_s is not None:
        parts.append(f"watched for {format_age(found.watched_s)}")
    return f"  ({', '.join(parts)})" if parts else ""


def _list_facts(found: Assessment, now_s: float, glyphs: Glyphs) -> Iterator[Line]:
    """Yield the figures, each with its name before it."""
    capacity = found.capacity_bytes
    peak = found.peak_bytes
    headroom = None if capacity is None or peak is None else max(0, capacity - peak)
    yield _tell("capacity for tensors", _size(capacity, glyphs))
    yield _tell("floor at step ends", _size(found.floor_bytes, glyphs))
    yield _tell("peak", _size(peak, glyphs))
    yield _tell("headroom at peak", _size(headroom, glyphs))
    yield _tell("growth", _describe_growth(found, glyphs))
    yield _tell("time to out of memory", _describe_end(found, now_s, glyphs))
    within = "" if found.horizon_s is None else f" within {span_text(found.horizon_s)}"
    yield _tell(f"P(OOM){within}", _share(found.probability, glyphs))
    if found.steps_ahead is not None:
        share = _share(found.probability_within_steps, glyphs)
        yield _tell(f"P(OOM) within {found.steps_ahead:,} steps", share)


def _tell(name: str, figure: str) -> Line:
    return [Span(f"{name} ", "muted"), Span(figure)]


def _size(value_bytes: int | None, glyphs: Glyphs) -> str:
    return glyphs.unmeasured if value_bytes is None else format_bytes(value_bytes)


def _share(probability: float | None, glyphs: Glyphs) -> str:
    """Return a probability in percent; what is neither none nor certain is never rounded to either."""
    if probability is None:
        return glyphs.unmeasured
    percent = 100 * probability
    if 0 < percent < 1:
        return "below 1 %"
    return "above 99 %" if 99 < percent < 100 else f"{percent:.0f} %"


def _describe_growth(found: Assessment, glyphs: Glyphs) -> str:
    per_step = found.growth_bytes_per_step
    per_s = found.growth_bytes_per_s
    if (per_step or per_s) == 0:
        return "none"
    told = [] if per_step is None else [f"{_signed(per_step)}/step"]
    told += [] if per_s is None else [f"{_signed(60 * per_s)}/min"]
    return ", ".join(told) or glyphs.unmeasured


def _signed(value_bytes: float) -> str:
    whole = round(value_bytes)
    return f"{'−' if whole < 0 else '+' if whole else ''}{format_bytes(abs(whole))}"


def _describe_end(found: Assessment, now_s: float, glyphs: Glyphs) -> str:
    """Return when memory is expected to run out from now on, with the range in which that lies."""
    if found.oom_in_s is None:
        return glyphs.unmeasured if found.level == "unknown" else "not foreseen"
    past_s = now_s - found.time_s
    low, middle, high = (
        None if span_s is None else format_age(max(0.0, round(span_s - past_s)))
        for span_s in (found.oom_in_low_s, found.oom_in_s, found.oom_in_high_s)
    )
    return f"{middle}" if low is None or high is None else f"{middle} ({low} to {high})"
