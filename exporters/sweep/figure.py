"""Heat maps of sweeps over TP and PP; matplotlib loads when one is drawn."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analyzers.planning.sweep import SweepCell, SweepGrid
from ...analyzers.planning.sweep.index import IndexedSweep
from ...analyzers.planning.sweep.model import find_best
from ...engine.errors import UsageError
from ...engine.units import GIB
from ..figures.page import LEAST_TEXT_PT, TEXT_IN, FigurePage, hold_settings, open_figure_page
from ..figures.style import INK, PAPER, choose_ink
from ..text import UNKNOWN
from .figure_cells import (
    TEXTURES,
    DrawnGrid,
    KeyEntry,
    choose_cells,
    choose_size,
    count_lines,
    draw_key,
    draw_staircase,
    draw_textures,
    draw_values,
    find_colour,
    frame_best,
    frame_grid,
    list_key,
    mark_kind,
    mark_mispredictions,
)
from .look import ERROR_MAP, MEMORY_MAP, ORIGINAL_ABSENT, ORIGINAL_COLOURS, ORIGINAL_FAILED, SweepLook
from .text import cut_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh


def draw_sweep(grid: SweepGrid, look: SweepLook | None = None) -> FigurePage:
    """Return the heat map of a sweep as a figure of matplotlib.

    Raises:
        UsageError: The size that was chosen is too small.
    """
    look = look or SweepLook()
    with hold_settings(look.style):
        page = draw_original(grid, look) if look.style == "original" else draw_usenix(grid, look)
        settle(page)
    return page


def settle(page: FigurePage) -> None:
    """Lay the page out once: every format has the same layout without computing it again.

    Raises:
        UsageError: The labels leave no room for the cells.
    """
    for axes in page.axes:
        for artist in axes.collections:
            artist.set_in_layout(False)  # the content of cells needs no room, but takes time to measure
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        page.draw_without_rendering()
    if any("constrained_layout not applied" in str(it.message) for it in warned):
        width_in, height_in = page.get_size_inches()
        raise UsageError(
            f"a figure of {width_in:g} x {height_in:g} in has no room for cells next to its labels; "
            "make it larger, or leave the size to the grid"
        )
    page.set_layout_engine("none")


# Heat map of a sweep in the manner of the original: eight reds, two lines a cell, dashes for failures.

_TEXT_SHARE = 9.0
"""Points of text in a cell of one inch."""
_MOST_TEXT_PT = 10.0


def draw_original(grid: SweepGrid, look: SweepLook) -> FigurePage:
    """Return the figure; settings of the style have to be in place."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    drawn = choose_cells(grid)
    size_in = choose_size(drawn, look, 1, 1)
    page = open_figure_page("original", size_in, look.dpi)
    axes = page.add_subplot()
    axes.set_facecolor(ORIGINAL_ABSENT)
    values = {cell: cell.actual_bytes / GIB for cell in drawn.in_state("ok") if cell.actual_bytes is not None}
    colours = LinearSegmentedColormap.from_list("original", ORIGINAL_COLOURS, N=256)
    mesh = draw_values(axes, drawn, values, colours, Normalize(0, grid.capacity_bytes / GIB, clip=True))
    _frame(axes, drawn)
    font_pt = min(_MOST_TEXT_PT, _TEXT_SHARE * size_in[0] / (1.3 * len(drawn.columns)))
    _draw_failures(axes, drawn, font_pt)
    for cell, value in values.items():
        _draw_cell(axes, drawn, cell, value, mesh, font_pt)
    bar = page.colorbar(mesh, ax=axes, pad=0.01, aspect=22, label="Peak memory (GiB)")
    bar.outline.set_linewidth(0)
    _draw_key(page, drawn, grid)
    return page


def _frame(axes: "Axes", drawn: DrawnGrid) -> None:
    rows = len(drawn.rows)
    columns = len(drawn.columns)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)
    axes.set_xticks([at + 0.5 for at in range(columns)], [str(pp) for pp in drawn.columns])
    axes.set_yticks([at + 0.5 for at in range(rows)], [str(tp) for tp in drawn.rows])
    axes.set_xlabel("PP SIZE")
    axes.set_ylabel("TP SIZE")
    axes.spines[:].set_visible(False)
    axes.hlines(range(1, rows), 0, columns, color=PAPER, linewidth=1.0)
    axes.vlines(range(1, columns), 0, rows, color=PAPER, linewidth=1.0)


