"""Several sweeps as small multiples: a panel each on one scale of memory, for a page of two columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analyzers.planning.sweep.index import IndexedSweep
from ...engine.errors import UsageError
from ...engine.units import GIB
from ..figures.page import SweepPage, hold_settings, open_sweep_page
from ..figures.page_style import LEAST_TEXT_PT, MEMORY_MAP, TEXT_IN, SweepLook
from ..figures.style import PAPER
from .figure import settle
from .figure_cells import (
    draw_staircase,
    draw_textures,
    draw_values,
    frame_best,
    frame_grid,
    mark_mispredictions,
)
from .figure_key import KeyEntry, draw_key, list_key
from .figure_layout import DrawnGrid, choose_cells
from .figure_usenix import add_bar, write_values, write_words
from .index_text import cut_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

MOST_PANELS = 48
_MOST_IN_A_ROW = 3
_LEAST_CELL_IN = 0.26
"""Width of a cell in which its value can be read; more panels stand in a row while cells keep it."""
_ROW_IN = 0.2
_LEAST_PANEL_IN = 0.7
_MOST_PANEL_IN = 2.0
_PANEL_FRAME_IN = 0.5
_PANEL_SIDE_IN = 0.35
_BAR_IN = 0.45
_KEY_ROW_IN = 0.16
_KEY_COLUMNS = 4
_LONGEST_NAME = 30
"""Letters of a sweep's name over a panel."""


def draw_multiples(sweeps: Sequence[IndexedSweep], look: SweepLook | None = None) -> SweepPage:
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


def _draw(sweeps: Sequence[IndexedSweep], grids: Sequence[DrawnGrid], look: SweepLook) -> SweepPage:
    across = _count_across(grids)
    down = -(-len(sweeps) // across)
    key = _join_keys(sweeps, grids)
    size_in = look.size_in or _choose_size(grids, down, -(-len(key) // _KEY_COLUMNS))
    cell_in = (size_in[0] - _BAR_IN) / across - _PANEL_SIDE_IN
    page = open_sweep_page("usenix", size_in, look.dpi)
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
    draw_key(page, key, _KEY_COLUMNS)
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
    """Return titles: model and GPUs; the name of a sweep that tells no model, or shares both with another."""
    labels = [_label(sweep) for sweep in sweeps]
    named = (
        label if labels.count(label) == 1 else cut_name(sweep.name, _LONGEST_NAME)
        for sweep, label in zip(sweeps, labels, strict=True)
    )
    simulated = (" (simulated)" if sweep.grid.is_simulated else "" for sweep in sweeps)
    return [f"{name}{told}" for name, told in zip(named, simulated, strict=True)]


def _label(sweep: IndexedSweep) -> str:
    world_size = sweep.grid.world_size
    return (sweep.model or sweep.name) + ("" if world_size is None else f", {world_size:,} GPUs")


def _count_across(grids: Sequence[DrawnGrid]) -> int:
    """Return how many panels stand side by side: three at most, fewer where cells would be too small."""
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
