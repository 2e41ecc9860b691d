"""A grid of a sweep as lines: names of columns, rows of cells, the staircase between them, the mark."""

from collections.abc import Mapping
from typing import NamedTuple

from ...analyzers.planning.sweep import Place, SweepCell, SweepGrid
from ...analyzers.planning.sweep.model import find_best
from ...exporters.sweep.figure_cells import DrawnGrid, choose_cells
from ..draw.glyphs import Glyphs
from ..draw.spans import Role
from .borders import Borders, draw_edge, draw_joint, trace_borders
from .looks import CellLook
from .tiles import TILE_CELLS, SweepMode, make_tile, mark_best

COLUMN_CELLS = TILE_CELLS + 2
"""A cell with the edge before it and the bracket behind it."""
Look = CellLook | Role


class Part(NamedTuple):
    """A run of text in one look."""

    text: str
    look: Look
    is_chosen: bool = False
    is_underlined: bool = False


class ShownGrid(NamedTuple):
    """A grid as it is drawn."""

    grid: SweepGrid
    drawn: DrawnGrid
    borders: Borders
    best: SweepCell | None
    label_cells: int
    """Of the names of rows."""

    @property
    def rows(self) -> tuple[int, ...]:
        """TP of each row."""
        return self.drawn.rows

    @property
    def columns(self) -> tuple[int, ...]:
        """PP of each column."""
        return self.drawn.columns


class Window(NamedTuple):
    """The part of a grid that is seen, and what is seen of it."""

    top: int
    left: int
    down: int
    """Rows."""
    across: int
    """Columns."""
    lines_a_row: int
    """Two where the staircase has a line of its own."""
    row: int
    """Of the mark."""
    column: int
    mode: SweepMode = "memory"
    first: Mapping[Place, SweepCell] | None = None
    """Of `difference`: the cells that it is taken from."""


def prepare_grid(grid: SweepGrid) -> ShownGrid:
    """Return what a grid is drawn from."""
    drawn = choose_cells(grid)
    label_cells = len("  TP  ") + len(str(max(drawn.rows, default=1)))
    return ShownGrid(grid, drawn, trace_borders(drawn), find_best(grid), label_cells)


def draw_lines(shown: ShownGrid, window: Window, glyphs: Glyphs) -> list[list[Part]]:
    """Return the lines of the part of a grid that is seen."""
    columns = range(window.left, min(window.left + window.across, len(shown.columns)))
    lines = [_draw_head(shown, window, columns)]
    for row in range(window.top, min(window.top + window.down, len(shown.rows))):
        if window.lines_a_row == 2:
            lines.append(_draw_rule(shown, row, columns, glyphs))
        label = f"  TP {shown.rows[row]}".ljust(shown.label_cells)
        parts = [Part(label, "strong" if row == window.row else "muted")]
        for column in columns:
            parts += _draw_cell(shown, window, row, column, glyphs)
        lines.append(parts)
    return lines


def _draw_head(shown: ShownGrid, window: Window, columns: range) -> list[Part]:
    parts = [Part(" " * shown.label_cells, "muted")]
    for column in columns:
        value = shown.columns[column]
        text = f"PP {value}" if column == columns.start else str(value)
        parts.append(Part(f"{text:>{COLUMN_CELLS - 1}} ", "strong" if column == window.column else "muted"))
    return parts


def _draw_rule(shown: ShownGrid, row: int, columns: range, glyphs: Glyphs) -> list[Part]:
    """Return the line above a row, which has the staircase."""
    text = " " * shown.label_cells
    for column in columns:
        edge = draw_edge(shown.borders.above.get((row, column)), glyphs, is_upright=False)
        text += draw_joint(shown.borders, row, column, glyphs) + edge * (COLUMN_CELLS - 1)
    return [Part(text, "strong")]


def _draw_cell(shown: ShownGrid, window: Window, row: int, column: int, glyphs: Glyphs) -> list[Part]:
    place = shown.rows[row], shown.columns[column]
    cell = shown.drawn.cells[place]
    first = None if window.first is None else window.first.get(place)
    tile = make_tile(cell, window.mode, shown.grid.capacity_bytes, glyphs, first)
    text = mark_best(tile.text) if cell is shown.best and window.mode != "difference" else tile.text
    is_chosen = (row, column) == (window.row, window.column)
    edge = draw_edge(shown.borders.before.get((row, column)), glyphs, is_upright=True)
    is_underlined = window.lines_a_row == 1 and (row + 1, column) in shown.borders.above
    body = f"{text:>{TILE_CELLS}}{']' if is_chosen else ' '}"
    return [Part("[" if is_chosen else edge, "strong"), Part(body, tile.look, is_chosen, is_underlined)]
