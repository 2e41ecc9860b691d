"""Figure of two profiles by module: blocks as long as the larger of both, marked by what is more or less."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...analyzers.breakdown import ComparedNode, IcicleCell, find_compared, lay_out_icicle, make_span_tree
from ...analyzers.comparison.model import say_signed
from ..figures.style import INK
from .figure import MOST_DEPTH, draw_page, lighten, limit_edge, outline, write_in

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PALEST = 0.75
"""Lightness of a block that hardly differs."""
_SHADES = 8


class _Look(NamedTuple):
    """How a block is marked; the hatching says it without its colour."""

    word: str
    colour: str
    hatch: str


_LOOKS = {
    "more": _Look("more", "#d55e00", "////"),
    "less": _Look("less", "#0072b2", "\\\\\\\\"),
    "second": _Look("in the second only", "#d55e00", "xxxx"),
    "first": _Look("in the first only", "#0072b2", "++++"),
    "same": _Look("the same", "#d9d9d9", ""),
    "unknown": _Look("not measured in both", "#ffffff", "||"),
}
"""Blue and vermilion are of Okabe and Ito (Color Universal Design, 2008)."""


def draw_difference_icicle(title: str, subtitle: str, tree: ComparedNode, path: Path) -> None:
    """Draw what the second of two profiles has more or less than the first; the same bytes every time.

    Args:
        title: What is drawn.
        subtitle: Whose figures these are.
        tree: Of `compare_trees`; its root is the top row.
        path: The file, whose name ends in `.pdf`, `.svg` or `.png`.

    Raises:
        OutputFileError: It cannot be written.
    """
    cells = lay_out_icicle(make_span_tree(tree), "measured", MOST_DEPTH)
    draw_page(title, subtitle, cells, partial(_draw_cells, tree), path)


def classify(node: ComparedNode) -> str:
    """Return what a node is marked as: `more`, `less`, `same`, `first`, `second` (only there), `unknown`."""
    if not node.is_in_first:
        return "second"
    if not node.is_in_second:
        return "first"
    difference = node.difference_bytes
    if difference is None:
        return "unknown"
    return "more" if difference > 0 else "less" if difference else "same"


def _draw_cells(tree: ComparedNode, axes: "Axes", cells: Sequence[IcicleCell]) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    found = [(cell, node) for cell in cells if (node := find_compared(tree, cell.path)) is not None]
    handles = []
    for kind, look in _LOOKS.items():
        chosen = [(cell, node) for cell, node in found if classify(node) == kind]
        if not chosen:
            continue
        axes.add_collection(
            PolyCollection(
                [outline(cell) for cell, _ in chosen],
                facecolors=[_shade(look, cell, node) for cell, node in chosen],
                edgecolors="#ffffff",
                linewidths=[limit_edge(cell) for cell, _ in chosen],
                hatch=look.hatch,
            )
        )
        handles.append(
            Patch(facecolor=lighten(look.colour, 0.4), edgecolor="#ffffff", hatch=look.hatch, label=look.word)
        )
    for cell, node in found:
        write_in(axes, cell, _say(node))
    _add_key(axes, handles)


def _add_key(axes: "Axes", handles: Sequence[object]) -> None:
    key = axes.legend(
        handles=list(handles),
        loc="upper center",
        bbox_to_anchor=(0.5, -0.18),
        ncols=len(handles),
        frameon=False,
        fontsize=7,
        labelcolor=INK,
    )
    key.set_in_layout(True)


def _shade(look: _Look, cell: IcicleCell, node: ComparedNode) -> tuple[float, float, float]:
    # In steps: each shade has a pattern of its own in the file.
    share = round(_SHADES * abs(node.difference_bytes or 0) / max(1, cell.size_bytes)) / _SHADES
    return lighten(look.colour, 0.0 if look.word == "the same" else _PALEST * (1 - share) + 0.3 * share)


def _say(node: ComparedNode) -> str:
    difference = node.difference_bytes
    return "—" if difference is None else say_signed(difference) if difference else "same"
