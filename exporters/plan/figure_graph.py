"""Figure of a model's graph: a chain of boxes, layers that are alike drawn once, and what each hands on."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ...analyzers.planning.graph import LayerNode, LayerType, ModelGraph
from ...engine.errors import UsageError
from ..figures.canvas import show_text
from ..figures.contrast import choose_ink
from ..figures.page import SweepPage, hold_settings, open_sweep_page
from ..figures.page_style import DPI, TEXT_IN
from ..figures.style import INK, PAPER
from ..sweep.figure import settle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BOXES = 60
_COLUMNS = 5
_BOX = 1.05
_GAP = 0.38
_TALL = 0.62
_ROW = 1.02
"""Inches: width of a box, from box to box, its height, from row to row."""
_HEAD_IN = 0.34
_MOST_LETTERS = 18
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ARROW = {"arrowstyle": "-|>", "mutation_scale": 5, "lw": 0.6, "color": INK, "shrinkA": 0, "shrinkB": 0}
_COLOURS: dict[LayerType, str] = {
    "embedding": "#cfe3f2",
    "transformer_block": "#0072b2",
    "layer_norm": PAPER,
    "output_head": "#f6d9a0",
    "attention": "#7fb8d8",
    "mlp": "#d9d9d9",
    "module": "#ededed",
}


class FoldedLayers(NamedTuple):
    """Layers that are alike and follow one another."""

    layers: tuple[LayerNode, ...]

    @property
    def first(self) -> LayerNode:
        """The layer that is drawn for all."""
        return self.layers[0]


def fold_layers(layers: Sequence[LayerNode]) -> list[FoldedLayers]:
    """Return runs of layers of one kind and size, in order."""
    return [FoldedLayers(tuple(run)) for _, run in groupby(layers, key=_describe_kind)]


def draw_graph(graph: ModelGraph) -> SweepPage:
    """Return the figure of a graph.

    Raises:
        UsageError: More kinds of layers follow one another than a figure can show.
    """
    boxes = fold_layers(graph.layers)
    if len(boxes) > MOST_BOXES:
        raise UsageError(
            f"a figure shows at most {MOST_BOXES} runs of alike layers, and {graph.name} has {len(boxes)}; "
            "--json and -o have them all"
        )
    rows = -(-len(boxes) // _COLUMNS)
    height_in = rows * _ROW + _HEAD_IN
    with hold_settings("usenix"):
        page = open_sweep_page("usenix", (TEXT_IN, height_in), DPI)
        axes = page.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, TEXT_IN)
        axes.set_ylim(height_in, 0)
        axes.text(0.08, 0.2, show_text(_describe(graph)), fontsize=7.5, va="center")
        for place, box in enumerate(boxes):
            _draw_box(axes, box, *_locate(place))
        jumps = 0
        for source, target, cost in _list_handovers(graph, boxes):
            if target == source + 1:
                _draw_arrow(axes, source, cost)
            else:
                _draw_jump(axes, source, target, cost, _LETTERS[jumps % len(_LETTERS)])
                jumps += 1
        settle(page)
    return page


def _describe_kind(layer: LayerNode) -> tuple[object, ...]:
    return (
        layer.layer_type,
        layer.parameter_count,
        layer.shared_parameter_count,
        layer.memory_usage,
        layer.compute_flops,
        layer.activation_bytes,
    )


def _describe(graph: ModelGraph) -> str:
    return (
        f"{graph.name}: {len(graph.layers)} layers, {graph.total_parameters:,} parameters; "
        "boxes: parameters, MiB of weights, forward GFLOP of one sequence; arrows: MiB handed on"
    )


def _locate(place: int) -> tuple[float, float]:
    """Return the upper left corner of a box."""
    row, column = divmod(place, _COLUMNS)
    return 0.14 + column * (_BOX + _GAP), _HEAD_IN + 0.26 + row * _ROW


def _draw_box(axes: "Axes", box: FoldedLayers, left: float, top: float) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    layer = box.first
    colour = _COLOURS[box.first.layer_type]
    if len(box.layers) > 1:  # a second sheet behind it
        axes.add_patch(
            Rectangle((left + 0.04, top - 0.04), _BOX, _TALL, facecolor=PAPER, edgecolor=INK, lw=0.5)
        )
    axes.add_patch(Rectangle((left, top), _BOX, _TALL, facecolor=colour, edgecolor=INK, lw=0.6))
    ink = choose_ink(to_rgb(colour))
    times = f" × {len(box.layers)}" if len(box.layers) > 1 else ""
    lines = (
        f"{show_text(_name(box))}{times}",
        _count_parameters(layer),
        f"{layer.memory_usage:,.1f} MiB",
        f"{layer.compute_flops:,.1f} GFLOP",
    )
    for number, line in enumerate(lines):
        axes.text(
            left + _BOX / 2,
            top + 0.1 + 0.14 * number,
            line,
            ha="center",
            va="center",
            fontsize=6.5 if number == 0 else 6.0,
            fontweight="bold" if number == 0 else "normal",
            color=ink,
        )


def _name(box: FoldedLayers) -> str:
    """Return the name of a box: without its number where several layers are folded."""
    name = box.first.name if len(box.layers) == 1 else box.first.name.rstrip("0123456789_.")
    name = (name or box.first.layer_type).replace("_", " ")
    return name if len(name) <= _MOST_LETTERS else f"…{name[1 - _MOST_LETTERS :]}"


def _count_parameters(layer: LayerNode) -> str:
    if layer.shared_parameter_count and not layer.parameter_count:
        return f"{layer.shared_parameter_count:,} shared"
    return f"{layer.parameter_count:,}"


def _list_handovers(graph: ModelGraph, boxes: Sequence[FoldedLayers]) -> Iterator[tuple[int, int, float]]:
    """Yield from box to box what one edge carries, in MiB; edges within a box are not drawn."""
    box_of = {layer.layer_id: place for place, box in enumerate(boxes) for layer in box.layers}
    costs: dict[tuple[int, int], float] = {}
    for edge in graph.edges:
        ends = (box_of[edge.source_id], box_of[edge.target_id])
        if ends[0] != ends[1]:
            costs[ends] = max(costs.get(ends, 0.0), edge.communication_cost)
    for (source, target), cost in sorted(costs.items()):
        yield source, target, cost


def _draw_arrow(axes: "Axes", source: int, cost: float) -> None:
    """Draw what a box hands to the next one; onto the next row out on the right and in from the left."""
    left, top = _locate(source)
    end, end_top = _locate(source + 1)
    right = left + _BOX
    middle = _TALL / 2
    if (source + 1) % _COLUMNS:
        axes.annotate("", (end, end_top + middle), (right, top + middle), arrowprops=_ARROW)
    else:
        axes.annotate("", (right + 0.2, top + middle), (right, top + middle), arrowprops=_ARROW)
        axes.annotate("", (end, end_top + middle), (0.0, end_top + middle), arrowprops=_ARROW)
    axes.text(right + _GAP / 2, top + middle - 0.07, f"{cost:,.2f}", ha="center", fontsize=6.0)


def _draw_jump(axes: "Axes", source: int, target: int, cost: float, letter: str) -> None:
    """Draw what a box hands to one further on: out below and in from above, under one letter."""
    dashed = _ARROW | {"linestyle": (0, (3, 2))}
    left, top = _locate(source)
    foot = (left + _BOX / 2, top + _TALL)
    axes.annotate("", (foot[0], foot[1] + 0.16), foot, arrowprops=dashed)
    axes.text(foot[0] + 0.05, foot[1] + 0.13, f"{letter}: {cost:,.2f}", fontsize=6.0)
    left, top = _locate(target)
    axes.annotate("", (left + 0.2, top), (left + 0.2, top - 0.16), arrowprops=dashed)
    axes.text(left + 0.25, top - 0.08, letter, fontsize=6.0)
