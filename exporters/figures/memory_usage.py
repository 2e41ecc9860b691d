"""Figure of one device's memory over time: allocated, reserved, used, capacity, and findings on top."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...engine.units import GIB, MIB
from .canvas import name_for_file, open_page, save_file, save_page, show_text
from .curve import Curve
from .curves import draw_curves, draw_legend
from .frame import frame_time, say_unmeasured, title_axes
from .marks import draw_markers, find_failed_peak, make_room, widen
from .model import FORMATS, DeviceFigure, FigureFormat, Marker
from .time_axis import find_span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEADROOM = 1.06
"""Height of the axes over the highest value in them."""


def plot_memory_usage(
    figure: DeviceFigure, folder: Path, formats: Sequence[FigureFormat] = FORMATS, *, file: Path | None = None
) -> list[Path]:
    """Draw a device's memory over time as `gpu_{device}_memory_usage.{png,pdf}` and return the files.

    Args:
        figure: What to draw.
        folder: Where to.
        formats: Of the files.
        file: The one file to write instead, in the format that its name says.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    with open_page() as page:
        axes = page.add_subplot()
        name = figure.name or f"GPU {figure.device}"
        title_axes(axes, show_text(f"{name}: memory"), show_text(figure.subtitle))
        curves = _measured(figure)
        if curves:
            _draw(axes, figure, curves)
        else:
            say_unmeasured(axes, "no figure of memory in this input")
        if file is not None:
            save_file(page, file)
            return [file]
        return save_page(page, folder, f"gpu_{name_for_file(figure.device)}_memory_usage", formats)


def _measured(figure: DeviceFigure) -> dict[str, Curve]:
    named = {"used": figure.used, "reserved": figure.reserved, "allocated": figure.allocated}
    return {name: curve for name, curve in named.items() if curve is not None and curve.is_measured}


def _draw(axes: "Axes", figure: DeviceFigure, curves: dict[str, Curve]) -> None:
    capacity = figure.capacity if figure.capacity is not None and figure.capacity.is_measured else None
    shown = curves if capacity is None else curves | {"capacity": capacity}
    failed = dict(_list_failed(figure.markers, curves))
    most_bytes = max(*(_peak(curve) for curve in shown.values()), *failed.values(), 0.0)
    scale, unit = (GIB, "GiB") if most_bytes >= GIB else (MIB, "MiB")
    draw_curves(axes, shown, scale)
    top = max(
        most_bytes / scale * _HEADROOM * make_room(it for it in figure.markers if it not in failed), 1e-3
    )
    axes.set_ylim(0, top)
    axes.set_ylabel(f"memory, {unit}")
    span = find_span([curve.times_s for curve in shown.values()])
    if span is not None:
        frame_time(axes, *span, figure.clock)
        widen(axes, figure.markers)
    peaks = {
        marker: ((peak - (marker.request_bytes or 0)) / scale, peak / scale)
        for marker, peak in failed.items()
    }
    draw_markers(axes, figure.markers, top, peaks)
    draw_legend(axes, shown)


def _list_failed(markers: Sequence[Marker], curves: dict[str, Curve]) -> Iterator[tuple[Marker, int]]:
    """Yield the errors whose request is known, with the peak that failed."""
    for marker in markers:
        peak = find_failed_peak(marker, curves)
        if peak is not None:
            yield marker, peak


def _peak(curve: Curve) -> float:
    return max((value for value in curve.high if not math.isnan(value)), default=0.0)
