"""Figure of one device's fragmentation over time, as a share of what its allocator holds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .canvas import name_for_file, open_page, save_page, show_text
from .curve import Curve
from .curves import draw_curves, draw_legend
from .frame import frame_time, say_unmeasured, title_axes
from .marks import draw_markers, make_room, widen
from .model import FORMATS, FigureFormat, FragmentationFigure
from .time_axis import find_span

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_fragmentation(
    figure: FragmentationFigure, folder: Path, formats: Sequence[FigureFormat] = FORMATS
) -> list[Path]:
    """Draw a device's fragmentation over time as `gpu_{device}_fragmentation.{png,pdf}` and return the files.

    Where it was not measured the figure says so, and why.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    named = {"external": figure.external, "internal": figure.internal, "fragmentation": figure.fragmentation}
    curves = {name: curve for name, curve in named.items() if curve is not None and curve.is_measured}
    with open_page() as page:
        axes = page.add_subplot()
        name = figure.name or f"GPU {figure.device}"
        title_axes(axes, show_text(f"{name}: fragmentation"), show_text(figure.subtitle))
        if curves:
            _draw(axes, figure, curves)
        else:
            say_unmeasured(axes, show_text(figure.reason))
        return save_page(page, folder, f"gpu_{name_for_file(figure.device)}_fragmentation", formats)


def _draw(axes: "Axes", figure: FragmentationFigure, curves: dict[str, Curve]) -> None:
    draw_curves(axes, curves)
    top = make_room(figure.markers)
    axes.set_ylim(0, top)
    axes.set_yticks([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.set_ylabel("fragmentation, 0 to 1")
    span = find_span([curve.times_s for curve in curves.values()])
    if span is not None:
        frame_time(axes, *span, figure.clock)
        widen(axes, figure.markers)
    draw_markers(axes, figure.markers, top)
    draw_legend(axes, curves)
