"""Figure of all devices over time: one row a device, one cell a span of time, unmeasured cells hatched."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .canvas import open_page, save_file, save_page, show_text
from .contrast import choose_ink
from .frame import frame_time, say_unmeasured, title_axes
from .model import FORMATS, FigureFormat, HeatMap
from .style import FAINT, HEAT_MAP, UNMEASURED_INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

NAME = "memory_heatmap"
_WITHOUT = {
    "%": "no capacity is known that memory could be a share of",
    "GiB": "no figure of memory in this input",
}
_MOST_ANNOTATED = 120
"""Cells past this many are too small for their figure."""
_MOST_ANNOTATED_COLUMNS = 16
_MOST_ROW_LABELS = 32
_ROW_IN = 0.24
_FRAME_IN = 1.4
_LEAST_HEIGHT_IN = 2.0
_MOST_HEIGHT_IN = 9.0


def plot_heatmap(
    heat_map: HeatMap, folder: Path, formats: Sequence[FigureFormat] = FORMATS, *, file: Path | None = None
) -> list[Path]:
    """Draw devices over time as `memory_heatmap.{png,pdf}` and return the files.

    Args:
        heat_map: What to draw.
        folder: Where to.
        formats: Of the files.
        file: The one file to write instead, in the format that its name says.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    height_in = _FRAME_IN + _ROW_IN * len(heat_map.devices)
    with open_page(min(_MOST_HEIGHT_IN, max(_LEAST_HEIGHT_IN, height_in))) as page:
        axes = page.add_subplot()
        what = "memory used" if heat_map.unit == "%" else "memory"
        title_axes(axes, f"{what}, {heat_map.unit}, highest in each cell", show_text(heat_map.subtitle))
        if any(value is not None for row in heat_map.values for value in row):
            _draw(axes, heat_map)
        else:
            say_unmeasured(axes, _WITHOUT[heat_map.unit])
        if file is not None:
            save_file(page, file)
            return [file]
        return save_page(page, folder, NAME, formats)


def _draw(axes: "Axes", heat_map: HeatMap) -> None:
    import numpy as np

    rows = len(heat_map.devices)
    columns = len(heat_map.edges_s) - 1
    values = np.array(
        [[np.nan if value is None else value for value in row] for row in heat_map.values], dtype=float
    )
    axes.grid(visible=False)
    axes.patch.set(facecolor=FAINT, hatch="////", edgecolor=UNMEASURED_INK)
    highest = 100.0 if heat_map.unit == "%" else max(float(np.nanmax(values)), 1e-9)
    mesh = axes.pcolormesh(
        np.asarray(heat_map.edges_s),
        np.arange(rows + 1),
        np.ma.masked_invalid(values),
        cmap=HEAT_MAP,
        vmin=0.0,
        vmax=highest,
    )
    frame_time(axes, heat_map.edges_s[0], heat_map.edges_s[-1], heat_map.clock)
    _label_rows(axes, heat_map)
    axes.figure.colorbar(mesh, ax=axes, pad=0.015, aspect=20 + rows, label=_explain_colours(heat_map))
    if rows * columns <= _MOST_ANNOTATED and columns <= _MOST_ANNOTATED_COLUMNS:
        _annotate(axes, heat_map, mesh, highest)


def _label_rows(axes: "Axes", heat_map: HeatMap) -> None:
    rows = len(heat_map.devices)
    step = max(1, -(-rows // _MOST_ROW_LABELS))
    shown = range(0, rows, step)
    axes.set_ylim(rows, 0)
    axes.set_yticks([row + 0.5 for row in shown], [show_text(heat_map.devices[row])[:24] for row in shown])
    axes.set_ylabel("device")


def _explain_colours(heat_map: HeatMap) -> str:
    has_holes = any(value is None for row in heat_map.values for value in row)
    return f"{heat_map.unit}{'; hatched: not measured' if has_holes else ''}"


def _annotate(axes: "Axes", heat_map: HeatMap, mesh: "QuadMesh", highest: float) -> None:
    """Write the figure into each cell, in black or white, whichever stands out more."""
    places = 0 if heat_map.unit == "%" else 1
    for row, values in enumerate(heat_map.values):
        for column, value in enumerate(values):
            if value is None:
                continue
            middle_s = (heat_map.edges_s[column] + heat_map.edges_s[column + 1]) / 2
            red, green, blue, _ = mesh.cmap(value / highest)
            colour = choose_ink((red, green, blue))
            axes.text(
                middle_s,
                row + 0.5,
                f"{value:.{places}f}",
                ha="center",
                va="center",
                color=colour,
                fontsize=6.5,
            )
