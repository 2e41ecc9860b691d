"""The stages of a candidate as bars, with what was measured, and the facts above them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...analyzers.diff.model import say_percent, say_signed
from ...analyzers.stage_peaks import JobStages, StagePeak
from ...engine.units import format_bytes
from ..draw.bars import Part, draw_stacked_bar
from ..draw.glyphs import Glyphs
from ..draw.numbers import count_text, moment_text
from ..draw.spans import Line, Role, Span, fit_line, fit_text, line_width, right_text
from ..frame import keys
from ..widgets.line_page import LinePage, RowTable
from .planned import Candidate, KindBytes, MemoryKind, PlannedStage, StepPart


class MeasuredStage(NamedTuple):
    """The peaks of one stage of a job, over as many tensor ranks as the plan's bytes."""

    stage: int
    allocated_bytes: int
    reserved_bytes: int | None
    # `measured`, or `modelled` on a simulated card.
    word: str


class MatchedJob(NamedTuple):
    """How a running job compares with a candidate."""

    stages: tuple[MeasuredStage, ...] = ()
    # What was measured, or why it cannot be compared with the candidate; empty without a job.
    sentence: str = ""


def match_job(candidate: Candidate, job: JobStages) -> MatchedJob:
    if not job.stages or not candidate.stages:
        return MatchedJob()
    refusal = _refuse(candidate, job)
    if refusal is not None:
        return MatchedJob(sentence=refusal)
    found = [_measure(peak, candidate.tensor) for peak in job.stages]
    stages = tuple(each for each in found if each is not None)
    return MatchedJob(stages, _describe(candidate, job, stages))


def _refuse(candidate: Candidate, job: JobStages) -> str | None:
    """Return why a job and a candidate cannot be compared; None where they can."""
    count = job.pipeline or job.stages[-1].stage + 1
    is_alike = count == len(candidate.stages) if job.pipeline else count <= len(candidate.stages)
    if not is_alike:
        stages = count_text(count, "stage", "stages")
        return f"the running job has {stages}: select a plan with as many to compare"
    tensor = max(peak.tensor_ranks for peak in job.stages)
    if candidate.tensor not in (1, tensor):
        return f"the job splits each layer over {tensor} tensor ranks, this plan over {candidate.tensor}"
    return None


def _measure(peak: StagePeak, tensor: int) -> MeasuredStage | None:
    """Return the peaks of a stage: of one rank, or of all tensor ranks together where the plan has one."""
    is_whole = tensor < peak.tensor_ranks
    allocated = peak.whole_allocated_bytes if is_whole else peak.allocated_bytes
    reserved = peak.whole_reserved_bytes if is_whole else peak.reserved_bytes
    if allocated is None:
        return None
    return MeasuredStage(peak.stage, allocated, reserved, "modelled" if peak.is_simulated else "measured")


def _describe(candidate: Candidate, job: JobStages, stages: tuple[MeasuredStage, ...]) -> str:
    count = f"{len(stages)} of {len(candidate.stages)} stages"
    since = "" if job.since_s is None else f" since {moment_text(job.since_s, job.clock)}"
    tensor = max(peak.tensor_ranks for peak in job.stages)
    ranks = f", {tensor} tensor ranks together" if candidate.tensor < tensor else ""
    word = "modelled" if any(each.word == "modelled" for each in stages) else "measured"
    words = f"{count} {word}{since}{ranks}"
    planned = [(each.allocated_bytes, candidate.stages[each.stage].peak_bytes) for each in stages]
    differences = [size - peak for size, peak in planned if peak is not None]
    if not differences:
        return words
    most = max(differences, key=abs)
    return f"{words}: at most {say_signed(most)} from the plan" if most else f"{words}: as planned"


