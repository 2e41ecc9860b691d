"""Where the cells of a sweep stand on the page, and how large the page is."""

from typing import NamedTuple

from ...analyzers.planning.sweep import CellState, Place, SweepCell, SweepGrid
from ..figures.page_style import COLUMN_IN, ORIGINAL_RATIO, TEXT_IN, SweepLook

MOST_COLUMNS_IN_A_COLUMN = 8
"""More columns than these take the whole width of the text."""
_ROW_IN = 0.29
_LEAST_PANEL_IN = 0.7
_MOST_PANEL_IN = 2.4
_PANEL_FRAME_IN = 0.42
_KEY_ROW_IN = 0.16
_TITLE_IN = 0.22
_AXIS_IN = 0.25
_SIDES_IN = 0.75
_LEAST_CELL_IN = 0.3
_LEAST_LINES_IN = (0.13, 0.25)
"""Height of a cell from which on it has room for one line, and for two."""


class DrawnGrid(NamedTuple):
    """One cell for each pair of TP and PP."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    cells: dict[Place, SweepCell]
    hidden: int
    """How many layouts share a pair with the one that is drawn."""

    def at(self, cell: SweepCell) -> tuple[int, int]:
        """Return row and column of a cell."""
        return self.rows.index(cell.tp), self.columns.index(cell.pp)

    def in_state(self, *states: CellState) -> list[SweepCell]:
        """Return the drawn cells in some states."""
        return [cell for cell in self.cells.values() if cell.state in states]


def choose_cells(grid: SweepGrid) -> DrawnGrid:
    """Return the cells that are drawn: of several DP the one that ran and held most, else the first."""
    cells: dict[Place, SweepCell] = {}
    for cell in grid.cells:
        known = cells.get(cell.place)
        if known is None or _weigh(cell) > _weigh(known):
            cells[cell.place] = cell
    return DrawnGrid(grid.tps, grid.pps, cells, len(grid.cells) - len(cells))


def mark_kind(cell: SweepCell) -> str:
    """Return the letter behind a value that tells a real run from its simulation."""
    return "" if cell.kind_word is None else f" {cell.kind_word[0].upper()}"


def _weigh(cell: SweepCell) -> tuple[bool, int]:
    return cell.has_run, cell.actual_bytes or 0


def choose_size(drawn: DrawnGrid, look: SweepLook, panels: int, key_rows: int) -> tuple[float, float]:
    """Return width and height of the page in inches.

    Args:
        drawn: The cells.
        look: What the person chose; a size in it is taken as it is.
        panels: One above the other.
        key_rows: Lines of the key.
    """
    if look.size_in is not None:
        return look.size_in
    columns = len(drawn.columns)
    if look.style == "original":
        width_in = max(8.0, 1.2 * columns)
        return width_in, width_in / ORIGINAL_RATIO
    width_in = COLUMN_IN if columns <= MOST_COLUMNS_IN_A_COLUMN else TEXT_IN
    panel_in = min(_MOST_PANEL_IN, max(_LEAST_PANEL_IN, _ROW_IN * len(drawn.rows)))
    return width_in, round(panels * (panel_in + _PANEL_FRAME_IN) + key_rows * _KEY_ROW_IN + 0.06, 3)


def count_lines(drawn: DrawnGrid, size_in: tuple[float, float], panels: int, key_rows: int) -> int:
    """Return how many lines of text the cells have room for: none, one or two.

    Args:
        drawn: The cells.
        size_in: Of the page.
        panels: One above the other.
        key_rows: Lines of the key.
    """
    width_in = (size_in[0] - _SIDES_IN) / len(drawn.columns)
    left_in = size_in[1] - key_rows * _KEY_ROW_IN - panels * _TITLE_IN - _AXIS_IN
    height_in = left_in / panels / len(drawn.rows)
    return 0 if width_in < _LEAST_CELL_IN else sum(height_in >= least_in for least_in in _LEAST_LINES_IN)
