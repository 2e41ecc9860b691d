"""Sections of a device's page: the forecast, the segments, the last steps."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...analyzers.risk import find_assessments
from ...analyzers.segments import SegmentSummary, summarize_segments
from ...analyzers.trend_words import NO_FORECAST, grade_trend, word_rate, word_trend
from ...analyzers.verdict import find_newest_peak
from ...engine.model import (
    Assessment,
    DeviceSample,
    DeviceTrend,
    LiveStack,
    PhaseReading,
    RankSample,
    SegmentMap,
    StepReading,
)
from ...engine.units import GIB, MIB, format_age, format_bytes, format_left
from ..draw.bars import wrap_pieces
from ..draw.blocks import draw_segment_map
from ..draw.glyphs import Glyphs
from ..draw.numbers import duration_text, span_text
from ..draw.spans import Line, Role, Span, fit_line, right_text
from ..widgets.device_fields import join_facts, wrap_words


def choose_assessment(
    device: DeviceSample, rank: RankSample | None, assessments: Sequence[Assessment]
) -> Assessment | None:
    """Return the assessment of a process on a device; without one (None), that of the device."""
    of_device = find_assessments(device, assessments)
    key = (None, None) if rank is None else (rank.pid, rank.started_s)
    return next((found for found in of_device if (found.pid, found.started_s) == key), None)


def draw_forecast(
    found: Assessment | None, now_s: float, width: int, glyphs: Glyphs, rank: RankSample | None = None
) -> list[Line]:
    """Return the risk with its reason, and below it the evidence; empty without an assessment.

    `now_s` is the time of the newest sample, `rank` the process as that has it: an assessment is published
    when it changes visibly, so the floor is that of the last step, and peaks since then count, as in the
    verdict.
    """
    if found is None:
        return []
    if found.level == "unknown" and found.memory_source == "device":
        return _draw_trend(found.device_trend, now_s, width, glyphs)
    role: Role = found.level
    head: Line = [
        Span(f" {glyphs.risk(found.level)} OOM risk {found.level}", role),
        Span(f": {found.reason}", "text"),
        Span(_describe_trust(found), "muted"),
    ]
    facts = list(_list_facts(found, now_s, glyphs, None if rank is None or rank.state != "ok" else rank))
    return [head, *_join_all(facts, width), *_draw_headroom(found, width)]


def _draw_trend(trend: DeviceTrend | None, now_s: float, width: int, glyphs: Glyphs) -> list[Line]:
    """Return how used memory grows, and what the rate rests on; empty where it does not grow."""
    if trend is None or trend.rate_bytes_per_s is None:
        return []
    role: Role = grade_trend(trend.word) or "text"
    words = word_trend(trend, now_s)[0].removesuffix(f" ({NO_FORECAST})")
    head = wrap_words(f"{glyphs.trends[trend.word]} {words}", width - 2)
    low, high = trend.rate_low_bytes_per_s, trend.rate_high_bytes_per_s
    facts = [_name_value("grown by", _size(trend.grown_bytes, glyphs))]
    if low is not None and high is not None:
        facts.append(_name_value("rate (80 %)", f"{word_rate(low)} to {word_rate(high)}"))
    facts.append([Span(f"{NO_FORECAST}: no forecast of an error", "muted")])
    return [*([Span(f" {text}", role)] for text in head), *_join_all(facts, width)]


def _join_all(facts: list[Line], width: int) -> list[Line]:
    """Return facts in as many lines as they take."""
    lines: list[Line] = []
    while facts:
        line, rest = join_facts(facts, width - 4)
        line, rest = (line, rest) if line else (facts[0], facts[1:])
        lines.append([Span("   "), *line])
        facts = rest
    return lines


def _draw_headroom(found: Assessment, width: int) -> list[Line]:
    lines: list[Line] = []
    for estimate in found.headroom:
        head, *rest = wrap_words(estimate.sentence, width - 4) or [""]
        name, _, figures = head.partition(" ")
        lines.append([Span(f"   {name} ", "muted"), Span(figures)])
        lines += [[Span(f"   {line}")] for line in rest]
    return lines


def _describe_trust(found: Assessment) -> str:
    # With a forecast one probability is said, that of the error.
    is_said = found.confidence is None or found.oom_in_s is not None
    parts = [] if is_said else [f"{100 * (found.confidence or 0.0):.0f} % sure"]
    if found.watched_steps is not None:
        parts.append(f"watched for {found.watched_steps:,} steps")
    elif found.watched_s is not None:
        parts.append(f"watched for {format_age(found.watched_s)}")
    return f"  ({', '.join(parts)})" if parts else ""


def _list_facts(found: Assessment, now_s: float, glyphs: Glyphs, rank: RankSample | None) -> Iterator[Line]:
    capacity = found.capacity_bytes
    peak = found.peak_bytes
    floor = found.floor_bytes
    if rank is not None:
        peak = None if peak is None else max(peak, find_newest_peak(rank))
        floor = floor if rank.floor_min_bytes is None else rank.floor_min_bytes
    headroom = None if capacity is None or peak is None else max(0, capacity - peak)
    yield _name_value("capacity for tensors", _size(capacity, glyphs))
    is_sampled = found.watched_steps is None and found.watched_s is not None
    yield _name_value("floor" if is_sampled else "floor at step ends", _size(floor, glyphs))
    yield _name_value("peak", _size(peak, glyphs))
    yield _name_value("headroom at peak", _size(headroom, glyphs))
    yield _name_value("growth", _describe_growth(found, glyphs))
    yield _name_value("time to out of memory", _describe_end(found, now_s, glyphs))
    within = "" if found.horizon_s is None else f" within {span_text(found.horizon_s)}"
    yield _name_value(f"P(OOM){within}", _share(found.probability, glyphs))
    if found.steps_ahead is not None:
        share = _share(found.probability_within_steps, glyphs)
        yield _name_value(f"P(OOM) within {found.steps_ahead:,} steps", share)


def _name_value(name: str, figure: str) -> Line:
    return [Span(f"{name} ", "muted"), Span(figure)]


def _size(value_bytes: int | None, glyphs: Glyphs) -> str:
    return glyphs.unmeasured if value_bytes is None else format_bytes(value_bytes)


def _share(probability: float | None, glyphs: Glyphs) -> str:
    """Return a probability in percent; neither 0 nor 100 % by rounding."""
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
    rates = [] if per_step is None else [f"{_signed(per_step)}/step"]
    rates += [] if per_s is None else [f"{_signed(60 * per_s)}/min"]
    peaks = " of peaks" if rates and found.is_growth_of_peaks else ""
    return f"{', '.join(rates)}{peaks}" if rates else glyphs.unmeasured


def _signed(value_bytes: float) -> str:
    whole = round(value_bytes)
    return f"{'−' if whole < 0 else '+' if whole else ''}{format_bytes(abs(whole))}"


def _describe_end(found: Assessment, now_s: float, glyphs: Glyphs) -> str:
    """Return when memory is expected to run out from now on, with its range."""
    if found.oom_in_s is None:
        return glyphs.unmeasured if found.probability is None else "not expected"
    past_s = now_s - found.time_s
    low, middle, high = (
        None if span_s is None else format_left(span_s - past_s)
        for span_s in (found.oom_in_low_s, found.oom_in_s, found.oom_in_high_s)
    )
    text = f"{middle}" if low is None or high is None else f"{middle} ({low} to {high})"
    return f"{text}, if it goes on growing" if found.is_doubted else text


MOST_STACKS = 10
ON_PROCESSORS = "No segment map: host memory has no caching allocator."
NO_BACKEND = "No segment map yet: the process has not used a device."


class SegmentQuestion(NamedTuple):
    """The map of a process, or the state of its request."""

    segment_map: SegmentMap | None = None
    # Why the newest request was not answered, in one sentence.
    refused: str | None = None
    # Since the first request without an answer; None where none was made.
    asked_s: float | None = None


class SegmentSection:
    """Draws the map of one process, and caches it while the map is the same."""

    def __init__(self, glyphs: Glyphs) -> None:
        self._glyphs = glyphs
        self._drawn_for: tuple[object, ...] = ()
        self._summary: SegmentSummary | None = None
        self._map_lines: list[Line] = []
        self._cell_bytes = 0

    def draw(
        self, rank: RankSample, question: SegmentQuestion, now_s: float, width: int, rows: int
    ) -> list[Line]:
        """Return the heading and the map, which should fill `rows`, or why there is none.

        `now_s` is the time of the newest sample.
        """
        segment_map = question.segment_map
        if segment_map is None:
            return [[Span(f" {explain_absence(rank, question)}", "muted")]]
        if not segment_map.segments and segment_map.live_stacks:
            return [[Span(" No segments: this program lists what lives by line alone.", "muted")]]
        key = (segment_map, width, rows)
        if len(self._drawn_for) != 3 or self._drawn_for[0] is not segment_map or self._drawn_for != key:
            self._drawn_for = key
            self._summary = summarize_segments(segment_map)
            self._map_lines, self._cell_bytes = draw_segment_map(segment_map, width, rows, self._glyphs)
        heading = self._heading(segment_map, question, now_s, width)
        return [*heading, *self._map_lines]

    def _heading(
        self, segment_map: SegmentMap, question: SegmentQuestion, now_s: float, width: int
    ) -> list[Line]:
        summary = self._summary
        if summary is None:
            return []
        age = f"{format_age(max(0.0, now_s - segment_map.time_s))} old"
        scale = f"{format_bytes(self._cell_bytes)} a cell"
        pieces = describe_summary(summary, segment_map.segments_left_out)
        pieces.append([Span(f"{scale}, {age}", "muted")])
        if question.refused:
            pieces.append([Span(question.refused, "medium")])
        lines = wrap_pieces([[*piece, Span(" ")] for piece in pieces], max(1, width - 1))
        return [[Span(" "), *line] for line in lines]


def describe_summary(summary: SegmentSummary, left_out: int = 0) -> list[Line]:
    """Return the summary of segments in pieces: how many, how much is stranded, the largest free block.

    `left_out` is the number of segments that are not in the summary.
    """
    pieces: list[Line] = [[Span("segments", "strong")]]
    pieces.append([Span("large ", "muted"), Span(f"{summary.large:,}")])
    pieces.append([Span("small ", "muted"), Span(f"{summary.small:,}")])
    if summary.private:
        pieces.append([Span("private ", "muted"), Span(f"{summary.private:,}")])
    if summary.stranded_bytes:
        held = f"{format_bytes(summary.stranded_bytes)} stranded in {summary.stranded_segments:,} of them"
        pieces.append([Span(held, "medium")])
    if summary.awaiting_bytes:
        pieces.append([Span("awaiting a stream ", "muted"), Span(format_bytes(summary.awaiting_bytes))])
    pieces.append([Span("largest free block ", "muted"), Span(format_bytes(summary.largest_free_bytes))])
    if left_out:
        pieces.append([Span(f"{left_out:,} segments left out", "medium")])
    return pieces


def explain_absence(rank: RankSample, question: SegmentQuestion) -> str:
    """Return why there is no map of a process, in one sentence."""
    if rank.backend == "cpu" and not rank.is_simulated:
        return ON_PROCESSORS
    if rank.backend is None:
        return NO_BACKEND
    if question.refused:
        return f"No segment map: {question.refused}"
    if rank.state != "ok":
        return f"No segment map: the process {'has ended' if rank.state == 'ended' else 'is silent'}."
    if question.asked_s is None:
        return "No segment map: the connection is not live."
    waiting = f" for {format_age(question.asked_s)}" if question.asked_s >= 2.0 else ""
    return f"Segment map requested, waiting{waiting}."


def draw_stacks(stacks: tuple[LiveStack, ...], width: int, glyphs: Glyphs) -> list[Line]:
    """Return the largest live blocks by the place that allocated them, a line each."""
    if not stacks:
        return []
    lines: list[Line] = [[Span(" largest live memory, by the line that allocated it", "strong")]]
    for stack in stacks[:MOST_STACKS]:
        figure = right_text(format_bytes(stack.size_bytes), 10, glyphs.ellipsis)
        count = right_text(f"{stack.count:,} ×", 9, glyphs.ellipsis)
        lines.append([Span(f" {figure}", "strong"), Span(f"{count}  ", "muted"), Span(name_place(stack))])
    return lines


def name_place(stack: LiveStack) -> str:
    """Return the innermost line of the program that is not PyTorch's own, with its function."""
    from ...analyzers.segments import is_of_torch

    found = next((frame for frame in stack.stack if not is_of_torch(frame[0])), None)
    found = found or (stack.stack[0] if stack.stack else None)
    if found is None:
        return "unknown line"
    file, line, function = found
    return f"{file}:{line} {function}"