def describe_measured(stage: PlannedStage, measured: MeasuredStage) -> tuple[str, str, str]:
    """Return what was measured and how it differs from the plan: at length, in brief, and as short as
    possible.
    """
    allocated = measured.allocated_bytes
    reserved = measured.reserved_bytes
    text = f"{measured.word} {format_bytes(allocated)}"
    more = "" if reserved is None else f", reserved {format_bytes(reserved)}"
    if not stage.peak_bytes:
        return f"{text}{more}", text, format_bytes(allocated)
    difference = allocated - stage.peak_bytes
    share = say_percent(100.0 * difference / stage.peak_bytes)
    return f"{text}, {say_signed(difference)} ({share}){more}", f"{text} {share}", share


KINDS: tuple[MemoryKind, ...] = ("weights", "gradients", "optimizer", "activations", "other")


class Mark(NamedTuple):
    size_bytes: int
    glyph: str
    role: Role


def show_kind(kind: MemoryKind, glyphs: Glyphs) -> tuple[str, Role]:
    looks: dict[MemoryKind, tuple[str, Role]] = {
        "weights": (glyphs.full, "fill"),
        "gradients": (glyphs.cached, "accent"),
        "optimizer": (glyphs.band, "band"),
        "activations": (glyphs.hatched, "text"),
        "other": (glyphs.rest, "muted"),
    }
    return looks[kind]


def draw_planned_bar(
    kinds: Sequence[KindBytes], scale_bytes: int, width: int, glyphs: Glyphs, marks: Sequence[Mark] = ()
) -> Line:
    """Return the memory of a stage, kind by kind, on a scale from 0 to `scale_bytes`.

    Of two marks on one cell the last is seen.
    """
    parts = [Part(kind, size, *show_kind(kind, glyphs)) for kind, size in kinds]
    line = draw_stacked_bar(parts, scale_bytes, width, glyphs)
    for mark in marks:
        line = _replace_cell(line, _find_cell(mark.size_bytes, scale_bytes, width), mark)
    return line


def _find_cell(size_bytes: int, scale_bytes: int, width: int) -> int:
    """Return the cell in which a number of bytes ends; the last one for bytes beyond the scale."""
    if scale_bytes <= 0:
        return width
    return max(0, min(width - 1, round(size_bytes / scale_bytes * width) - 1))


def _replace_cell(line: Line, cell: int, mark: Mark) -> Line:
    """Return a line with one of its cells, each a character wide, replaced."""
    put: Line = []
    at = 0
    for text, role in line:
        place = cell - at
        if 0 <= place < len(text):
            pieces = (Span(text[:place], role), Span(mark.glyph, mark.role), Span(text[place + 1 :], role))
            put += [piece for piece in pieces if piece.text]
        else:
            put.append(Span(text, role))
        at += len(text)
    return put


SIZE_CELLS = 9
DIFFERENCE_CELLS = 9
# Widths below which a stage has only its number, and from which measurements are in full.
NARROW_CELLS = 56
WIDE_CELLS = 110
MOST_LAYERS_CELLS = 12


@dataclass(frozen=True)
class StagesView:
    candidate: Candidate
    # Bytes at the right end of every bar.
    scale_bytes: int
    # The candidate it is compared with.
    other: Candidate | None = None
    # The stages of a running job with as many stages.
    measured: tuple[MeasuredStage, ...] = ()


