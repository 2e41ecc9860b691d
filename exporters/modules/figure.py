"""Figure of memory by module: an icicle, whose rows are levels and whose lengths are bytes."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...analyzers.diff.model import say_signed
from ...analyzers.modules import (
    Basis,
    BreakdownNode,
    ComparedNode,
    IcicleCell,
    find_node,
    lay_out_icicle,
    make_span_tree,
)
from ...engine.units import GIB, MIB, format_bytes
from ..figures.style import INK, PAPER, open_page, save_file, say_unmeasured, show_text, title_axes
from ..text import UNKNOWN

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MOST_DEPTH = 8
_ROW_IN = 0.34
_FRAME_IN = 1.1
_SHADES = ("#56b4e9", "#e69f00", "#009e73", "#f0e442", "#cc79a7", "#d55e00", "#80b8d8", "#b3b3b3")
"""Colours of Okabe and Ito (Color Universal Design, 2008); they only separate neighbours."""
_LINE_PER_WIDTH = 60.0
"""Points of an edge for a cell as wide as the figure: an eighth of the cell at most."""
_LETTER_SHARE = 0.008
"""Width of a letter as a share of the figure's; of the font that is used, rather more than less."""


def draw_icicle(title: str, subtitle: str, tree: BreakdownNode, basis: Basis, path: Path) -> None:
    """Draw a tree; the same bytes every time.

    Args:
        subtitle: Origin of the values.
        tree: The tree; its root is the top row.
        basis: The bytes that lengths show.
        path: The file, whose name ends in `.pdf`, `.svg` or `.png`.

    Raises:
        OutputFileError: It cannot be written.
    """
    draw_page(title, subtitle, lay_out_icicle(tree, basis, MOST_DEPTH), _draw_cells, path)


def draw_page(
    title: str,
    subtitle: str,
    cells: Sequence[IcicleCell],
    draw_cells: "Callable[[Axes, Sequence[IcicleCell]], None]",
    path: Path,
) -> None:
    """Write a figure whose rows are levels.

    Args:
        subtitle: Origin of the values.
        cells: Of `lay_out_icicle`.
        draw_cells: Draws them, a row as high as 1, across from 0 to 1.
        path: The file, whose name ends in `.pdf`, `.svg` or `.png`.

    Raises:
        OutputFileError: It cannot be written.
    """
    rows = 1 + max((cell.depth for cell in cells), default=0)
    with open_page(_FRAME_IN + _ROW_IN * max(rows, 3)) as page:
        axes = page.add_subplot()
        title_axes(axes, show_text(title), show_text(subtitle))
        if cells:
            draw_cells(axes, cells)
            _frame(axes, rows, cells[0].size_bytes)
        else:
            say_unmeasured(axes, "the tree holds no bytes")
        save_file(page, path)


def _draw_cells(axes: "Axes", cells: Sequence[IcicleCell]) -> None:
    from matplotlib.collections import PolyCollection

    axes.add_collection(
        PolyCollection(
            [outline(cell) for cell in cells],
            facecolors=_choose_shades(cells),
            edgecolors=[INK if not cell.path else PAPER for cell in cells],
            linewidths=[limit_edge(cell) for cell in cells],
        )
    )
    for cell in cells:
        write_in(axes, cell, format_bytes(cell.size_bytes))


def outline(cell: IcicleCell) -> list[tuple[float, float]]:
    top = cell.depth
    bottom = cell.depth + 1
    return [(cell.start, top), (cell.end, top), (cell.end, bottom), (cell.start, bottom)]


def limit_edge(cell: IcicleCell) -> float:
    """Return how wide the edge of a cell may be, in points: an eighth of the cell at most."""
    return min(0.5, (cell.end - cell.start) * _LINE_PER_WIDTH)


def write_in(axes: "Axes", cell: IcicleCell, figure: str) -> None:
    """Write into a cell what fits: name and size, the name, its beginning, or nothing."""
    text = _fit(cell, figure)
    if text:
        middle = (cell.start + cell.end) / 2
        axes.text(middle, cell.depth + 0.5, text, ha="center", va="center", fontsize=6.5, color=INK)


def _choose_shades(cells: Sequence[IcicleCell]) -> list[tuple[float, float, float] | str]:
    """Return a colour for each cell: its branch's, lighter by depth and by turns."""
    branches = dict.fromkeys(cell.path[0] for cell in cells if cell.path)
    shades = {name: _SHADES[place % len(_SHADES)] for place, name in enumerate(branches)}
    return [
        PAPER if not cell.path else lighten(shades[cell.path[0]], _find_lightness(cell, number))
        for number, cell in enumerate(cells)
    ]


def _fit(cell: IcicleCell, figure: str) -> str:
    letters = int((cell.end - cell.start) / _LETTER_SHARE)
    name = show_text(cell.name)
    if len(name) + len(figure) + 2 <= letters:
        return f"{name}  {figure}"
    if len(name) <= letters:
        return name
    return f"{name[: letters - 1]}…" if letters >= 4 and "$" not in name else ""


def _find_lightness(cell: IcicleCell, number: int) -> float:
    return min(0.75, 0.15 * (cell.depth - 1) + 0.08 * (number % 2))


def lighten(shade: str, light: float) -> tuple[float, float, float]:
    """Return a colour, `#rrggbb`, nearer to white: 0 for itself, 1 for white."""
    red, green, blue = (int(shade[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red + (1 - red) * light, green + (1 - green) * light, blue + (1 - blue) * light


def _frame(axes: "Axes", rows: int, total_bytes: int) -> None:
    axes.set_ylim(rows, 0)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    unit, name = (GIB, "GiB") if total_bytes >= GIB else (MIB, "MiB")
    step = _choose_step(total_bytes / unit)
    ticks = [number * step for number in range(int(total_bytes / unit / step) + 1)]
    axes.set_xlim(0, 1)
    axes.set_xticks([tick * unit / total_bytes for tick in ticks], [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(name)


def _choose_step(total: float) -> float:
    """Return a round step that makes five to ten ticks."""
    magnitude = 10.0 ** math.floor(math.log10(total))
    return next(each * magnitude for each in (0.1, 0.2, 0.5, 1.0) if total / (each * magnitude) <= 10)


# Figure of two profiles by module: blocks as long as the larger of both, marked by their difference.

_PALEST = 0.75
"""Lightness of a block that hardly differs."""
_DIFFERENCE_SHADES = 8


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
        subtitle: Origin of the values.
        tree: Of `compare_trees`; its root is the top row.
        path: The file, whose name ends in `.pdf`, `.svg` or `.png`.

    Raises:
        OutputFileError: It cannot be written.
    """
    cells = lay_out_icicle(make_span_tree(tree), "measured", MOST_DEPTH)
    draw_page(title, subtitle, cells, partial(_draw_difference_cells, tree), path)


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


def _draw_difference_cells(tree: ComparedNode, axes: "Axes", cells: Sequence[IcicleCell]) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    found = [(cell, node) for cell in cells if (node := find_node(tree, cell.path)) is not None]
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
    share = (
        round(_DIFFERENCE_SHADES * abs(node.difference_bytes or 0) / max(1, cell.size_bytes))
        / _DIFFERENCE_SHADES
    )
    return lighten(look.colour, 0.0 if look.word == "the same" else _PALEST * (1 - share) + 0.3 * share)


def _say(node: ComparedNode) -> str:
    difference = node.difference_bytes
    return UNKNOWN if difference is None else say_signed(difference) if difference else "same"