def _draw_failures(axes: "Axes", drawn: DrawnGrid, font_pt: float) -> None:
    """Put a dash on grey where a layout failed."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    failed = [
        drawn.at(cell)
        for cell in drawn.in_state("oom", "failed", "invalid")
        if cell.has_failed or cell.state == "invalid"
    ]
    patches = [Rectangle((column, row), 1, 1) for row, column in failed]
    axes.add_collection(
        PatchCollection(patches, facecolor=ORIGINAL_FAILED, edgecolor=PAPER, linewidth=1.0, zorder=1.5)
    )
    for row, column in failed if font_pt >= LEAST_TEXT_PT else []:
        axes.text(
            column + 0.5,
            row + 0.5,
            UNKNOWN,
            ha="center",
            va="center_baseline",
            color=INK,
            fontsize=font_pt * 1.4,
        )


def _draw_cell(
    axes: "Axes", drawn: DrawnGrid, cell: SweepCell, value: float, mesh: "QuadMesh", font_pt: float
) -> None:
    """Write both values, over hatching where the theory had ruled the layout out."""
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    row, column = drawn.at(cell)
    colour = find_colour(mesh, value)
    if cell.is_mispredicted:
        axes.add_patch(
            Rectangle((column, row), 1, 1, fill=False, edgecolor=PAPER, linewidth=0.0, hatch="///", zorder=2)
        )
    if font_pt < LEAST_TEXT_PT:
        return
    lines = [f"Actual: {value:.1f}GB"]
    if cell.theory_bytes is not None:
        lines.append(f"Theory: {cell.theory_bytes / GIB:.1f}GB")
    axes.text(
        column + 0.5,
        row + 0.5,
        "\n".join(lines),
        ha="center",
        va="center",
        color=choose_ink(colour),
        fontsize=font_pt,
        linespacing=1.35,
        path_effects=[withStroke(linewidth=3.5, foreground=colour)],
        zorder=3,
    )


def _draw_key(page: FigurePage, drawn: DrawnGrid, grid: SweepGrid) -> None:
    from matplotlib.patches import Patch

    handles = []
    if drawn.in_state("oom", "failed"):
        handles.append(Patch(facecolor=ORIGINAL_FAILED, label=f"{UNKNOWN}  failed"))
    if any(cell.is_mispredicted for cell in drawn.cells.values()):
        handles.append(
            Patch(
                facecolor=ORIGINAL_COLOURS[4],
                edgecolor=PAPER,
                linewidth=0.0,
                hatch="///",
                label=f"theory ≥ {grid.capacity_bytes / GIB:g} GiB, yet it ran",
            )
        )
    if handles:
        page.legend(handles=handles, loc="outside lower right", ncols=2, handlelength=2.4, handleheight=1.2)


# Heat map of a sweep for a page of two columns: memory, and below it the signed error of the theory.

_VALUE_PT = 7.5
_ALONE_PT = 8.0
_KEY_COLUMNS = {True: 2, False: 4}
"""In a column of the page, and in the width of the text."""
_ERROR_LIMITS_PERCENT = (20.0, 100.0)


def draw_usenix(grid: SweepGrid, look: SweepLook) -> FigurePage:
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
    page = open_figure_page("usenix", size_in, look.dpi)
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
    """Draw the scale of the colours next to a panel, or to several that share it."""
    first = axes[0] if isinstance(axes, list) else axes
    bar = first.figure.colorbar(mesh, ax=axes, pad=0.015, aspect=aspect, fraction=0.06, extend=extend)
    bar.set_ticks(ticks, labels=[f"{tick:.0f}".replace("-", "−") for tick in ticks])
    bar.ax.tick_params(labelsize=LEAST_TEXT_PT, length=1.5, width=0.4, pad=1.0)
    if label:
        bar.set_label(label)
    bar.outline.set_linewidth(0.4)


# Several sweeps as small multiples: a panel each on one scale of memory, for a page of two columns.

MOST_PANELS = 48
_MOST_IN_A_ROW = 3
_LEAST_CELL_IN = 0.26
"""Width of a cell in which its value can be read; a row has more panels while cells keep it."""
_ROW_IN = 0.2
_LEAST_PANEL_IN = 0.7
_MOST_PANEL_IN = 2.0
_PANEL_FRAME_IN = 0.5
_PANEL_SIDE_IN = 0.35
_BAR_IN = 0.45
_KEY_ROW_IN = 0.16
_MULTIPLES_KEY_COLUMNS = 4
_LONGEST_NAME = 30
"""Letters of a sweep's name over a panel."""


def draw_multiples(sweeps: Sequence[IndexedSweep], look: SweepLook | None = None) -> FigurePage:
    """Return several sweeps as one figure of matplotlib.

    Args:
        sweeps: One panel each, of devices of one capacity.
        look: Size and resolution; the style is that of a page of two columns.

    Raises:
        UsageError: There is none, there are too many, or the size that was chosen is too small.
    """
    if not 0 < len(sweeps) <= MOST_PANELS:
        raise UsageError(
            f"{len(sweeps):,} sweeps: a figure has 1 to {MOST_PANELS} panels; choose some by --filter"
        )
    look = look or SweepLook()
    with hold_settings("usenix"):
        page = _draw(sweeps, [choose_cells(sweep.grid) for sweep in sweeps], look)
        settle(page)
    return page


