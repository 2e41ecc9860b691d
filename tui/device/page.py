"""Everything about one device on one page: values, history, the gap, findings, steps, segments."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...analyzers.finding_words import EXPLAINED, explain_error
from ...analyzers.gap import MemoryGap, PartKind, find_activations, find_kept
from ...analyzers.out_of_memory import OOM_MET
from ...analyzers.risk import doubt_silent
from ...analyzers.verdict import Remedy
from ...engine.history import History
from ...engine.model import (
    SEVERITIES,
    AllocatorReading,
    DeviceSample,
    Evidence,
    Finding,
    RankSample,
    StepReading,
)
from ...engine.model.finding import is_last_word
from ...engine.units import MIB, format_bytes
from ...engine.viewer.snapshot import Snapshot
from ..draw.bars import Part, describe_sum, draw_stacked_bar
from ..draw.glyphs import Glyphs
from ..draw.numbers import moment_text
from ..draw.spans import Line, Role, Span, fit_line
from ..frame import keys
from ..live.device_graphs import AXIS_ROWS, ChartChoice, DeviceHistory, TimeSpan
from ..live.device_lines import identity_line
from ..widgets import device_fields as fields
from ..widgets.device_fields import SHORT_NAMES, wrap_words
from ..widgets.device_view import DeviceView, SharedWidths, build_views, measure_widths, name_rank
from ..widgets.line_page import LinePage
from ..widgets.replay_words import draw_part
from ..widgets.title_words import format_time
from .hardware import draw_hardware
from .sections import (
    SegmentQuestion,
    SegmentSection,
    choose_assessment,
    draw_forecast,
    draw_phases,
    draw_stacks,
    draw_steps,
)
from .serving import draw_servers

LEAST_GRAPH_ROWS = 5
LEAST_GRAPH_SHARE = 0.34
MOST_GRAPH_SHARE = 0.45
LEAST_MAP_ROWS = 6
LEAST_CURVE_ROWS = 4
# Height from which blank lines separate the sections.
ROOMY_FROM_ROWS = 24
NO_PROBE = (
    "No allocator data: it comes from the training process. Start that with "
    "`vramscope run -- python train.py`, or attach to a running one with `vramscope attach PID`."
)
NO_PROBE_BUT_KEY = (
    "No allocator data: it comes from the training process. Press a to attach to one that runs, or start it "
    "with `vramscope run -- python train.py`."
)


class PageContent(NamedTuple):
    """What the page is drawn from."""

    snapshot: Snapshot
    history: History
    uuid: str
    # The chosen training process; None where none reports.
    pid: int | None = None
    question: SegmentQuestion = SegmentQuestion()
    # Its last steps, oldest first.
    steps: tuple[StepReading, ...] = ()
    # Longest history to show.
    window_s: float = 600.0
    # What the graphs show.
    choice: ChartChoice = "memory"
    # How a person gets to know more of processes without a probe.
    remedy: Remedy | None = None


class DevicePage(LinePage):
    """One device in full; scrolls where it does not fit."""

    BINDINGS = [*keys.DEVICE_PAGE]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._history_graph = DeviceHistory(self.glyphs)
        self._segments = SegmentSection(self.glyphs)
        self._content: PageContent | None = None

    @property
    def has_room_for_both_charts(self) -> bool:
        return self._history_graph.has_room_for_both

    def show(self, content: PageContent) -> None:
        """Draw a device; unchanged lines are not painted."""
        self._content = content
        self._draw()

    def action_move(self, lines: int) -> None:
        self.scroll_relative(y=lines, animate=False, immediate=True)

    def action_page(self, pages: int) -> None:
        self.scroll_relative(y=pages * max(1, self.size.height - 1), animate=False, immediate=True)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        if self._content is None or width <= 0:
            return []
        snapshot = self._content.snapshot
        devices = snapshot.sample.devices if snapshot.sample else ()
        device = next((device for device in devices if device.uuid == self._content.uuid), None)
        if device is None:
            what = "This device is gone" if snapshot.sample else "There is no data of this node here"
            return [self._fit([Span(f" {what}; Esc goes back to the others.", "muted")], width)]
        lines = _Sections(self._content, device, width, height, self.glyphs).compose(
            self._history_graph, self._segments
        )
        return [self._fit(line, width) for line in lines]

    def _fit(self, line: Line, width: int) -> Line:
        is_ascii = self.glyphs.unmeasured.isascii()
        return fit_line(line, width, is_ascii=is_ascii)


class _Sections:
    def __init__(
        self, content: PageContent, device: DeviceSample, width: int, height: int, glyphs: Glyphs
    ) -> None:
        self._content = content
        self._width = width
        self._height = height
        self._glyphs = glyphs
        self._view: DeviceView = build_views(content.snapshot, [device], content.history, None)[0]
        self._widths: SharedWidths = measure_widths([self._view])

    def compose(self, graph: DeviceHistory, segments: SegmentSection) -> list[Line]:
        """Return every line; graph and map get the rows that the others leave."""
        rank = next((rank for rank in self._view.ranks if rank.pid == self._content.pid), None)
        head = self._head()
        stacks = self._stacks()
        fixed = [
            self._absence(),
            self._findings(),
            self._part(),
            self._comparison(),
            draw_servers(self._view, self._width, self._glyphs),
            self._forecast(rank),
            [] if rank is None else draw_model(rank, self._width, self._glyphs),
            draw_steps(self._content.steps, self._width, self._glyphs),
        ]
        blank = 1 if self._height >= ROOMY_FROM_ROWS else 0
        taken = len(head) + sum(len(lines) + blank for lines in fixed if lines)
        room = self._height - taken - blank
        map_rows = LEAST_MAP_ROWS + 2 if rank is not None else 0
        least = max(LEAST_GRAPH_ROWS + AXIS_ROWS, int(self._height * LEAST_GRAPH_SHARE))
        phases = [] if rank is None else draw_phases(rank, self._width, self._glyphs)
        below: list[list[Line]] = []
        for section in (phases, draw_hardware(self._view.device, self._width)):
            if section and len(section) + blank <= room - least - map_rows:
                fixed.append(section)
                room -= len(section) + blank
            else:  # there is no room above the map: it is a scroll away
                below.append(section)
        # Without a process that reports, nothing below needs the room.
        most = room if rank is None else max(least, int(self._height * MOST_GRAPH_SHARE))
        graph_rows = max(least, min(most, room - map_rows))
        history = graph.draw(
            self._content.history,
            self._view,
            self._widths,
            self._span(),
            (self._width, graph_rows),
            self._content.choice if self._widths.has_metrics else "memory",
        )
        left = max(LEAST_MAP_ROWS, room - graph_rows - 2)
        segment_lines = self._map(segments, rank, left)
        return _stack([[*head, *history], *fixed, segment_lines, *below, stacks], blank)

    def _head(self) -> list[Line]:
        lines = [identity_line(self._view, self._widths, self._width, self._glyphs)]
        lines += draw_gap(self._view, self._widths, self._width, self._glyphs)
        has_gap_parts = bool(gap_parts(self._view, self._glyphs))
        found = fields.facts(
            self._view, self._widths, self._glyphs, has_gap=not has_gap_parts, has_hardware=False
        )
        line, _ = fields.join_facts(found, self._width - 2)
        lines.append([Span("  "), *line])
        if len(self._view.ranks) > 1:
            lines.append(self._rank_choice())
        return lines

    def _rank_choice(self) -> Line:
        line: Line = [Span("  ")]
        for rank in self._view.ranks:
            is_chosen = rank.pid == self._content.pid
            mark = self._glyphs.selected if is_chosen else " "
            name = Span(name_rank(rank), "strong" if is_chosen else "muted")
            line += [Span(mark, "accent"), name, Span("  ")]
        return [*line, Span("Tab: next", "faint")]

    def _span(self) -> TimeSpan:
        sample = self._content.snapshot.sample
        now_s, interval_s = (sample.time_s, sample.interval_s) if sample else (0.0, 1.0)
        clock = "wall" if sample is None else sample.clock
        is_replay = self._content.snapshot.replay is not None
        moment = moment_text(now_s, clock) if is_replay else None
        uuids = (self._view.device.uuid,)
        return TimeSpan(now_s, self._content.window_s, interval_s, clock == "wall", moment, uuids, clock)

    def _absence(self) -> list[Line]:
        """Return in full why the device has no values, or how to get missing allocator data."""
        device = self._view.device
        if device.state in ("lost", "unsupported") and device.reason:
            reason = f"{device.reason[:1].upper()}{device.reason[1:]}"
            return [[Span(f" {text}", "medium")] for text in wrap_words(reason, self._width - 2)]
        is_known = device.kind == "trace" or device.allocator is not None
        if is_known or self._view.ranks or self._view.servers:
            return []
        words = NO_PROBE_BUT_KEY if self._content.remedy == "key" else NO_PROBE
        return [[Span(f" {text}", "muted")] for text in fields.wrap_words(words, self._width - 2)]

    def _findings(self) -> list[Line]:
        found: Sequence[Finding] = [
            finding
            for finding in self._content.snapshot.findings
            if finding.device_uuid == self._view.device.uuid
        ]
        # The newest first among equals: in a low window only the first ones can be seen.
        found = sorted(found, key=lambda it: -SEVERITIES.index(it.severity))
        return draw_findings(found, self._view.clock, self._width, self._glyphs)

    def _part(self) -> list[Line]:
        """Return the facts of the run that plays, where it is one of several."""
        replay = self._content.snapshot.replay
        return draw_part(None if replay is None else replay.part)

    def _comparison(self) -> list[Line]:
        """Return the comparison with a simulation of the rank that plays, where there is one."""
        if self._view.comparison is None:
            return []
        from .simulated_run import draw_comparison

        rows = max(LEAST_CURVE_ROWS, self._height // 5)
        step = self._view.device.step
        size = (self._width, rows)
        return draw_comparison(self._view.comparison, step, size, self._glyphs)

    def _forecast(self, rank: RankSample | None) -> list[Line]:
        snapshot = self._content.snapshot
        if snapshot.sample is None:
            return []
        known = doubt_silent(snapshot.sample, snapshot.assessments)
        found = choose_assessment(self._view.device, rank, known)
        return draw_forecast(found, snapshot.sample.time_s, self._width, self._glyphs, rank)

    def _map(self, segments: SegmentSection, rank: RankSample | None, rows: int) -> list[Line]:
        sample = self._content.snapshot.sample
        if rank is None or sample is None:
            return []
        return segments.draw(rank, self._content.question, sample.time_s, self._width, rows)

    def _stacks(self) -> list[Line]:
        segment_map = self._content.question.segment_map
        return [] if segment_map is None else draw_stacks(segment_map.live_stacks, self._width, self._glyphs)


def _stack(sections: Sequence[list[Line]], blank: int) -> list[Line]:
    """Return the sections that have lines one below the other, with blank lines between them."""
    lines: list[Line] = []
    for section in sections:
        if section:
            lines += [[Span("")]] * (blank if lines else 0)
            lines += section
    return lines


# Below this, what is kept at the end of a step is losses and counters, as in every program.
LEAST_KEPT_BYTES = MIB


def draw_model(rank: RankSample, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the peak of the newest step, split into the optimizers' parts and the rest; empty if unknown.

    A sampled peak is a lower bound of the real one, and so are the activations.
    """
    parts = model_parts(rank, glyphs)
    if all(part.value_bytes is None for part in parts):
        return []
    step = rank.step
    peak_bytes = step.peak_bytes if step is not None else None
    known = sum(part.value_bytes or 0 for part in parts)
    name = f"peak of step {step.index:,}" if step is not None and peak_bytes is not None else "model state"
    whole_bytes = known if peak_bytes is None else max(peak_bytes, known)
    is_exact = step is None or peak_bytes is None or step.is_peak_exact
    whole = Part(name, whole_bytes, "", "strong", is_exact)
    text = describe_sum(whole, parts, width - 2, glyphs)
    bar = draw_stacked_bar(parts, whole_bytes, width - 3, glyphs)
    return [*([Span(" "), *line] for line in text), [Span("  "), *bar]]


