"""The grid of a sweep: TP in rows, PP in columns, one cell marked; of a large one the part around it."""

from collections.abc import Mapping
from typing import cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from ...analyzers.planning.sweep import Place, SweepCell, SweepGrid
from ..draw.glyphs import Glyphs
from ..frame import keys
from ..frame.theme import role_rules
from ..widgets.marking import MarkingWidget
from .lines import COLUMN_CELLS, Look, Part, ShownGrid, Window, draw_lines, prepare_grid
from .looks import cell_rules, look_classes
from .tiles import SweepMode

_PREFIX = "sweep-grid"


class SweepGridView(MarkingWidget, can_focus=True):
    """Draws a grid and moves a mark in it.

    Args:
        glyphs: Characters to draw with.
    """

    BINDINGS = [*keys.SWEEP_GRID]
    COMPONENT_CLASSES = look_classes(_PREFIX)
    DEFAULT_CSS = (
        f"SweepGridView {{ height: 1fr; width: 1fr; \n{role_rules(_PREFIX)}\n{cell_rules(_PREFIX)}\n}}"
    )

    class Moved(Message):
        """Another cell is marked."""

        def __init__(self, view: "SweepGridView") -> None:
            super().__init__()
            self.view = view

    class Opened(Moved):
        """The marked cell is to be replayed."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._shown: ShownGrid | None = None
        self._mode: SweepMode = "memory"
        self._first: Mapping[Place, SweepCell] | None = None
        self._row = self._column = self._top = self._left = 0
        self._is_marked = True
        self._lines: list[list[Part]] = []
        self._strips: list[Strip] = []
        self._looks: dict[Look, Style] = {}

    @property
    def marked(self) -> SweepCell | None:
        """The cell under the mark; None where the mark is at a place that this grid has not."""
        shown = self._shown if self._is_marked else None
        return None if shown is None else self.cells[shown.rows[self._row], shown.columns[self._column]]

    @property
    def cells(self) -> Mapping[Place, SweepCell]:
        """What is drawn, by TP and PP."""
        return {} if self._shown is None else self._shown.drawn.cells

    def show(self, grid: SweepGrid, place: Place | None = None) -> None:
        """Draw a grid; the mark goes to a place, to the best layout where there is none such."""
        shown = self._shown = prepare_grid(grid)
        self._top = self._left = self._row = self._column = 0
        if place is not None and place in shown.drawn.cells:
            self.mark(place)
        elif shown.best is not None:
            self.mark(shown.best.place)
        self._draw()

    def set_mode(self, mode: SweepMode, first: Mapping[Place, SweepCell] | None = None) -> None:
        """Show something else of each cell.

        Args:
            mode: What is shown.
            first: Of `difference`: the cells that it is taken from.
        """
        self._mode = mode
        self._first = first
        self._draw()

    def mark(self, place: Place) -> None:
        """Put the mark on a place; where the grid has it not, there is no mark."""
        self._is_marked = place in self.cells
        if self._shown is not None and self._is_marked:
            self._row, self._column = self._shown.rows.index(place[0]), self._shown.columns.index(place[1])
        self._draw()

    def tell_part(self) -> str:
        """Return which rows and columns are seen, nothing where all are."""
        shown = self._shown
        window = self._fit()
        if shown is None or window is None:
            return ""
        told = []
        for name, values, start, size in (
            ("TP", shown.rows, window.top, window.down),
            ("PP", shown.columns, window.left, window.across),
        ):
            if size < len(values):
                last = values[min(start + size, len(values)) - 1]
                told.append(f"{name} {values[start]}–{last} of {values[-1]}")
        return ", ".join(told)

    def measure_rows(self, *, is_spaced: bool) -> int:
        """Return the rows that the whole grid takes, with lines for the staircase or without."""
        rows = 0 if self._shown is None else len(self._shown.rows)
        return 1 + (2 * rows if is_spaced else rows)

    def on_resize(self) -> None:
        """Draw for the new room."""
        self._draw()

    def notify_style_update(self) -> None:
        """Take up the looks of another theme."""
        super().notify_style_update()
        self._looks = {}
        self._lines = []
        if self.is_mounted:
            self.call_next(self._draw)

    def action_move(self, columns: int, rows: int) -> None:
        """Move the mark."""
        if self._shown is None:
            return
        before = (self._row, self._column) if self._is_marked else None
        self._is_marked = True
        self._row = max(0, min(self._row + rows, len(self._shown.rows) - 1))
        self._column = max(0, min(self._column + columns, len(self._shown.columns) - 1))
        if before != (self._row, self._column):
            self._draw()
            self.post_message(self.Moved(self))

    def action_page(self, pages: int) -> None:
        """Move the mark by as many rows as are seen."""
        window = self._fit()
        if window is not None:
            self.action_move(0, pages * max(1, window.down - 1))

    def action_end(self, end: int) -> None:
        """Mark the first cell of the row, or the last one."""
        self.action_move(keys.FAR if end else -keys.FAR, 0)

    def action_go_best(self) -> None:
        """Mark the best layout."""
        if self._shown is not None and self._shown.best is not None:
            self.mark(self._shown.best.place)
            self.post_message(self.Moved(self))

    def action_open(self) -> None:
        """Ask for the replay of the marked cell."""
        if self._shown is not None:
            self.post_message(self.Opened(self))

    def on_click(self, event: events.Click) -> None:
        """Mark what is clicked on; a second click replays it."""
        shown = self._shown
        window = self._fit()
        if shown is None or window is None or event.y < 1 or event.x < shown.label_cells:
            return
        row = window.top + (event.y - 1) // window.lines_a_row
        column = window.left + (event.x - shown.label_cells) // COLUMN_CELLS
        self.action_move(column - self._column, row - self._row)
        if event.chain > 1:
            self.action_open()

    def _fit(self) -> Window | None:
        """Return the part of the grid that is seen, with the mark in it."""
        shown, (width, height) = self._shown, self.size
        if shown is None or height < 1:
            return None
        step = 2 if self.measure_rows(is_spaced=True) <= height else 1
        down = max(1, min(len(shown.rows), (height - 1) // step))
        across = max(1, min(len(shown.columns), (width - shown.label_cells) // COLUMN_CELLS))
        self._top = max(0, min(max(self._top, self._row - down + 1), self._row, len(shown.rows) - down))
        self._left = max(
            0, min(max(self._left, self._column - across + 1), self._column, len(shown.columns) - across)
        )
        place = (self._row, self._column) if self._is_marked else (-1, -1)
        return Window(self._top, self._left, down, across, step, *place, self._mode, self._first)

    def _draw(self) -> None:
        """Draw everything, and ask for a repaint where a line changed."""
        shown = self._shown
        window = self._fit()
        if shown is None or window is None or not self.is_mounted:
            return
        lines = draw_lines(shown, window, self._glyphs)
        if not self._looks:
            self._looks = {
                cast("Look", name.removeprefix(f"{_PREFIX}--")): self.get_component_rich_style(name)
                for name in self.COMPONENT_CLASSES
            }
        if lines != self._lines:
            self._lines = lines
            self._strips = [self._to_strip(line) for line in lines]
            self.repaint()

    def _to_strip(self, line: list[Part]) -> Strip:
        segments = []
        for text, look, is_chosen, is_underlined in line:
            style = self._looks[look]
            if is_chosen:
                style += Style(bold=True, reverse=not style.reverse)
            if is_underlined:
                style += Style(underline=True)
            segments.append(Segment(text, style))
        return Strip(segments)

    def render_line(self, y: int) -> Strip:
        """Return one row of the widget."""
        if 0 <= y < len(self._strips):
            return self._strips[y].adjust_cell_length(self.size.width, self.rich_style)
        return Strip.blank(self.size.width, self.rich_style)
