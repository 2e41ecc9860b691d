"""Draws the cells of a sweep: colours of values, textures of states, marks and lines."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ...analyzers.planning.sweep import STATE_WORDS, STATES, CellState, Place, SweepCell, SweepGrid
from ...engine.units import GIB
from ..figures.page import COLUMN_IN, TEXT_IN
from ..figures.style import INK, PAPER, Colour
from .look import FRAME_INK, LINE, ORIGINAL_RATIO, SweepLook

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.path import Path


# Every state has a texture and a word of its own, so that it can be read in black and white too.


class Texture(NamedTuple):
    """How a cell without a value looks."""

    face: str
    hatch: str
    ink: str
    word: str
    """In the cell."""
    meaning: str
    """In the key."""


TEXTURES: dict[CellState, Texture] = {
    "oom": Texture("#e8e8e8", "xxxxx", "#5c5c5c", *STATE_WORDS["oom"][:2]),
    "failed": Texture(
        PAPER, "/////", "#767676", STATE_WORDS["failed"].cell, "failed otherwise, or cause unknown"
    ),
    "invalid": Texture("#d0d0d0", "", INK, STATE_WORDS["invalid"].cell, "not divisible"),
    "running": Texture(PAPER, "-----", "#767676", *STATE_WORDS["running"][:2]),
    "not_run": Texture(PAPER, "", INK, *STATE_WORDS["not_run"][:2]),
    "ok": Texture(PAPER, ".....", "#767676", "?", "ran, memory unknown"),
}
"""By state; `ok` is for what ran without a figure."""


# Places of the cells of a sweep on the page, and the size of the page.

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
        return self.rows.index(cell.tp), self.columns.index(cell.pp)

    def in_state(self, *states: CellState) -> list[SweepCell]:
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
    """Return the letter after a value that marks a real run or its simulation."""
    return "" if cell.kind_word is None else f" {cell.kind_word[0].upper()}"


def _weigh(cell: SweepCell) -> tuple[bool, int]:
    return cell.has_run, cell.actual_bytes or 0


def choose_size(drawn: DrawnGrid, look: SweepLook, panels: int, key_rows: int) -> tuple[float, float]:
    """Return width and height of the page in inches."""
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
    """Return how many lines of text the cells have room for: none, one or two."""
    width_in = (size_in[0] - _SIDES_IN) / len(drawn.columns)
    left_in = size_in[1] - key_rows * _KEY_ROW_IN - panels * _TITLE_IN - _AXIS_IN
    height_in = left_in / panels / len(drawn.rows)
    return 0 if width_in < _LEAST_CELL_IN else sum(height_in >= least_in for least_in in _LEAST_LINES_IN)


_INSET = 0.07
_CORNER = (0.2, 0.36)
_MOST_TICKS = 24
BORDER_DASHES = (0.0, (2.5, 1.2))
"""Dashes of the border of what fits, where it is unknown whether memory ended there."""


def draw_values(
    axes: "Axes", drawn: DrawnGrid, values: dict[SweepCell, float], colours: "Colormap", norm: "Normalize"
) -> "QuadMesh":
    import numpy as np

    table = np.full((len(drawn.rows), len(drawn.columns)), np.nan)
    for cell, value in values.items():
        table[drawn.at(cell)] = value
    return axes.pcolormesh(
        np.arange(len(drawn.columns) + 1),
        np.arange(len(drawn.rows) + 1),
        np.ma.masked_invalid(table),
        cmap=colours,
        norm=norm,
    )


def draw_textures(axes: "Axes", drawn: DrawnGrid, without: Iterable[SweepCell]) -> None:
    """Fill cells without a value with the texture of their state."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    groups: dict[Texture, list[tuple[int, int]]] = {}
    for cell in without:
        groups.setdefault(TEXTURES[cell.state], []).append(drawn.at(cell))
    for texture, places in groups.items():
        axes.add_collection(
            PatchCollection(
                [Rectangle((column, row), width, height) for row, column, height, width in merge(places)],
                facecolor=texture.face,
                edgecolor=texture.ink,
                linewidth=0.0,
                hatch=texture.hatch or None,
            )
        )


