"""Draws what is in the cells of a sweep: colours of values, textures of states, marks and lines."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ...analyzers.planning.sweep import SweepCell
from ..figures.contrast import Colour
from ..figures.page_style import FRAME_INK, LINE, TEXTURES, Texture
from ..figures.style import PAPER
from .figure_layout import DrawnGrid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import Colormap, Normalize

_INSET = 0.07
_CORNER = (0.2, 0.36)
_MOST_TICKS = 24
BORDER_DASHES = (0.0, (2.5, 1.2))
"""Of the border of what fits, where it is not known that memory ended there."""


def draw_values(
    axes: "Axes", drawn: DrawnGrid, values: dict[SweepCell, float], colours: "Colormap", norm: "Normalize"
) -> "QuadMesh":
    """Fill the cells that have a value with its colour."""
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
    """Return the colour of a value."""
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
    """Put a dark corner, with a light edge, on what ran although the theory ruled it out.

    Args:
        axes: Of the panel.
        drawn: The cells.
        is_large: Whether the cells have room for an edge; else the corner takes half of the cell.
    """
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
    """Return the edges between a cell that ran and one that did not fit, as far as that is known or not.

    Args:
        drawn: The cells.
        is_known: Whether the other one ran out of memory; else it failed and no cause is told.
    """
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
