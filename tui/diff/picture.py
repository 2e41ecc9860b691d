"""Both runs of one rank or device over each other."""

from ...analyzers.comparison import FIGURE_WORDS, Curves, Figure, SubjectDifference
from ...analyzers.comparison.model import say_position
from ..draw.glyphs import Glyphs
from ..draw.run_graph import ROLES, Runs, draw_runs
from ..draw.spans import Line, Span, fit_line
from ..widgets.line_page import LinePage

LEAST_ROWS = 4


class DifferencePicture(LinePage, can_focus=False):
    """Draws two runs into exactly the room that it has.

    Args:
        glyphs: Characters to draw with.
    """

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._shown: tuple[SubjectDifference, Curves] | None = None
        self._figure: Figure | None = None

    def show(self, subject: SubjectDifference, curves: Curves, figure: Figure | None) -> None:
        """Draw one rank or device.

        Args:
            subject: What is said of it.
            curves: Its two runs.
            figure: The figure to draw; None for the one that says most.
        """
        self._shown = (subject, curves)
        self._figure = figure
        self._draw()

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        if self._shown is None or width < 4 or height < 1:
            return []
        subject, curves = self._shown
        figure = subject.shown if self._figure is None else subject.of(self._figure)
        is_ascii = self._glyphs.name == "ascii"
        ellipsis = self._glyphs.ellipsis
        if figure is None:
            what = "nothing" if self._figure is None else FIGURE_WORDS[self._figure]
            lines: list[Line] = [[Span(f" {what} was not measured in both", "muted")]]
        else:
            lines = self._draw_figure(subject, curves, figure.figure, (width, height))
        return [fit_line(line, width, is_ascii=is_ascii, ellipsis=ellipsis) for line in lines[:height]]

    def _draw_figure(
        self, subject: SubjectDifference, curves: Curves, figure: Figure, size: tuple[int, int]
    ) -> list[Line]:
        told = subject.of(figure)
        parts_at = None if told is None else told.parts_at
        where = say_position(parts_at, subject.aligned_by)
        runs = Runs(
            curves.positions,
            curves.a[figure],
            curves.b[figure],
            parts_at,
            say_position(curves.positions[0], subject.aligned_by),
            say_position(curves.positions[-1], subject.aligned_by),
            "they part from the start" if told is not None and told.is_from_start else f"they part: {where}",
        )
        lines = [[Span(f" {subject.name}: {FIGURE_WORDS[figure]}  ", "text"), *self._draw_legend()]]
        if size[1] < LEAST_ROWS:
            return lines
        return [*lines, *draw_runs(runs, (size[0], size[1] - 1), self._glyphs)]

    def _draw_legend(self) -> Line:
        a, b, both = ("⠤⠤", "⠄⠄", "") if self._glyphs.is_braille else ("A", "B", "  * both")
        return [
            Span(f"{a} ", ROLES["A"]),
            Span("A  ", "muted"),
            Span(f"{b} ", ROLES["B"]),
            Span(f"B{both}", "muted"),
        ]
