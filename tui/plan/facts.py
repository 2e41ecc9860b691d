"""What is to say of a candidate besides its bars: why, where the time of a step goes, what bars mean."""

from collections.abc import Sequence

from ...analyzers.comparison.model import say_percent, say_signed
from ...engine.units import format_bytes
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line, line_width
from ..draw.stacked_bar import Part, draw_stacked_bar
from ..widgets.line_page import LinePage
from .bar import KINDS, show_kind
from .measured_stages import MatchedJob
from .planned import Candidate, StepPart

LEAST_BAR_CELLS = 8
MOST_CRAMPED = 3
"""Parts of a step that are named even where the bar then has no room."""
NANOSECONDS = 1_000_000_000


class PlanFacts(LinePage, can_focus=False):
    """Tells of one candidate, or of two that are compared, in as many lines as it has.

    Args:
        glyphs: Characters to draw with.
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._candidate: Candidate | None = None
        self._best: Candidate | None = None
        self._other: Candidate | None = None
        self._job = MatchedJob()

    def show(
        self, candidate: Candidate | None, best: Candidate | None, other: Candidate | None, job: MatchedJob
    ) -> None:
        """Tell of a candidate.

        Args:
            candidate: The one under the cursor; None where no line is listed.
            best: The one that is recommended; None where none fits.
            other: What it is held against, or None.
            job: What the job that runs says of it.
        """
        self._candidate = candidate
        self._best = best
        self._other = other
        self._job = job
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        candidate = self._candidate
        glyphs = self._glyphs
        if candidate is None:
            return []
        lines = [self._say(candidate), self._draw_step(candidate, width), self._draw_legend(candidate)]
        is_ascii = glyphs.name == "ascii"
        return [
            fit_line([Span(" "), *line], width, is_ascii=is_ascii, ellipsis=glyphs.ellipsis)
            for line in lines[:height]
        ]

    def _say(self, candidate: Candidate) -> Line:
        name = Span(candidate.name, "strong")
        if self._other is not None:
            return [name, Span(f" beside {self._other.name} (c): {say_apart(candidate, self._other)}")]
        if self._job.sentence:
            return [name, Span(f": {self._job.sentence}")]
        if candidate.reason:
            return [name, Span(f": {candidate.reason}")]
        if self._best is None:
            return [name, Span(" does not fit")] if candidate.note == "over" else [name]
        return [name, Span(f" beside what is recommended: {say_apart(candidate, self._best)}")]

    def _draw_step(self, candidate: Candidate, width: int) -> Line:
        """Return the time of a step as a bar of its parts, each named with its figure."""
        step_s = candidate.step_s
        glyphs = self._glyphs
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
        """Return what the characters of the bars stand for."""
        stages = candidate.stages
        glyphs = self._glyphs
        found = {kind.kind for stage in stages for kind in stage.kinds if kind.size_bytes}
        line: Line = []
        for kind in KINDS:
            if kind in found:
                glyph, role = show_kind(kind, glyphs)
                line += [Span(glyph, role), Span(f" {kind} ", "muted")]
        if any(stage.peak_bytes is None for stage in stages):
            line.append(Span(" activations not known ", "muted"))
        capacities = {stage.capacity_bytes for stage in stages} - {None}
        if capacities:
            told = f" {format_bytes(max(each or 0 for each in capacities))}" if len(capacities) == 1 else ""
            line += [Span(" "), Span(glyphs.limit, "strong"), Span(f" capacity{told}", "muted")]
        else:
            line.append(Span(" no capacity given", "muted"))
        if self._other is None and self._job.stages:
            line += [Span("  "), Span(glyphs.measured, "strong"), Span(" allocated ", "muted")]
            line += [Span(glyphs.measured_reserved, "strong"), Span(" reserved, peaks of the job", "muted")]
        return line


def say_apart(candidate: Candidate, other: Candidate) -> str:
    """Return what the first needs more or less than the second."""
    told: list[str] = []
    if candidate.peak_bytes is not None and other.peak_bytes:
        apart = candidate.peak_bytes - other.peak_bytes
        share = say_percent(100.0 * apart / other.peak_bytes)
        told.append(f"fullest stage {say_signed(apart)} ({share})")
    if candidate.step_s is not None and other.step_s:
        apart_s = candidate.step_s - other.step_s
        sign = "+" if apart_s > 0 else "-" if apart_s < 0 else ""
        share = say_percent(100.0 * apart_s / other.step_s)
        told.append(f"step {sign}{show_duration(abs(apart_s))} ({share}), estimated")
    return ", ".join(told) or "nothing to compare"


def show_duration(duration_s: float) -> str:
    """Return a duration in the unit that suits it: `312.9 ms`, `1.24 s`."""
    return f"{1000 * duration_s:,.1f} ms" if duration_s < 1 else f"{duration_s:,.2f} s"


def _name_parts(looks: Sequence[tuple[StepPart, str, Role]]) -> Line:
    """Return the names and figures of parts, each after its character."""
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
