"""Figure of a model's graph: a chain of boxes, layers that are alike drawn once, and what each hands on."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from ...analyzers.planning.graph import LayerNode, LayerType, ModelGraph
from ...analyzers.planning.partition import GraphAnalyzer, Plan, StageMemory, Strategy
from ...engine.errors import UsageError
from ...engine.units import GIB, format_bytes
from ..estimates import SHARES
from ..figures.page import COLUMN_IN, DPI, TEXT_IN, FigurePage, hold_settings, open_figure_page
from ..figures.style import INK, LINES, PAPER, choose_ink, show_text
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
        return self.layers[0]


def fold_layers(layers: Sequence[LayerNode]) -> list[FoldedLayers]:
    """Return runs of layers of one kind and size, in order."""
    return [FoldedLayers(tuple(run)) for _, run in groupby(layers, key=_describe_kind)]


def draw_graph(graph: ModelGraph) -> FigurePage:
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
        page = open_figure_page("usenix", (TEXT_IN, height_in), DPI)
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
        "boxes: parameters, MiB of weights, forward GFLOP of one sequence; arrows: MiB passed on"
    )


def _locate(place: int) -> tuple[float, float]:
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


# Figure of a plan: what each stage holds, kind by kind, under the capacity; a panel for each strategy.

MOST_STAGES = 256
_SHARES = SHARES[:4]
"""Weights, gradients, optimizer, activations."""
_PANEL_IN = 1.35
_KEY_IN = 0.62
_MOST_COLUMNS = 3
_KEY_ROW_IN = 0.16
"""Height of the second row of the key, which a column of the page needs."""
_PAD_IN = 0.04
"""Around all that is drawn."""
_Panel = tuple[Strategy, tuple[StageMemory, ...]]


def draw_stages(plan: Plan, analyzer: GraphAnalyzer) -> FigurePage:
    """Return the figure: the recommended number of stages, by every strategy of the plan that has it.

    Args:
        analyzer: Of the same graph, with the micro-batches and states of the plan.

    Raises:
        UsageError: There are more stages than a figure can show.
        NothingFitsError: Nothing fits in the capacity.
    """
    stages = plan.recommended.total_stages
    if stages > MOST_STAGES:
        raise UsageError(
            f"a figure shows at most {MOST_STAGES} stages, and the plan has {stages}; "
            "choose fewer with --stages"
        )
    panels = _list_panels(plan, analyzer)
    least = min(map(_find_most, panels))
    columns = min(len(panels), _MOST_COLUMNS)
    rows = -(-len(panels) // columns)
    width_in = COLUMN_IN if columns == 1 else TEXT_IN
    with hold_settings("usenix"):
        key_columns = 3 if columns == 1 else 5
        key_in = _KEY_IN if key_columns == 5 else _KEY_IN + _KEY_ROW_IN
        page = open_figure_page("usenix", (width_in, rows * _PANEL_IN + key_in), DPI)
        page.set_layout_engine("constrained", w_pad=_PAD_IN, h_pad=_PAD_IN)
        grid = page.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, plan, is_least=len(panels) > 1 and _find_most(panel) == least)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        page.suptitle(show_text(_describe_stages(plan)), fontsize=7.5)
        for axes in grid[:, 0]:
            axes.set_ylabel("GiB, computed")
        for axes in grid[-1]:
            axes.set_xlabel("stage")
        page.legend(
            *grid.flat[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=key_columns,
            columnspacing=0.8,
            handlelength=2.0,
            handletextpad=0.4,
        )
        settle(page)
    return page


def _list_panels(plan: Plan, analyzer: GraphAnalyzer) -> list[_Panel]:
    """Return what each strategy's stages hold, the recommended one first."""
    order = sorted(plan.searches, key=lambda each: each != plan.recommended_strategy)
    panels: list[_Panel] = []
    for name in order:
        result = plan.searches[name].optimization_results[plan.recommended.total_stages].result
        if result is not None:
            panels.append((result.strategy, analyzer.split_memory(result)))
    return panels


def _find_most(panel: _Panel) -> int:
    """Return the bytes of the fullest stage of a panel."""
    weights, gradients, optimizer, activations = _split_by_kind(panel[1])
    return max(map(sum, zip(weights, gradients, optimizer, activations, strict=True)))


def _draw_panel(axes: "Axes", panel: _Panel, plan: Plan, *, is_least: bool) -> None:
    strategy, stages = panel
    ends = [0.0] * len(stages)
    for share, sizes in zip(_SHARES, _split_by_kind(stages), strict=True):
        heights = [size / GIB for size in sizes]
        axes.bar(
            range(len(stages)),
            heights,
            bottom=ends,
            width=0.78,
            color=share.colour,
            hatch=share.hatch * 2,
            edgecolor=PAPER,
            linewidth=0.3,
            label=share.label,
        )
        ends = [end + height for end, height in zip(ends, heights, strict=True)]
    capacity = plan.assumptions.capacity_bytes
    if capacity is not None:
        style = LINES["capacity"]
        label = f"capacity {format_bytes(capacity)}"
        axes.axhline(capacity / GIB, color=style.colour, linestyle=style.dashes, linewidth=0.9, label=label)
    is_best = strategy == plan.recommended_strategy
    words = [*(["recommended"] if is_best else []), *(["least memory"] if is_least else [])]
    note = f" ({', '.join(words)})" if words else ""
    axes.set_title(
        f"{strategy}{note}: at most {max(ends):,.1f} GiB",
        fontweight="bold" if is_best else "normal",
    )
    _frame(axes, len(stages))


def _frame(axes: "Axes", stages: int) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.set_xlim(-0.6, stages - 0.4)
    axes.tick_params(length=2)
    axes.margins(y=0.08)
    axes.spines[["top", "right"]].set_visible(False)


def _split_by_kind(stages: Sequence[StageMemory]) -> list[list[int]]:
    """Return bytes by kind and stage, in the order of `_SHARES`; 0 activations where none are known."""
    return [
        [stage.weights_bytes for stage in stages],
        [stage.gradients_bytes for stage in stages],
        [stage.optimizer_bytes for stage in stages],
        [stage.activations_bytes or 0 for stage in stages],
    ]


def _describe_stages(plan: Plan) -> str:
    batches = f"{plan.assumptions.micro_batches} micro-batches, 1F1B"
    if plan.recommended.training_bytes is None:
        batches = "without activations, which are unknown"
    return f"{plan.model} in {plan.recommended_stages} stages, {batches}"
