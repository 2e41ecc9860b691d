"""The stages of a candidate as bars; beside them those of another, or what was measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...analyzers.comparison.model import say_signed
from ...engine.units import format_bytes
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line, fit_text, right_text
from ..frame import keys
from ..widgets.cursor_list import CursorList
from .bar import Mark, draw_planned_bar
from .measured_stages import MeasuredStage, say_measured
from .planned import Candidate, PlannedStage

SIZE_CELLS = 9
DIFFERENCE_CELLS = 9
NARROW_CELLS = 56
WIDE_CELLS = 110
"""Widths below which a stage is told by its number alone, and from which measuring is told at length."""
MOST_LAYERS_CELLS = 12


@dataclass(frozen=True)
class StagesView:
    """What is drawn."""

    candidate: Candidate
    scale_bytes: int
    """Bytes at the right end of every bar."""
    other: Candidate | None = None
    """What it is held against."""
    measured: tuple[MeasuredStage, ...] = ()
    """The stages of a running job that is cut into as many."""


class PlanStages(CursorList):
    """Draws one line a stage.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.PLAN_LIST]

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._view: StagesView | None = None

    @property
    def _count(self) -> int:
        view = self._view
        if view is None:
            return 0
        return max(len(view.candidate.stages), 0 if view.other is None else len(view.other.stages))

    @property
    def stage(self) -> PlannedStage | None:
        """The candidate's stage under the cursor; None where it has none there."""
        stages = () if self._view is None else self._view.candidate.stages
        return stages[self.chosen] if self.chosen < len(stages) else None

    def show(self, view: StagesView) -> None:
        """Draw the stages of a candidate."""
        self._view = view
        self.choose(self.chosen)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        view = self._view
        glyphs = self._glyphs
        if view is None:
            return []
        if not self._count:
            line: Line = [Span(f" {view.candidate.reason or 'no stages'}", "muted")]
            return [fit_line(line, width, is_ascii=glyphs.name == "ascii", ellipsis=glyphs.ellipsis)]
        labels = self._list_labels(view, width)
        room = width - 1 - len(labels[0])
        if view.other is not None:
            drawn = [self._draw_both(number, view, view.other, room) for number in range(self._count)]
        else:
            drawn = self._draw_alone(view, room)
        return [
            fit_line(
                [*self._draw_label(number, labels[number]), *line],
                width,
                is_ascii=glyphs.name == "ascii",
                ellipsis=glyphs.ellipsis,
            )
            for number, line in enumerate(drawn)
        ]

    def _draw_label(self, number: int, label: str) -> Line:
        is_chosen = number == self.chosen and self.has_focus
        return [
            Span(self._glyphs.selected if is_chosen else " ", "accent"),
            Span(label, "strong" if is_chosen else "muted"),
        ]

    def _list_labels(self, view: StagesView, width: int) -> list[str]:
        """Return the number of each stage and its layers, all in as many cells."""
        stages = view.candidate.stages
        digits = len(str(self._count - 1))
        if width < NARROW_CELLS or view.other is not None:
            return [f"{number:>{digits}} " for number in range(self._count)]
        cells = min(MOST_LAYERS_CELLS, max(len(stage.layers) for stage in stages))
        return [
            f"{number:>{digits}} {fit_text(stage.layers, cells, self._glyphs.ellipsis)} "
            for number, stage in enumerate(stages)
        ]

    def _draw_alone(self, view: StagesView, room: int) -> list[Line]:
        """Return the bars of the candidate, their figures, and what is to say of each."""
        peaks = {peak.stage: peak for peak in view.measured}
        stages = view.candidate.stages
        told = [self._describe(stage, peaks.get(number), room) for number, stage in enumerate(stages)]
        words_cells = max(len(words) for words, _ in told)
        cells = max(4, room - SIZE_CELLS - 2 - (words_cells + 2 if words_cells else 0))
        return [
            [
                *self._draw_bar(stage, peaks.get(number), view.scale_bytes, cells),
                *self._draw_size(stage),
                Span(f"  {words}" if words else "", role),
            ]
            for number, (stage, (words, role)) in enumerate(zip(stages, told, strict=True))
        ]

    def _describe(self, stage: PlannedStage, peak: MeasuredStage | None, room: int) -> tuple[str, Role]:
        """Return what was measured, or by how much the stage is over its capacity."""
        if peak is not None:
            told = say_measured(stage, peak)
            return told[0 if room >= WIDE_CELLS else 1 if room >= NARROW_CELLS else 2], "strong"
        if stage.is_over:
            over = (stage.peak_bytes or 0) - (stage.capacity_bytes or 0)
            return f"{self._glyphs.risk('critical')} {format_bytes(over)} over", "critical"
        return "", "text"

    def _draw_both(self, number: int, view: StagesView, other: Candidate, room: int) -> Line:
        """Return the bars of both, and what the first needs more or less."""
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
        told = ""
        if sizes[0] is not None and sizes[1] is not None:
            told = "same" if sizes[0] == sizes[1] else say_signed(sizes[0] - sizes[1])
        return [*line, Span(right_text(told, DIFFERENCE_CELLS, self._glyphs.ellipsis), "strong")]

    def _draw_bar(
        self, stage: PlannedStage, peak: MeasuredStage | None, scale_bytes: int, cells: int
    ) -> Line:
        glyphs = self._glyphs
        marks: list[Mark] = []
        if stage.capacity_bytes is not None:
            marks.append(Mark(stage.capacity_bytes, glyphs.limit, "critical" if stage.is_over else "strong"))
        if peak is not None and peak.reserved_bytes is not None:
            marks.append(Mark(peak.reserved_bytes, glyphs.measured_reserved, "strong"))
        if peak is not None:
            marks.append(Mark(peak.allocated_bytes, glyphs.measured, "strong"))
        return draw_planned_bar(stage.kinds, scale_bytes, cells, glyphs, marks)

    def _draw_size(self, stage: PlannedStage) -> Line:
        text = self._glyphs.unmeasured if stage.peak_bytes is None else format_bytes(stage.peak_bytes)
        role: Role = "critical" if stage.is_over else "text"
        return [Span(" "), Span(right_text(text, SIZE_CELLS, self._glyphs.ellipsis), role)]


def find_scale(
    candidates: Sequence[Candidate], least_bytes: int, measured: Sequence[MeasuredStage] = ()
) -> int:
    """Return the bytes at the right end of bars: all that they show fits below it."""
    sizes = [least_bytes]
    sizes += [sum(kind.size_bytes for kind in stage.kinds) for each in candidates for stage in each.stages]
    for peak in measured:
        sizes += [peak.allocated_bytes, peak.reserved_bytes or 0]
    return max(sizes)