class PlanStages(RowTable[int]):
    """Draws one line a stage."""

    BINDINGS = [*keys.PLAN_LIST]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._view: StagesView | None = None

    @property
    def stage(self) -> PlannedStage | None:
        """The candidate's stage under the cursor; None where it has none there."""
        stages = () if self._view is None else self._view.candidate.stages
        return stages[self.chosen] if self.chosen < len(stages) else None

    def show(self, view: StagesView) -> None:
        self._view = view
        count = max(len(view.candidate.stages), 0 if view.other is None else len(view.other.stages))
        self.rows = range(count)
        self.choose(self.chosen)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        view = self._view
        glyphs = self.glyphs
        if view is None:
            return []
        if not self.rows:
            line: Line = [Span(f" {view.candidate.reason or 'no stages'}", "muted")]
            return [fit_line(line, width, is_ascii=glyphs.name == "ascii")]
        labels = self._list_labels(view, width)
        room = width - 1 - len(labels[0])
        if view.other is not None:
            drawn = [self._draw_both(number, view, view.other, room) for number in range(len(self.rows))]
        else:
            drawn = self._draw_alone(view, room)
        return [
            fit_line(
                [*self._draw_label(number, labels[number]), *line],
                width,
                is_ascii=glyphs.name == "ascii",
            )
            for number, line in enumerate(drawn)
        ]

    def _draw_label(self, number: int, label: str) -> Line:
        is_chosen = self.is_marked(number)
        return [
            Span(self.glyphs.selected if is_chosen else " ", "accent"),
            Span(label, "strong" if is_chosen else "muted"),
        ]

    def _list_labels(self, view: StagesView, width: int) -> list[str]:
        """Return the number of each stage and its layers, all in as many cells."""
        stages = view.candidate.stages
        digits = len(str(len(self.rows) - 1))
        if width < NARROW_CELLS or view.other is not None:
            return [f"{number:>{digits}} " for number in range(len(self.rows))]
        cells = min(MOST_LAYERS_CELLS, max(len(stage.layers) for stage in stages))
        return [
            f"{number:>{digits}} {fit_text(stage.layers, cells, self.glyphs.ellipsis)} "
            for number, stage in enumerate(stages)
        ]

    def _draw_alone(self, view: StagesView, room: int) -> list[Line]:
        """Return the bars of the candidate, their sizes, and the words for each."""
        peaks = {peak.stage: peak for peak in view.measured}
        stages = view.candidate.stages
        labels = [self._describe(stage, peaks.get(number), room) for number, stage in enumerate(stages)]
        words_cells = max(len(words) for words, _ in labels)
        cells = max(4, room - SIZE_CELLS - 2 - (words_cells + 2 if words_cells else 0))
        return [
            [
                *self._draw_bar(stage, peaks.get(number), view.scale_bytes, cells),
                *self._draw_size(stage),
                Span(f"  {words}" if words else "", role),
            ]
            for number, (stage, (words, role)) in enumerate(zip(stages, labels, strict=True))
        ]

    def _describe(self, stage: PlannedStage, peak: MeasuredStage | None, room: int) -> tuple[str, Role]:
        """Return what was measured, or by how much the stage is over its capacity."""
        if peak is not None:
            words = describe_measured(stage, peak)
            return words[0 if room >= WIDE_CELLS else 1 if room >= NARROW_CELLS else 2], "strong"
        if stage.is_over:
            over = (stage.peak_bytes or 0) - (stage.capacity_bytes or 0)
            return f"{self.glyphs.risk('critical')} {format_bytes(over)} over", "critical"
        return "", "text"

    def _draw_both(self, number: int, view: StagesView, other: Candidate, room: int) -> Line:
        """Return the bars of both, and the difference of the first from the second."""
        cells = max(2, (room - DIFFERENCE_CELLS - 1) // 2 - SIZE_CELLS - 2)
        line: Line = []
        sizes: list[int | None] = []
        for candidate in (view.candidate, other):
            stage = candidate.stages[number] if number < len(candidate.stages) else None
            if stage is None:
                line.append(Span(" " * (cells + SIZE_CELLS + 2), "faint"))
            else:
                line += [*self._draw_bar(stage, None, view.scale_bytes, cells), *self._draw_size(stage)]
                line.append(Span(" "))
            sizes.append(None if stage is None else stage.peak_bytes)
        words = ""
        if sizes[0] is not None and sizes[1] is not None:
            words = "same" if sizes[0] == sizes[1] else say_signed(sizes[0] - sizes[1])
        return [*line, Span(right_text(words, DIFFERENCE_CELLS, self.glyphs.ellipsis), "strong")]

    def _draw_bar(
        self, stage: PlannedStage, peak: MeasuredStage | None, scale_bytes: int, cells: int
    ) -> Line:
        glyphs = self.glyphs
        marks: list[Mark] = []
        if stage.capacity_bytes is not None:
            marks.append(Mark(stage.capacity_bytes, glyphs.limit, "critical" if stage.is_over else "strong"))
        if peak is not None and peak.reserved_bytes is not None:
            marks.append(Mark(peak.reserved_bytes, glyphs.measured_reserved, "strong"))
        if peak is not None:
            marks.append(Mark(peak.allocated_bytes, glyphs.measured, "strong"))
        return draw_planned_bar(stage.kinds, scale_bytes, cells, glyphs, marks)

    def _draw_size(self, stage: PlannedStage) -> Line:
        text = self.glyphs.unmeasured if stage.peak_bytes is None else format_bytes(stage.peak_bytes)
        role: Role = "critical" if stage.is_over else "text"
        return [Span(" "), Span(right_text(text, SIZE_CELLS, self.glyphs.ellipsis), role)]


def find_scale(
    candidates: Sequence[Candidate], least_bytes: int, measured: Sequence[MeasuredStage] = ()
) -> int:
    """Return the bytes at the right end of bars: everything they show fits below it."""
    sizes = [least_bytes]
    sizes += [sum(kind.size_bytes for kind in stage.kinds) for each in candidates for stage in each.stages]
    for peak in measured:
        sizes += [peak.allocated_bytes, peak.reserved_bytes or 0]
    return max(sizes)


LEAST_BAR_CELLS = 8
# Parts of a step that are named even where the bar then has no room.
MOST_CRAMPED = 3
NANOSECONDS = 1_000_000_000


class PlanFacts(LinePage, can_focus=False):
    """Describes one candidate, or two that are compared, in as many lines as it has."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._candidate: Candidate | None = None
        self._best: Candidate | None = None
        self._other: Candidate | None = None
        self._job = MatchedJob()

    def show(
        self, candidate: Candidate | None, best: Candidate | None, other: Candidate | None, job: MatchedJob
    ) -> None:
        """Describe the candidate under the cursor, compared with the marked one (`other`) or the recommended
        one.
        """
        self._candidate = candidate
        self._best = best
        self._other = other
        self._job = job
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        candidate = self._candidate
        glyphs = self.glyphs
        if candidate is None:
            return []
        lines = [self._compare(candidate), self._draw_step(candidate, width), self._draw_legend(candidate)]
        is_ascii = glyphs.name == "ascii"
        return [fit_line([Span(" "), *line], width, is_ascii=is_ascii) for line in lines[:height]]

    def _compare(self, candidate: Candidate) -> Line:
        name = Span(candidate.name, "strong")
        if self._other is not None:
            return [name, Span(f" vs {self._other.name} (c): {describe_apart(candidate, self._other)}")]
        if self._job.sentence:
            return [name, Span(f": {self._job.sentence}")]
        if candidate.reason:
            return [name, Span(f": {candidate.reason}")]
        if self._best is None:
            return [name, Span(" does not fit")] if candidate.note == "over" else [name]
        return [name, Span(f" vs the recommended plan: {describe_apart(candidate, self._best)}")]

    def _draw_step(self, candidate: Candidate, width: int) -> Line:
        """Return the time of a step as a bar of its parts, each named with its time."""
        step_s = candidate.step_s
        glyphs = self.glyphs
        if not step_s:
            return [Span("time of a step: not estimated", "muted")]
        looks = _style_parts(candidate.step_parts, glyphs)
        lead: Line = [Span("step ", "muted"), Span(show_duration(step_s), "strong"), Span(" est. ", "muted")]
        named = looks
        names = _name_parts(named)
        while len(named) > MOST_CRAMPED and line_width(lead + names) + 2 + LEAST_BAR_CELLS > width:
            least = min(part.duration_s for part, _, _ in named)
            named = [look for look in named if look[0].duration_s > least]
            names = _name_parts(named)
        cells = width - 2 - line_width(lead) - line_width(names)
        if cells < LEAST_BAR_CELLS:
            return [*lead, *names]
        # The bar draws whole numbers of anything: here they are nanoseconds.
        parts = [
            Part(part.name, round(part.duration_s * NANOSECONDS), glyph, role) for part, glyph, role in looks
        ]
        bar = draw_stacked_bar(parts, round(step_s * NANOSECONDS), min(cells, 40), glyphs)
        return [*lead, *bar, *names]

    def _draw_legend(self, candidate: Candidate) -> Line:
        stages = candidate.stages
        glyphs = self.glyphs
        found = {kind.kind for stage in stages for kind in stage.kinds if kind.size_bytes}
        line: Line = []
        for kind in KINDS:
            if kind in found:
                glyph, role = show_kind(kind, glyphs)
                line += [Span(glyph, role), Span(f" {kind} ", "muted")]
        if any(stage.peak_bytes is None for stage in stages):
            line.append(Span(" activations unknown ", "muted"))
        capacities = {stage.capacity_bytes for stage in stages} - {None}
        if capacities:
            words = f" {format_bytes(max(each or 0 for each in capacities))}" if len(capacities) == 1 else ""
            line += [Span(" "), Span(glyphs.limit, "strong"), Span(f" capacity{words}", "muted")]
        else:
            line.append(Span(" no capacity given", "muted"))
        if self._other is None and self._job.stages:
            line += [Span("  "), Span(glyphs.measured, "strong"), Span(" allocated ", "muted")]
            line += [Span(glyphs.measured_reserved, "strong"), Span(" reserved, job's peaks", "muted")]
        return line


def describe_apart(candidate: Candidate, other: Candidate) -> str:
    """Return by how much the first needs more or less than the second."""
    words: list[str] = []
    if candidate.peak_bytes is not None and other.peak_bytes:
        apart = candidate.peak_bytes - other.peak_bytes
        share = say_percent(100.0 * apart / other.peak_bytes)
        words.append(f"fullest stage {say_signed(apart)} ({share})")
    if candidate.step_s is not None and other.step_s:
        apart_s = candidate.step_s - other.step_s
        sign = "+" if apart_s > 0 else "-" if apart_s < 0 else ""
        share = say_percent(100.0 * apart_s / other.step_s)
        words.append(f"step {sign}{show_duration(abs(apart_s))} ({share}), estimated")
    return ", ".join(words) or "nothing to compare"


def show_duration(duration_s: float) -> str:
    return f"{1000 * duration_s:,.1f} ms" if duration_s < 1 else f"{duration_s:,.2f} s"


def _name_parts(looks: Sequence[tuple[StepPart, str, Role]]) -> Line:
    names: Line = []
    for part, glyph, role in looks:
        names += [Span("  "), Span(glyph, role), Span(f" {part.name} ", "muted")]
        names.append(Span(show_duration(part.duration_s)))
    return names


def _style_parts(parts: tuple[StepPart, ...], glyphs: Glyphs) -> list[tuple[StepPart, str, Role]]:
    """Return each part with its character and role: computing is solid, waiting is empty."""
    styles: list[tuple[str, Role]] = [
        (glyphs.cached, "accent"),
        (glyphs.hatched, "text"),
        (glyphs.others, "muted"),
        (glyphs.rest, "muted"),
        (glyphs.unattributed, "muted"),
    ]
    styled: list[tuple[StepPart, str, Role]] = []
    for part in parts:
        if part.name == "compute":
            styled.append((part, glyphs.full, "fill"))
        elif part.name == "bubble":
            styled.append((part, glyphs.band, "band"))
        else:
            styled.append((part, *(styles.pop(0) if styles else (glyphs.rest, "muted"))))
    return styled
