"""Figure of a plan: what each stage holds, kind by kind, under the capacity; a panel for each strategy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analyzers.planning.partition import GraphAnalyzer, Plan, StageMemory, Strategy
from ...engine.errors import UsageError
from ...engine.units import GIB, format_bytes
from ..estimates.figure import SHARES
from ..figures.canvas import show_text
from ..figures.page import SweepPage, hold_settings, open_sweep_page
from ..figures.page_style import COLUMN_IN, DPI, TEXT_IN
from ..figures.style import LINES, PAPER
from ..sweep.figure import settle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_STAGES = 256
_SHARES = SHARES[:4]
"""Weights, gradients, optimizer, activations."""
_PANEL_IN = 1.35
_KEY_IN = 0.62
_MOST_COLUMNS = 3
_KEY_ROW_IN = 0.16
"""Of the second row of the key, which a column of the page needs."""
_PAD_IN = 0.04
"""Around all that is drawn."""
_Panel = tuple[Strategy, tuple[StageMemory, ...]]


def draw_stages(plan: Plan, analyzer: GraphAnalyzer) -> SweepPage:
    """Return the figure: the recommended number of stages, by every strategy of the plan that has it.

    Args:
        plan: What was found.
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
        page = open_sweep_page("usenix", (width_in, rows * _PANEL_IN + key_in), DPI)
        page.set_layout_engine("constrained", w_pad=_PAD_IN, h_pad=_PAD_IN)
        grid = page.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, plan, is_least=len(panels) > 1 and _find_most(panel) == least)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        page.suptitle(show_text(_describe(plan)), fontsize=7.5)
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


def _describe(plan: Plan) -> str:
    batches = f"{plan.assumptions.micro_batches} micro-batches, 1F1B"
    if plan.recommended.training_bytes is None:
        batches = "without activations, which are not known"
    return f"{plan.model} in {plan.recommended_stages} stages, {batches}"