HEADING_CELLS = 10
WORDY_HEADING_CELLS = 24
# Cells of headings that name where a floor is measured, and the width from which they do.
WORDY_FROM_CELLS = 72
COLUMN_CELLS = 9
MOST_COLUMNS = 16
# Below this, numbers are in MiB.
SMALL_BYTES = 4 * GIB
# Least cells of the names of phases.
PHASE_LEAST_CELLS = 12


def draw_steps(steps: Sequence[StepReading], width: int, glyphs: Glyphs) -> list[Line]:
    """Return a heading, durations, floors and peaks of as many steps as fit; `steps` are oldest first."""
    is_wordy = width >= WORDY_FROM_CELLS
    cells = WORDY_HEADING_CELLS if is_wordy else HEADING_CELLS
    count = min(MOST_COLUMNS, max(1, (width - cells) // COLUMN_CELLS))
    shown = steps[-count:]
    if not shown:
        return []
    most = max(step.peak_bytes or step.floor_bytes or 0 for step in shown)
    unit, name = (MIB, "MiB") if most < SMALL_BYTES else (GIB, "GiB")
    floors = [_figure(step.floor_bytes, unit, glyphs) for step in shown]
    return [
        _row("step", [f"{step.index:,}" for step in shown], cells, is_heading=True),
        _row("took", [duration_text(step.duration_s, glyphs) for step in shown], cells),
        _row(f"floor{' at step ends' if is_wordy else ''} {name}", floors, cells),
        _row(f"peak {name}", [_peak(step, unit, glyphs) for step in shown], cells),
    ]


def draw_phases(rank: RankSample, width: int, glyphs: Glyphs) -> list[Line]:
    """Return a heading and a line for each `vramscope.phase`; empty where the program names none.

    Before and after are of the newest measured call, the peak is the most of all calls. Its share is of the
    highest known peak: that of the newest step, or of any phase.
    """
    if not rank.phases:
        return []
    highest = max(phase.most_bytes or 0 for phase in rank.phases)
    if rank.step is not None and rank.step.peak_bytes is not None:
        highest = max(highest, rank.step.peak_bytes)
    unit, name = (MIB, "MiB") if highest < SMALL_BYTES else (GIB, "GiB")
    rows = [(f"phase, {name}", ["calls", "before", "after", "peak", "of peak"])]
    rows += [(phase.name, _phase_figures(phase, unit, highest, glyphs)) for phase in rank.phases]
    is_narrow = width < PHASE_LEAST_CELLS + 5 * COLUMN_CELLS
    shown = slice(1, 4) if is_narrow else slice(0, 5)
    most = max(PHASE_LEAST_CELLS, width - COLUMN_CELLS * (3 if is_narrow else 5))
    cells = min(most, max(PHASE_LEAST_CELLS, *(len(heading) + 2 for heading, _ in rows)))
    is_ascii = glyphs.unmeasured.isascii()
    lines: list[Line] = []
    for heading, figures in rows:
        named = fit_line([Span(f" {heading}", "muted")], cells, is_ascii=is_ascii)
        text = "".join(figure.rjust(COLUMN_CELLS) for figure in figures[shown])
        lines.append([*named, Span(text, "text" if lines else "muted")])
    return lines


def _phase_figures(phase: PhaseReading, unit: int, highest: int, glyphs: Glyphs) -> list[str]:
    most = _figure(phase.most_bytes, unit, glyphs)
    is_bound = phase.most_bytes is not None and not phase.is_most_exact
    share = glyphs.unmeasured if not phase.most_bytes else f"{100 * phase.most_bytes / highest:.0f} %"
    return [
        f"{phase.calls:,}",
        _figure(phase.allocated_before_bytes, unit, glyphs),
        _figure(phase.allocated_after_bytes, unit, glyphs),
        f"{glyphs.at_least}{most}" if is_bound else most,
        f"{glyphs.at_least}{share}" if is_bound else share,
    ]


def _row(heading: str, figures: Sequence[str], cells: int, *, is_heading: bool = False) -> Line:
    text = "".join(figure.rjust(COLUMN_CELLS) for figure in figures)
    return [Span(f" {heading}".ljust(cells), "muted"), Span(text, "muted" if is_heading else "text")]


def _figure(value_bytes: int | None, unit: int, glyphs: Glyphs) -> str:
    if value_bytes is None:
        return glyphs.unmeasured
    return f"{value_bytes / unit:,.{0 if unit == MIB else 1}f}"


def _peak(step: StepReading, unit: int, glyphs: Glyphs) -> str:
    """Return the peak; a sampled one is marked as a lower bound."""
    figure = _figure(step.peak_bytes, unit, glyphs)
    return figure if step.is_peak_exact or step.peak_bytes is None else f"{glyphs.at_least}{figure}"
