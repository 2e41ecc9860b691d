"""Heat map of a sweep in the manner of the original: eight reds, two lines a cell, dashes for failures."""

from typing import TYPE_CHECKING

from ...analyzers.planning.sweep import SweepCell, SweepGrid
from ...engine.units import GIB
from ..figures.contrast import choose_ink
from ..figures.page import SweepPage, open_sweep_page
from ..figures.page_style import LEAST_TEXT_PT, ORIGINAL_ABSENT, ORIGINAL_COLOURS, ORIGINAL_FAILED, SweepLook
from ..figures.style import INK, PAPER
from .figure_cells import draw_values, find_colour
from .figure_layout import DrawnGrid, choose_cells, choose_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

EM_DASH = "—"
_TEXT_SHARE = 9.0
"""Points of text in a cell of one inch."""
_MOST_TEXT_PT = 10.0


def draw_original(grid: SweepGrid, look: SweepLook) -> SweepPage:
    """Return the figure; settings of the style have to be in place."""
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    drawn = choose_cells(grid)
    size_in = choose_size(drawn, look, 1, 1)
    page = open_sweep_page("original", size_in, look.dpi)
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

    failed = [drawn.at(cell) for cell in drawn.in_state("oom", "failed", "invalid") if _was_tried(cell)]
    patches = [Rectangle((column, row), 1, 1) for row, column in failed]
    axes.add_collection(
        PatchCollection(patches, facecolor=ORIGINAL_FAILED, edgecolor=PAPER, linewidth=1.0, zorder=1.5)
    )
    for row, column in failed if font_pt >= LEAST_TEXT_PT else []:
        axes.text(
            column + 0.5,
            row + 0.5,
            EM_DASH,
            ha="center",
            va="center_baseline",
            color=INK,
            fontsize=font_pt * 1.4,
        )


def _was_tried(cell: SweepCell) -> bool:
    return cell.has_failed or cell.state == "invalid"


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


def _draw_key(page: SweepPage, drawn: DrawnGrid, grid: SweepGrid) -> None:
    from matplotlib.patches import Patch

    handles = []
    if drawn.in_state("oom", "failed"):
        handles.append(Patch(facecolor=ORIGINAL_FAILED, label=f"{EM_DASH}  failed"))
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
