"""Ranks and devices of two runs: where each parts, and by how much; a list with a cursor."""

from collections.abc import Sequence

from textual import events
from textual.message import Message

from ...analyzers.comparison import FIGURE_WORDS, Figure, FigureDifference, SubjectDifference
from ...analyzers.comparison.model import say_percent, say_position, say_signed
from ...engine.units import format_bytes
from ..draw.glyphs import Glyphs
from ..draw.spans import Line, Role, Span, fit_line, fit_text, right_text
from ..frame import keys
from ..widgets.line_page import LinePage

NARROW_CELLS = 60
WIDE_CELLS = 110
"""Widths below which both values are left out, and from which the end and the noise are told."""
_WHO_CELLS = 10
_AT_CELLS = 11
_FIGURE_CELLS = 15
_SIZE_CELLS = 9
_PERCENT_CELLS = 7
_NARROW_WHO_CELLS = 8
_NARROW_AT_CELLS = 10


def draw_heading(width: int) -> str:
    """Return the titles of the columns at a width."""
    titles = ["who", "parts at", "figure", "A", "B", "B less A", "%", "at end", "noise"]
    return "  " + _lay_out(titles, width, "…")


class DifferenceList(LinePage):
    """Lists what is compared.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.DIFFERENCE_LIST]

    class Chosen(Message):
        """Another one is under the cursor."""

        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._subjects: tuple[SubjectDifference, ...] | None = None
        self._figure: Figure | None = None
        self.chosen = 0
        """Place of the cursor."""

    def show(self, subjects: Sequence[SubjectDifference], figure: Figure | None) -> None:
        """List subjects.

        Args:
            subjects: In the order in which they are listed.
            figure: The figure to tell; None for the one that says most of each.
        """
        self._subjects = tuple(subjects)
        self._figure = figure
        self._draw()

    def on_focus(self) -> None:
        """Draw the cursor."""
        self._draw()

    def on_blur(self) -> None:
        """Draw the cursor no more."""
        self._draw()

    def action_move(self, places: int) -> None:
        """Move the cursor by rows."""
        if not self._subjects:
            return
        place = max(0, min(self.chosen + places, len(self._subjects) - 1))
        if place != self.chosen:
            self.chosen = place
            self.post_message(self.Chosen(place))
        self._draw()
        top = self.scroll_offset.y
        height = max(1, self.size.height)
        if not top <= place < top + height:
            self.scroll_to(y=place if place < top else place - height + 1, animate=False)

    def action_page(self, pages: int) -> None:
        """Move the cursor by pages."""
        self.action_move(pages * max(1, self.size.height - 1))

    def on_click(self, event: events.Click) -> None:
        """Choose the row."""
        self.action_move(event.y + self.scroll_offset.y - self.chosen)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        is_ascii = self._glyphs.name == "ascii"
        ellipsis = self._glyphs.ellipsis
        if self._subjects is None:
            return []
        if not self._subjects:
            return [fit_line([Span(" nothing is in both runs", "muted")], width, is_ascii=is_ascii)]
        return [
            fit_line(self._draw_row(place, subject, width), width, is_ascii=is_ascii, ellipsis=ellipsis)
            for place, subject in enumerate(self._subjects)
        ]

    def _draw_row(self, place: int, subject: SubjectDifference, width: int) -> Line:
        figure = subject.shown if self._figure is None else subject.of(self._figure)
        is_chosen = place == self.chosen and self.has_focus
        has_parted = figure is not None and figure.parts_at is not None
        role: Role = "strong" if is_chosen else "text" if has_parted else "muted"
        cells = _tell(subject, figure, self._glyphs.unmeasured)
        return [
            Span(f"{self._glyphs.selected if is_chosen else ' '} ", "accent"),
            Span(_lay_out(cells, width, self._glyphs.ellipsis), role),
        ]


def _tell(subject: SubjectDifference, figure: FigureDifference | None, unmeasured: str) -> list[str]:
    if figure is None:
        return [subject.name, unmeasured, "not measured", *[unmeasured] * 6]
    percent = figure.difference_percent
    at = "the start" if figure.is_from_start else say_position(figure.parts_at, subject.aligned_by)
    return [
        subject.name,
        at if figure.parts_at is not None else unmeasured,
        FIGURE_WORDS[figure.figure],
        format_bytes(figure.a_bytes),
        format_bytes(figure.b_bytes),
        say_signed(figure.difference_bytes),
        unmeasured if percent is None else say_percent(percent),
        say_signed(figure.final_difference_bytes),
        format_bytes(figure.noise_bytes),
    ]


def _lay_out(cells: Sequence[str], width: int, ellipsis: str) -> str:
    """Return one row: who and where at the left, figures at the right of their columns."""
    who, at, figure, a, b, apart, percent, end, noise = cells
    sizes = [apart] if width < NARROW_CELLS else [a, b, apart]
    more = [end, noise] if width >= WIDE_CELLS else []
    wide_cells = 2 * _WHO_CELLS if more else _WHO_CELLS
    texts = [fit_text(who, _NARROW_WHO_CELLS if width < NARROW_CELLS else wide_cells, ellipsis)]
    texts.append(fit_text(at, _NARROW_AT_CELLS if width < NARROW_CELLS else _AT_CELLS, ellipsis))
    texts += [fit_text(figure, _FIGURE_CELLS, ellipsis)] if width >= NARROW_CELLS else []
    texts += [right_text(size, _SIZE_CELLS, ellipsis) for size in sizes]
    texts.append(right_text(percent, _PERCENT_CELLS, ellipsis))
    texts += [right_text(size, _SIZE_CELLS, ellipsis) for size in more]
    return " ".join(texts)