def _draw(sweeps: Sequence[IndexedSweep], grids: Sequence[DrawnGrid], look: SweepLook) -> FigurePage:
    across = _count_across(grids)
    down = -(-len(sweeps) // across)
    key = _join_keys(sweeps, grids)
    size_in = look.size_in or _choose_size(grids, down, -(-len(key) // _MULTIPLES_KEY_COLUMNS))
    cell_in = (size_in[0] - _BAR_IN) / across - _PANEL_SIDE_IN
    page = open_figure_page("usenix", size_in, look.dpi)
    axes = page.subplots(down, across, squeeze=False).flatten()
    meshes = []
    for at, (sweep, drawn, title) in enumerate(zip(sweeps, grids, name_panels(sweeps), strict=True)):
        is_large = cell_in / len(drawn.columns) >= _LEAST_CELL_IN
        meshes.append(_draw_panel(axes[at], sweep, drawn, is_large=is_large))
        axes[at].set_title(title)
    for unused in axes[len(sweeps) :]:
        unused.set_visible(False)
    capacity_gib = sweeps[0].grid.capacity_bytes / GIB
    ticks = [capacity_gib * step / 4 for step in range(5)]
    add_bar(list(axes), meshes[0], ticks, "neither", aspect=30, label="Peak memory, GiB")
    draw_key(page, key, _MULTIPLES_KEY_COLUMNS)
    return page


def _draw_panel(axes: "Axes", sweep: IndexedSweep, drawn: DrawnGrid, *, is_large: bool) -> "QuadMesh":
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    values = {cell: cell.actual_bytes / GIB for cell in drawn.in_state("ok") if cell.actual_bytes is not None}
    capacity_gib = sweep.grid.capacity_bytes / GIB
    mesh = draw_values(axes, drawn, values, colormaps[MEMORY_MAP], Normalize(0, capacity_gib, clip=True))
    without = [cell for cell in drawn.cells.values() if cell not in values]
    draw_textures(axes, drawn, without)
    frame_grid(axes, drawn, has_columns_named=True)
    mark_mispredictions(axes, drawn, is_large=is_large)
    draw_staircase(axes, drawn)
    axes.set_facecolor(PAPER)
    if is_large:
        write_words(axes, drawn, without)
        for cell in values:
            write_values(axes, drawn, cell, mesh, has_theory=False, size_pt=LEAST_TEXT_PT + 0.5)
    frame_best(axes, drawn, sweep.best)
    return mesh


def name_panels(sweeps: Sequence[IndexedSweep]) -> list[str]:
    """Return titles: model and GPUs; the name of a sweep without a model, or that shares both with
    another."""
    labels = [_label(sweep) for sweep in sweeps]
    named = (
        label if labels.count(label) == 1 else cut_name(sweep.name, _LONGEST_NAME)
        for sweep, label in zip(sweeps, labels, strict=True)
    )
    simulated = (" (simulated)" if sweep.grid.is_simulated else "" for sweep in sweeps)
    return [f"{name}{mark}" for name, mark in zip(named, simulated, strict=True)]


def _label(sweep: IndexedSweep) -> str:
    world_size = sweep.grid.world_size
    return (sweep.model or sweep.name) + ("" if world_size is None else f", {world_size:,} GPUs")


def _count_across(grids: Sequence[DrawnGrid]) -> int:
    """Return how many panels are side by side: three at most, fewer where cells would be too small."""
    columns = max(len(drawn.columns) for drawn in grids)
    width_in = TEXT_IN - _BAR_IN
    for across in range(min(_MOST_IN_A_ROW, len(grids)), 1, -1):
        if (width_in / across - _PANEL_SIDE_IN) / columns >= _LEAST_CELL_IN:
            return across
    return 1 if len(grids) == 1 else 2


def _choose_size(grids: Sequence[DrawnGrid], down: int, key_rows: int) -> tuple[float, float]:
    rows = max(len(drawn.rows) for drawn in grids)
    panel_in = min(_MOST_PANEL_IN, max(_LEAST_PANEL_IN, _ROW_IN * rows))
    return TEXT_IN, round(down * (panel_in + _PANEL_FRAME_IN) + key_rows * _KEY_ROW_IN + 0.06, 3)


def _join_keys(sweeps: Sequence[IndexedSweep], grids: Sequence[DrawnGrid]) -> list[KeyEntry]:
    """Return what the panels together need, each entry once; of two meanings of one sign the first."""
    entries: dict[str, str] = {}
    for sweep, drawn in zip(sweeps, grids, strict=True):
        for shown, meaning in list_key(drawn, sweep.grid, sweep.best):
            entries.setdefault(shown, meaning)
    return list(entries.items())