def merge(places: Iterable[tuple[int, int]]) -> list[tuple[int, int, int, int]]:
    """Return rectangles that cover cells, each cell once: a hatch costs as much for a cell as for thousands.

    Args:
        places: Row and column of each cell.

    Returns:
        Row, column, height and width of each rectangle.
    """
    runs: dict[tuple[int, int], list[int]] = {}
    left = set(places)
    for row, column in sorted(left):
        if (row, column - 1) not in left:
            width = 1
            while (row, column + width) in left:
                width += 1
            runs.setdefault((column, width), []).append(row)
    found = []
    for (column, width), rows in runs.items():
        start = rows[0]
        for row, following in pairwise((*rows, -1)):
            if following != row + 1:
                found.append((start, column, row + 1 - start, width))
                start = following
    return found


def find_colour(mesh: "QuadMesh", value: float) -> Colour:
    import numpy as np

    red, green, blue, _ = mesh.cmap(mesh.norm(np.asarray(value)))
    return float(red), float(green), float(blue)


def frame_grid(axes: "Axes", drawn: DrawnGrid, *, has_columns_named: bool) -> None:
    """Set limits, lines between the cells and names of rows and columns."""
    rows = len(drawn.rows)
    columns = len(drawn.columns)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    if rows * columns <= 400:
        axes.hlines(range(1, rows), 0, columns, color=LINE, linewidth=0.4)
        axes.vlines(range(1, columns), 0, rows, color=LINE, linewidth=0.4)
    row_step = -(-rows // _MOST_TICKS)
    column_step = -(-columns // _MOST_TICKS)
    axes.set_yticks(*_name_ticks(drawn.rows, row_step))
    axes.set_xticks(*(_name_ticks(drawn.columns, column_step) if has_columns_named else ([], [])))
    axes.set_ylabel("TP size")
    if has_columns_named:
        axes.set_xlabel("PP size")


def _name_ticks(values: Sequence[int], step: int) -> tuple[list[float], list[str]]:
    shown = range(0, len(values), step)
    return [at + 0.5 for at in shown], [str(values[at]) for at in shown]


def mark_mispredictions(axes: "Axes", drawn: DrawnGrid, *, is_large: bool) -> None:
    """Put a dark corner, light-edged if there is room, on what ran although the theory ruled it out."""
    width, height = _CORNER if is_large else (1.0, 1.0)
    from matplotlib.collections import PolyCollection

    corners = []
    for cell in drawn.cells.values():
        if cell.is_mispredicted:
            row, column = drawn.at(cell)
            corners.append([(column + 1 - width, row), (column + 1, row), (column + 1, row + height)])
    if corners:
        axes.add_collection(
            PolyCollection(
                corners, facecolor=FRAME_INK, edgecolor=PAPER, linewidth=0.7 if is_large else 0.0, zorder=4
            )
        )


def frame_best(axes: "Axes", drawn: DrawnGrid, best: SweepCell | None) -> None:
    """Draw a heavy frame with a light edge inside the best cell."""
    from matplotlib.patches import Rectangle

    if best is None or drawn.cells[best.place] != best:
        return
    row, column = drawn.at(best)
    side = 1 - 2 * _INSET
    for colour, width_pt in ((PAPER, 2.8), (FRAME_INK, 1.4)):
        axes.add_patch(
            Rectangle(
                (column + _INSET, row + _INSET),
                side,
                side,
                fill=False,
                edgecolor=colour,
                linewidth=width_pt,
                zorder=5,
            )
        )


def draw_staircase(axes: "Axes", drawn: DrawnGrid) -> None:
    """Draw the border between what ran and what did not: dashed where it is unknown whether memory ended."""
    from matplotlib.collections import LineCollection

    for is_known in (True, False):
        lines = find_borders(drawn, is_known=is_known)
        for colour, width_pt in ((PAPER, 2.8), (FRAME_INK, 1.5)):
            style = "solid" if is_known or colour == PAPER else BORDER_DASHES
            axes.add_collection(
                LineCollection(
                    lines, colors=colour, linewidths=width_pt, linestyles=[style], zorder=3, capstyle="butt"
                )
            )


def find_borders(drawn: DrawnGrid, *, is_known: bool) -> list[list[tuple[int, int]]]:
    """Return the edges between a cell that ran and one that did not fit (`is_known`), or may not have."""
    lines = []
    row_of = {tp: row for row, tp in enumerate(drawn.rows)}
    column_of = {pp: column for column, pp in enumerate(drawn.columns)}
    for cell in drawn.in_state("ok"):
        row = row_of[cell.tp]
        column = column_of[cell.pp]
        for near_row, near_column, line in (
            (row - 1, column, [(column, row), (column + 1, row)]),
            (row + 1, column, [(column, row + 1), (column + 1, row + 1)]),
            (row, column - 1, [(column, row), (column, row + 1)]),
            (row, column + 1, [(column + 1, row), (column + 1, row + 1)]),
        ):
            if 0 <= near_row < len(drawn.rows) and 0 <= near_column < len(drawn.columns):
                near = drawn.cells[drawn.rows[near_row], drawn.columns[near_column]]
                is_blind = near.state == "failed" and near.cause is None
                if near.state == "oom" if is_known else is_blind:
                    lines.append(line)
    return lines


# The key of a heat map of a sweep: only entries that the figure uses.

KeyEntry = tuple[str, str]
"""What is shown and what it means."""


def list_key(drawn: DrawnGrid, grid: SweepGrid, best: SweepCell | None) -> list[KeyEntry]:
    entries: list[KeyEntry] = []
    if best is not None:
        entries.append(("best", "best: least memory"))
    if any(cell.is_mispredicted for cell in drawn.cells.values()):
        capacity = f"{grid.capacity_bytes / GIB:g}"
        entries.append(("mispredicted", f"ran, predicted ≥ {capacity} GiB"))
    if find_borders(drawn, is_known=True):
        entries.append(("known", "border to OOM"))
    if find_borders(drawn, is_known=False):
        entries.append(("blind", "border to unknown failures"))
    if any(cell.kind_word is not None for cell in drawn.cells.values()):
        entries.append(("kind", "R real, S simulated: the one that used more"))
    for state in STATES:
        cells = drawn.in_state(state)
        if any(cell.actual_bytes is None for cell in cells):
            texture = TEXTURES[state]
            is_blind = state == "failed" and all(cell.cause is None for cell in cells)
            meaning = "failed, cause unknown" if is_blind else texture.meaning
            entries.append((state, f"{texture.word}  {meaning}"))
    return entries


def draw_key(page: "Figure", entries: Sequence[KeyEntry], columns: int) -> None:
    if not entries:
        return
    handles = [_make_handle(shown, meaning) for shown, meaning in entries]
    page.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        handlelength=1.7,
        handleheight=1.0,
        handletextpad=0.5,
        columnspacing=1.0,
        labelspacing=0.35,
        borderpad=0.1,
        borderaxespad=0.2,
    )


def _make_handle(shown: str, meaning: str) -> "Artist":
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if shown == "best":
        return Patch(facecolor=PAPER, edgecolor=FRAME_INK, linewidth=1.4, label=meaning)
    if shown == "mispredicted":
        return Line2D(
            [], [], linestyle="", marker=_draw_corner(), markersize=6, color=FRAME_INK, label=meaning
        )
    if shown == "kind":
        return Line2D([], [], linestyle="", label=meaning)
    if shown in {"known", "blind"}:
        line = Line2D([], [], color=FRAME_INK, linewidth=1.5, label=meaning)
        if shown == "blind":
            line.set_linestyle(BORDER_DASHES)
        return line
    texture = next(TEXTURES[state] for state in STATES if state == shown)
    return Patch(
        facecolor=texture.face,
        edgecolor=texture.ink if texture.hatch else LINE,
        linewidth=0.4,
        hatch=texture.hatch or None,
        label=meaning,
    )


def _draw_corner() -> "Path":
    from matplotlib.path import Path

    return Path([(-0.6, 0.5), (0.5, 0.5), (0.5, -0.6), (-0.6, 0.5)])