def model_parts(rank: RankSample, glyphs: Glyphs) -> Sequence[Part]:
    """Return the parts of a step's peak; activations are what is neither the optimizers' nor kept.

    On processors no allocator measures a peak, so activations are left out.
    """
    state = rank.model_state
    if state is None:
        return ()
    parts = [
        Part("parameters", state.parameters_bytes, glyphs.full, "fill"),
        Part("gradients", state.gradients_bytes, glyphs.cached, "fill"),
        Part("optimizer", state.optimizer_bytes, glyphs.band, "fill"),
    ]
    if state.grad_sample_bytes is not None:
        parts.append(Part("per-sample gradients", state.grad_sample_bytes, glyphs.hatched, "accent"))
    kept = find_kept(rank)
    if kept is not None and kept >= LEAST_KEPT_BYTES:
        parts.append(Part("kept from step to step", kept, glyphs.others, "medium"))
    if rank.backend == "cpu" and (rank.step is None or rank.step.peak_bytes is None):
        return parts
    rest = find_activations(rank)
    if rest is None:
        return [*parts, Part("activations", None, glyphs.rest, "band")]
    return [*parts, Part("activations", rest.size_bytes, glyphs.rest, "band", rest.is_exact)]


INDENT = "   "
# Values in seconds beyond this are moments, not spans.
LATEST_SPAN_S = 1e9

