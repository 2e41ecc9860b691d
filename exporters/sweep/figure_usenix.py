"""Heat map of a sweep for a page of two columns: memory, and below it the signed error of the theory."""

from typing import TYPE_CHECKING

from ...analyzers.planning.sweep import SweepCell, SweepGrid
from ...analyzers.planning.sweep.model import find_best
from ...engine.units import GIB
from ..figures.contrast import choose_ink
from ..figures.page import SweepPage, open_sweep_page
from ..figures.page_style import ERROR_MAP, LEAST_TEXT_PT, MEMORY_MAP, TEXTURES, SweepLook
from ..figures.style import INK, PAPER
from .figure_cells import (
    draw_staircase,
    draw_textures,
    draw_values,
    find_colour,
    frame_best,
    frame_grid,
    mark_mispredictions,
)
from .figure_key import draw_key, list_key
from .figure_layout import DrawnGrid, choose_cells, choose_size, count_lines, mark_kind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

_VALUE_PT = 7.5
_ALONE_PT = 8.0
_KEY_COLUMNS = {True: 2, False: 4}
"""In a column of the page, and in the width of the text."""
_ERROR_LIMITS_PERCENT = (20.0, 100.0)


def draw_usenix(grid: SweepGrid, look: SweepLook) -> SweepPage:
    """Return the figure; settings of the style have to be in place."""
    drawn = choose_cells(grid)
    best = find_best(grid)
    has_theory = any(cell.error_percent is not None for cell in drawn.cells.values())
    panels = 2 if has_theory else 1
    key = list_key(drawn, grid, best)
    width_in = choose_size(drawn, look, panels, 0)[0]
    key_columns = _KEY_COLUMNS[width_in < 5]
    key_rows = -(-len(key) // key_columns)
    size_in = choose_size(drawn, look, panels, key_rows)
    page = open_sweep_page("usenix", size_in, look.dpi)
    lines = count_lines(drawn, size_in, panels, key_rows)
    axes = page.subplots(panels, 1, squeeze=False)[:, 0]
    _draw_memory(axes[0], drawn, grid, lines=lines, is_lettered=has_theory)
    frame_best(axes[0], drawn, best)
    if has_theory:
        _draw_error(axes[1], drawn, is_annotated=lines > 0)
    draw_key(page, key, key_columns)
    return page


def _draw_memory(axes: "Axes", drawn: DrawnGrid, grid: SweepGrid, *, lines: int, is_lettered: bool) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    values = {cell: cell.actual_bytes / GIB for cell in drawn.in_state("ok") if cell.actual_bytes is not None}
    capacity_gib = grid.capacity_bytes / GIB
    mesh = draw_values(axes, drawn, values, colormaps[MEMORY_MAP], Normalize(0, capacity_gib, clip=True))
    without = [cell for cell in drawn.cells.values() if cell not in values]
    draw_textures(axes, drawn, without)
    frame_grid(axes, drawn, has_columns_named=not is_lettered)
    mark_mispredictions(axes, drawn, is_large=lines > 0)
    draw_staircase(axes, drawn)
    has_theory = lines > 1 and any(cell.theory_bytes is not None for cell in values)
    title = f"Peak memory, GiB{': measured, below it predicted' if has_theory else ''}"
    axes.set_title(f"(a) {title}" if is_lettered else title)
    add_bar(axes, mesh, [capacity_gib * step / 4 for step in range(5)], "neither")
    if lines:
        write_words(axes, drawn, without)
        for cell in values:
            write_values(axes, drawn, cell, mesh, has_theory=has_theory)


def write_values(
    axes: "Axes",
    drawn: DrawnGrid,
    cell: SweepCell,
    mesh: "QuadMesh",
    *,
    has_theory: bool,
    size_pt: float = _VALUE_PT,
) -> None:
    """Write what was measured, and below it, smaller, what was predicted."""
    row, column = drawn.at(cell)
    value = (cell.actual_bytes or 0) / GIB
    ink = choose_ink(find_colour(mesh, value))
    theory = cell.theory_bytes if has_theory else None
    at = row + (0.5 if theory is None else 0.36)
    axes.text(
        column + 0.5,
        at,
        f"{value:.1f}{mark_kind(cell)}",
        ha="center",
        va="center_baseline",
        color=ink,
        fontsize=size_pt,
    )
    if theory is not None:
        axes.text(
            column + 0.5,
            row + 0.76,
            f"{theory / GIB:.1f}",
            ha="center",
            va="center_baseline",
            color=ink,
            fontsize=LEAST_TEXT_PT,
        )


def write_words(axes: "Axes", drawn: DrawnGrid, cells: list[SweepCell]) -> None:
    """Write the word of each state on a light ground, so that its texture does not disturb."""
    for cell in cells:
        row, column = drawn.at(cell)
        axes.text(
            column + 0.5,
            row + 0.5,
            TEXTURES[cell.state].word,
            ha="center",
            va="center_baseline",
            color=INK,
            fontsize=LEAST_TEXT_PT + 0.5,
            bbox={"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": "none"}
            if TEXTURES[cell.state].hatch
            else None,
        )


def _draw_error(axes: "Axes", drawn: DrawnGrid, *, is_annotated: bool) -> None:
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    values = {cell: cell.error_percent for cell in drawn.in_state("ok") if cell.error_percent is not None}
    least, most = _ERROR_LIMITS_PERCENT
    limit = min(most, max(least, *map(abs, values.values())))
    mesh = draw_values(axes, drawn, values, colormaps[ERROR_MAP], Normalize(-limit, limit, clip=True))
    draw_textures(axes, drawn, [cell for cell in drawn.cells.values() if cell not in values])
    frame_grid(axes, drawn, has_columns_named=True)
    axes.set_title("(b) Error of the prediction, % of what was measured")
    is_cut = any(abs(value) > limit for value in values.values())
    add_bar(axes, mesh, [-limit, -limit / 2, 0.0, limit / 2, limit], "both" if is_cut else "neither")
    if not is_annotated:
        return
    for cell, value in values.items():
        row, column = drawn.at(cell)
        axes.text(
            column + 0.5,
            row + 0.5,
            f"{value:+.0f}".replace("-", "−"),
            ha="center",
            va="center_baseline",
            color=choose_ink(find_colour(mesh, value)),
            fontsize=_ALONE_PT,
        )


def add_bar(
    axes: "Axes | list[Axes]",
    mesh: "QuadMesh",
    ticks: list[float],
    extend: str,
    *,
    aspect: float = 14,
    label: str = "",
) -> None:
    """Draw the scale of the colours beside a panel, or beside several that share it."""
    first = axes[0] if isinstance(axes, list) else axes
    bar = first.figure.colorbar(mesh, ax=axes, pad=0.015, aspect=aspect, fraction=0.06, extend=extend)
    bar.set_ticks(ticks, labels=[f"{tick:.0f}".replace("-", "−") for tick in ticks])
    bar.ax.tick_params(labelsize=LEAST_TEXT_PT, length=1.5, width=0.4, pad=1.0)
    if label:
        bar.set_label(label)
    bar.outline.set_linewidth(0.4)
