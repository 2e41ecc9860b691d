"""The key of a heat map of a sweep: only what is in the figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analyzers.planning.sweep import STATES, SweepCell, SweepGrid
from ...engine.units import GIB
from ..figures.page_style import FRAME_INK, LINE, TEXTURES
from ..figures.style import PAPER
from .figure_cells import BORDER_DASHES, find_borders
from .figure_layout import DrawnGrid

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure
    from matplotlib.path import Path

KeyEntry = tuple[str, str]
"""What is shown and what it means."""


def list_key(drawn: DrawnGrid, grid: SweepGrid, best: SweepCell | None) -> list[KeyEntry]:
    """Return the entries of the key that a figure needs."""
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
        entries.append(("kind", "R real, S simulated: what held more"))
    for state in STATES:
        cells = drawn.in_state(state)
        if any(cell.actual_bytes is None for cell in cells):
            texture = TEXTURES[state]
            is_blind = state == "failed" and all(cell.cause is None for cell in cells)
            meaning = "failed, cause unknown" if is_blind else texture.meaning
            entries.append((state, f"{texture.word}  {meaning}"))
    return entries


def draw_key(page: "Figure", entries: Sequence[KeyEntry], columns: int) -> None:
    """Draw the key below the panels."""
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
    """Return the shape of the corner of a cell."""
    from matplotlib.path import Path

    return Path([(-0.6, 0.5), (0.5, 0.5), (0.5, -0.6), (-0.6, 0.5)])
