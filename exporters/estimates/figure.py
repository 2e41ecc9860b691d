"""Figure of an estimate: a bar for each pipeline stage, of what it holds at its peak."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...engine.units import GIB, format_bytes
from ..figures.canvas import open_page, save_file, show_text
from ..figures.frame import title_axes
from ..figures.style import INK, LINES, PAPER
from ..text_table import count
from .report import EstimateReport, StageReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR_IN = 0.34
_FRAME_IN = 1.35
_MOST_IN = 9.0


class Share(NamedTuple):
    """One shade of a bar."""

    label: str
    colour: str
    hatch: str
    names: tuple[str, ...]
    """Groups and parts that it sums up."""


SHARES = (
    Share("weights", "#0072b2", "", ("weights", "fp8 copies")),
    Share("gradients", "#7fb8d8", "///", ("gradients", "gradient copies")),
    Share("optimizer", "#404040", "", ("master weights", "optimizer")),
    Share("activations", "#e69f00", "", ("activations",)),
    Share("logits and loss", "#f6d9a0", "...", ("loss",)),
    Share("buffers and libraries", "#b3b3b3", "\\\\\\", ("communication", "libraries", "rounding")),
)
"""In the order of the bar; shades differ in lightness or hatching too, not in colour alone."""


def draw_estimate(report: EstimateReport, path: Path) -> None:
    """Draw every stage at its peak, and the capacity where one is given.

    Args:
        report: The estimate.
        path: The file, whose name ends in `.pdf`, `.png` or `.svg`.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    height_in = min(_MOST_IN, _FRAME_IN + _BAR_IN * len(report.stages))
    with open_page(height_in) as page:
        axes = page.add_subplot()
        subtitle = f"{count(report.world_size, 'rank')}; at most {format_bytes(report.peak_bytes)} on a rank"
        if report.calibration is not None:
            subtitle += f", calibrated by {report.calibration.source}; bars as the theory says"
        title = f"{report.run.name}: estimated memory of each pipeline stage at its peak"
        title_axes(axes, show_text(title), show_text(subtitle))
        _draw_bars(axes, report.stages)
        _draw_capacity(axes, report)
        _frame(axes, report.stages)
        page.legend(loc="outside lower center", ncols=4)
        save_file(page, path)


def _draw_bars(axes: "Axes", stages: Sequence[StageReport]) -> None:
    ends = [0.0] * len(stages)
    for share in SHARES:
        sizes = [_sum_share(stage, share) / GIB for stage in stages]
        axes.barh(
            range(len(stages)),
            sizes,
            left=ends,
            height=0.72,
            color=share.colour,
            hatch=share.hatch,
            edgecolor=PAPER,
            linewidth=0.5,
            label=share.label,
        )
        ends = [end + size for end, size in zip(ends, sizes, strict=True)]
    for place, (stage, end) in enumerate(zip(stages, ends, strict=True)):
        axes.annotate(
            f"{end:.1f}  {stage.peak_moment}",
            (end, place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
            color=INK,
        )


def _sum_share(stage: StageReport, share: Share) -> int:
    moment = next(moment for moment in stage.moments if moment.name == stage.peak_moment)
    return sum(
        part.size_bytes for part in moment.parts if part.name in share.names or part.group in share.names
    )


def _draw_capacity(axes: "Axes", report: EstimateReport) -> None:
    if report.capacity_bytes is None:
        return
    from matplotlib.patheffects import Normal, Stroke

    style = LINES["capacity"]
    # The line is as dark as one of the shades; light edges keep it apart from that.
    edge = Stroke(linewidth=style.width_pt + 2, foreground=PAPER)
    axes.axvline(
        report.capacity_bytes / GIB,
        color=style.colour,
        linestyle=style.dashes,
        linewidth=style.width_pt,
        path_effects=[edge, Normal()],
        label=f"capacity, {format_bytes(report.capacity_bytes)}",
    )


def _frame(axes: "Axes", stages: Sequence[StageReport]) -> None:
    axes.set_yticks(range(len(stages)), [f"stage {stage.stage}" for stage in stages])
    axes.set_ylim(len(stages) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", visible=True)
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    axes.set_xlabel("GiB")