# Evidence that is the number of a process: a name of digits, not a quantity.
PROCESS_NAMES = ("process", "pid")


def draw_findings(findings: Sequence[Finding], clock: str, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the open findings, and errors that ended the last process, in the given order."""
    lines: list[Line] = []
    for finding in findings:
        if finding.is_open or is_last_word(finding):
            lines += _draw(finding, clock, width, glyphs)
    return lines


def _draw(finding: Finding, clock: str, width: int, glyphs: Glyphs) -> Iterator[Line]:
    mark = f" {glyphs.risk(finding.severity)} "
    since = f" (since {format_time(finding.opened_s, clock)})"
    room = width - len(INDENT) - 1
    for number, text in enumerate(wrap_words(finding.title + since, room)):
        yield [Span(mark if number == 0 else INDENT, finding.severity), Span(text, "strong")]
    is_error = finding.kind == OOM_MET
    explained = explain_error(finding, lambda time_s: format_time(time_s, clock)) if is_error else ""
    left = [found for found in finding.evidence if not _is_in_text(found, finding)]
    left = [found for found in left if found.name not in EXPLAINED] if is_error else left
    evidence = ", ".join(
        _format_evidence(found, clock) for found in left if found.value is not None or not is_error
    )
    sentences: tuple[tuple[str, Role], ...] = (
        (explained, "text"),
        (evidence, "text"),
        (finding.method, "muted"),
        (f"To do: {finding.advice}" if finding.advice else "", "text"),
    )
    for sentence, role in sentences:
        for text in wrap_words(sentence, room) if sentence else ():
            yield [Span(INDENT), Span(text, role)]


def _is_in_text(evidence: Evidence, finding: Finding) -> bool:
    """Return whether this is a path that is already in the sentence or in the advice."""
    value = evidence.value
    return isinstance(value, str) and "/" in value and value in f"{finding.title} {finding.advice}"


def _format_evidence(evidence: Evidence, clock: str) -> str:
    """Return one value with its name; bytes in a fitting unit, moments as the time of day."""
    value = evidence.value
    if evidence.unit == "s" and isinstance(value, int | float) and value > LATEST_SPAN_S:
        return f"{evidence.name} {format_time(value, clock)}"
    if value is None:
        return f"{evidence.name} —"
    if evidence.unit.startswith("bytes") and isinstance(value, int | float):
        return f"{evidence.name} {format_bytes(int(value))}{evidence.unit.removeprefix('bytes')}"
    if evidence.name in PROCESS_NAMES:
        return f"{evidence.name} {value}"
    number = f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else value
    unit = f" {evidence.unit}" if evidence.unit else ""
    return f"{evidence.name} {number}{unit}"


# Width from which parts have their full names.
WORDY_FROM_CELLS = 64
# Short names of parts, for little room.
NARROW_NAMES: dict[PartKind, str] = {
    **SHORT_NAMES,
    "awaiting_free": "awaiting",
    "stranded": "stranded",
}
# Below this, memory lost to rounding is not worth a remark.
LEAST_INTERNAL_BYTES = MIB
READ_APART = "(driver and allocator were read at different times)"


def draw_gap(view: DeviceView, widths: SharedWidths, width: int, glyphs: Glyphs) -> list[Line]:
    """Return the used memory as one bar on the device's scale, and below it as a sum of named parts.

    Without allocator data it is the plain gauge.
    """
    cells = max(0, width - 5 - fields.memory_figures_width(widths))
    figures = fields.memory_figures(view, widths, glyphs)
    parts = gap_parts(view, glyphs, is_wordy=width >= WORDY_FROM_CELLS)
    if not parts or not view.scale_bytes:
        gauge = fields.gauge(view, cells, glyphs)
        return [[Span("  "), *gauge, fields.level_mark(view, glyphs), Span(" "), *figures]]
    bar = draw_stacked_bar(parts, view.scale_bytes, cells, glyphs)
    text = describe_sum(_whole(view), parts, width - 3, glyphs)
    lines = [[Span("  "), *bar, Span("  "), *figures], *([Span("  "), *line] for line in text)]
    is_wordy = width >= WORDY_FROM_CELLS
    remarks = list(_remark(view.gap, glyphs)) if view.gap is not None and is_wordy else []
    if remarks:
        lines.append([Span("  "), Span("   ".join(remarks), "muted")])
    return lines


def gap_parts(view: DeviceView, glyphs: Glyphs, *, is_wordy: bool = True) -> list[Part]:
    """Return the parts of the used memory, as far as they are known; empty where nothing reports them."""
    if view.gap is not None:
        return list(_name_parts(view.gap, view, glyphs, is_wordy=is_wordy))
    allocator = AllocatorReading() if view.ranks else view.device.allocator or AllocatorReading()
    allocated = allocator.allocated_bytes
    reserved = allocator.reserved_bytes
    if allocated is None or reserved is None or reserved < allocated:
        return []
    return [
        Part("live tensors", allocated, glyphs.full, view.fill_role),
        Part("cached", reserved - allocated, glyphs.cached, "band"),
    ]


def _whole(view: DeviceView) -> Part:
    """Return the whole of the parts: all used memory, or what a recorded allocator held."""
    if view.gap is not None:
        return Part("used", view.gap.used_bytes, "", "strong")
    allocator = view.device.allocator
    return Part("reserved", allocator.reserved_bytes if allocator else None, "", "strong")


def _name_parts(gap: MemoryGap, view: DeviceView, glyphs: Glyphs, *, is_wordy: bool) -> Iterator[Part]:
    """Yield the parts that are there, each in the look of the first kind in it."""
    looks: dict[PartKind, tuple[str, Role]] = {
        "weights": (glyphs.full, "fill"),
        "kv_used": (glyphs.hatched, "accent"),
        "kv_cached": (glyphs.cached, "accent"),
        "kv_free": (glyphs.others, "band"),
        "graphs": (glyphs.band, "fill"),
        "workspace": (glyphs.rest, "muted"),
        "allocated": (glyphs.full, view.fill_role),
        "awaiting_free": (glyphs.band, view.fill_role),
        "stranded": (glyphs.hatched, "medium"),
        "cached": (glyphs.cached, "band"),
        "context": (glyphs.rest, "muted"),
        "other_processes": (glyphs.others, "muted"),
        "unattributed": (glyphs.unattributed, "muted"),
    }
    for part in gap.parts:
        if part.size_bytes:
            short = "+".join(dict.fromkeys(NARROW_NAMES[kind] for kind in part.kinds))
            yield Part(part.name if is_wordy else short, part.size_bytes, *looks[part.kinds[0]])


def _remark(gap: MemoryGap, glyphs: Glyphs) -> Iterator[str]:
    if gap.capacity_bytes is not None:
        yield f"capacity for tensors {format_bytes(gap.capacity_bytes)}"
    if gap.internal_bytes is not None and gap.internal_bytes >= LEAST_INTERNAL_BYTES:
        yield f"lost to rounding {format_bytes(gap.internal_bytes)}"
    if not gap.is_consistent:
        yield READ_APART
