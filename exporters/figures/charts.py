"""The charts of a run: memory over time, fragmentation, peaks of devices, a heat map; with their marks."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...engine.model import Finding
from ...engine.units import GIB, MIB, format_bytes
from .model import (
    FORMATS,
    Curve,
    CurveRecorder,
    DeviceFigure,
    DevicesOverTime,
    FigureFormat,
    FragmentationFigure,
    Marker,
    Peaks,
    find_span,
)
from .style import (
    FAINT,
    HEAT_MAP,
    LINES,
    MARKS,
    OTHER,
    PAPER,
    UNMEASURED_INK,
    MarkStyle,
    choose_ink,
    frame_time,
    name_for_file,
    open_page,
    save_file,
    save_page,
    say_unmeasured,
    show_text,
    title_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh


# Figure of one device's memory over time: allocated, reserved, used, capacity, and findings on top.

_HEADROOM = 1.06
"""Height of the axes over the highest value in them."""


def plot_memory_usage(
    figure: DeviceFigure, folder: Path, formats: Sequence[FigureFormat] = FORMATS, *, file: Path | None = None
) -> list[Path]:
    """Draw a device's memory over time as `gpu_{device}_memory_usage.{png,pdf}` and return the files.

    Args:
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
            _draw_usage(axes, figure, curves)
        else:
            say_unmeasured(axes, "no memory data in this input")
        if file is not None:
            save_file(page, file)
            return [file]
        return save_page(page, folder, f"gpu_{name_for_file(figure.device)}_memory_usage", formats)


def _measured(figure: DeviceFigure) -> dict[str, Curve]:
    named = {"used": figure.used, "reserved": figure.reserved, "allocated": figure.allocated}
    return {name: curve for name, curve in named.items() if curve is not None and curve.is_measured}


def _draw_usage(axes: "Axes", figure: DeviceFigure, curves: dict[str, Curve]) -> None:
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


# Figure of one device's fragmentation over time, as a share of what its allocator holds.


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
            _draw_fragmentation(axes, figure, curves)
        else:
            say_unmeasured(axes, show_text(figure.reason))
        return save_page(page, folder, f"gpu_{name_for_file(figure.device)}_fragmentation", formats)


def _draw_fragmentation(axes: "Axes", figure: FragmentationFigure, curves: dict[str, Curve]) -> None:
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


# Figure of the peaks: the most that each device ever had allocated, reserved and used, and its capacity.

PEAKS_NAME = "memory_peaks"
_BARS = ("allocated", "reserved", "used")
_HATCHES = {"allocated": "", "reserved": "////", "used": "...."}
_BAR = 0.27
_GROUP = 0.81
"""Heights of a bar and of a device's bars, where the next device is 1 further down."""
_MOST_LABELS = 32
"""Devices past this many have every so many named."""
_MOST_VALUES = 16
"""Devices past this many have no value at the end of their bars."""
_PEAKS_ROW_IN = 0.5
_PEAKS_FRAME_IN = 1.1
_LEAST_HEIGHT_IN = 2.0
_MOST_HEIGHT_IN = 9.0
_PEAKS_HEADROOM = 1.12


def plot_peaks(peaks: Peaks, folder: Path, formats: Sequence[FigureFormat] = FORMATS) -> list[Path]:
    """Draw the peaks of all devices as `memory_peaks.{png,pdf}` and return the files.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    height_in = _PEAKS_FRAME_IN + _PEAKS_ROW_IN * len(peaks.devices)
    with open_page(min(_MOST_HEIGHT_IN, max(_LEAST_HEIGHT_IN, height_in))) as page:
        axes = page.add_subplot()
        title_axes(axes, "peak memory of each device", show_text(peaks.subtitle))
        if any(value is not None for name in _BARS for value in peaks.of(name)):
            _draw_peaks(axes, peaks)
        else:
            say_unmeasured(axes, "no memory data in this input")
        return save_page(page, folder, PEAKS_NAME, formats)


def _draw_peaks(axes: "Axes", peaks: Peaks) -> None:
    known = [value for name in (*_BARS, "capacity") for value in peaks.of(name) if value is not None]
    scale, unit = (GIB, "GiB") if max(known) >= GIB else (MIB, "MiB")
    for number, name in enumerate(_BARS):
        _draw_bars(axes, peaks, name, number, scale)
    _draw_capacity(axes, peaks, scale)
    count = len(peaks.devices)
    step = -(-count // _MOST_LABELS)
    axes.set_yticks(range(0, count, step), [show_text(peaks.devices[at]) for at in range(0, count, step)])
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_xlim(0, max(known) / scale * _PEAKS_HEADROOM)
    axes.grid(visible=False)
    axes.grid(visible=True, axis="x")
    axes.set_xlabel(f"memory, {unit}")
    axes.set_ylabel("device")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.4, alignment="left")


def _draw_bars(axes: "Axes", peaks: Peaks, name: str, number: int, scale: float) -> None:
    found = [(at, value / scale) for at, value in enumerate(peaks.of(name)) if value is not None]
    if not found:
        return
    import matplotlib as mpl

    style = LINES[name]
    # The hatching of unmeasured cells would not be visible on a bar; the page restores the settings.
    mpl.rcParams["hatch.color"] = PAPER
    places = [at - _GROUP / 2 + _BAR * (number + 0.5) for at, _ in found]
    bars = axes.barh(
        places,
        [value for _, value in found],
        height=_BAR,
        color=style.colour,
        edgecolor=PAPER,
        hatch=_HATCHES[name],
        linewidth=0.4,
        label=name,
        zorder=2,
    )
    if len(peaks.devices) <= _MOST_VALUES:
        axes.bar_label(bars, fmt="{:,.1f}", padding=2, fontsize=6, zorder=4)


def _draw_capacity(axes: "Axes", peaks: Peaks, scale: float) -> None:
    found = [(at, value / scale) for at, value in enumerate(peaks.capacity) if value is not None]
    style = LINES["capacity"]
    for number, (at, value) in enumerate(found):
        axes.plot(
            [value, value],
            [at - 0.5, at + 0.5],
            color=style.colour,
            linestyle=style.dashes,
            linewidth=style.width_pt,
            label="capacity" if number == 0 else None,
            zorder=3,
        )


# Figure of all devices over time: one row a device, one cell a span of time, unmeasured cells hatched.

HEAT_MAP_NAME = "memory_heatmap"
_WITHOUT = {
    "%": "the capacity of the devices is unknown",
    "GiB": "no memory data in this input",
}
_MOST_ANNOTATED = 120
"""Cells past this many are too small for their figure."""
_MOST_ANNOTATED_COLUMNS = 16
_MOST_ROW_LABELS = 32
_ROW_IN = 0.24
_FRAME_IN = 1.4


def plot_devices_over_time(
    heat_map: DevicesOverTime,
    folder: Path,
    formats: Sequence[FigureFormat] = FORMATS,
    *,
    file: Path | None = None,
) -> list[Path]:
    """Draw devices over time as `memory_heatmap.{png,pdf}` and return the files.

    Args:
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
            _draw_heat_map(axes, heat_map)
        else:
            say_unmeasured(axes, _WITHOUT[heat_map.unit])
        if file is not None:
            save_file(page, file)
            return [file]
        return save_page(page, folder, HEAT_MAP_NAME, formats)


def _draw_heat_map(axes: "Axes", heat_map: DevicesOverTime) -> None:
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


def _label_rows(axes: "Axes", heat_map: DevicesOverTime) -> None:
    rows = len(heat_map.devices)
    step = max(1, -(-rows // _MOST_ROW_LABELS))
    shown = range(0, rows, step)
    axes.set_ylim(rows, 0)
    axes.set_yticks([row + 0.5 for row in shown], [show_text(heat_map.devices[row])[:24] for row in shown])
    axes.set_ylabel("device")


def _explain_colours(heat_map: DevicesOverTime) -> str:
    has_holes = any(value is None for row in heat_map.values for value in row)
    return f"{heat_map.unit}{'; hatched: not measured' if has_holes else ''}"


def _annotate(axes: "Axes", heat_map: DevicesOverTime, mesh: "QuadMesh", highest: float) -> None:
    """Write the value into each cell, in black or white, whichever stands out more."""
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


# Curves on axes: a line of the highest values, and a band down to the lowest where columns hold several.

PLOT_COLUMNS = 640
"""Columns that can be distinguished on the width of a figure."""
_BAND_KEY = "line: highest\nband: down to lowest"


def draw_curves(axes: "Axes", curves: Mapping[str, Curve], scale: float = 1.0) -> None:
    """Draw curves by what they show, their values divided by a scale."""
    for name, curve in curves.items():
        _draw_curve(axes, _bound(curve), name, scale)


def draw_legend(axes: "Axes", curves: Mapping[str, Curve]) -> None:
    """Name lines, marks and bands next to the axes."""
    has_band = any(_bound(curve).has_band for curve in curves.values())
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        borderaxespad=0.4,
        title=_BAND_KEY if has_band else None,
        title_fontsize=6.5,
        alignment="left",
    )


def _draw_curve(axes: "Axes", curve: Curve, name: str, scale: float) -> None:
    import numpy as np

    style = LINES[name]
    times_s = np.asarray(curve.times_s)
    low, high = (np.asarray(values) / scale for values in (curve.low, curve.high))
    if curve.has_band:
        axes.fill_between(times_s, low, high, color=style.colour, alpha=0.22, linewidth=0, zorder=2)
    axes.plot(
        times_s,
        high,
        color=style.colour,
        linestyle=style.dashes,
        linewidth=style.width_pt,
        # A value between two breaks is a point, which a line alone would not show.
        marker="." if _has_lone_value(curve) else None,
        markersize=3,
        label=name,
        zorder=3,
    )


def _bound(curve: Curve) -> Curve:
    """Return a curve of no more columns than a figure can show."""
    if len(curve) <= PLOT_COLUMNS:
        return curve
    recorder = CurveRecorder(most_columns=PLOT_COLUMNS)
    for time_s, last, low, high in zip(curve.times_s, curve.last, curve.low, curve.high, strict=True):
        recorder.add(time_s, last, low, high)
    return recorder.curve()


def _has_lone_value(curve: Curve) -> bool:
    known = [False, *(not math.isnan(value) for value in curve.last), False]
    return any(known[at] and not known[at - 1] and not known[at + 1] for at in range(1, len(known) - 1))


# Findings on a figure: a line at their time and a mark whose shape and colour say of what kind they are.

_MOST_LINES = 40
"""Findings past this many have their mark, and no line through the figure."""
_MOST_IN_LEGEND = 6
_EDGE = 0.035
_ROW = 0.05
"""Shares of the height of the axes: above the first row of marks, and each row; a mark stays inside."""
_SIDE = 0.015
"""Share of the width of the axes that is left at either side, so that a mark at the end stays inside."""
_NAMES = {"oom_met": "out of memory", "oom": "forecast: out of memory"}


def make_marker(finding: Finding) -> Marker:
    from ...analyzers.out_of_memory import (
        SIZE,  # of the monitor, which figures of plans and sweeps do without
    )

    return Marker(
        time_s=finding.opened_s,
        severity=finding.severity,
        label=finding.kind,
        request_bytes=SIZE.read_count(finding),
    )


def find_failed_peak(marker: Marker, curves: Mapping[str, Curve]) -> int | None:
    """Return what would have been held if the request that failed had been met; None where it is not known.

    Args:
        curves: Of the device, by what they show; the first that was measured by then counts.
    """
    if marker.request_bytes is None:
        return None
    for name in ("allocated", "reserved", "used"):
        curve = curves.get(name)
        if curve is None:
            continue
        pairs = zip(curve.times_s, curve.high, strict=True)
        known = [value for time_s, value in pairs if time_s <= marker.time_s and value == value]  # noqa: PLR0124
        if known:
            return round(known[-1]) + marker.request_bytes
    return None


def make_room(markers: Iterable[Marker]) -> float:
    """Return by how much axes have to be higher so that these marks do not cover what is drawn."""
    rows = len({_find_kind(marker) for marker in markers})
    return 1 / (1 - _EDGE - _ROW * rows) if rows else 1.0


def widen(axes: "Axes", markers: Sequence[Marker]) -> None:
    """Leave room at both sides for marks at the ends of the axis of time."""
    if markers:
        start, end = axes.get_xlim()
        axes.set_xlim(start - _SIDE * (end - start), end + _SIDE * (end - start))


def draw_markers(
    axes: "Axes",
    markers: Sequence[Marker],
    top: float,
    peaks: Mapping[Marker, tuple[float, float]] | None = None,
) -> None:
    """Mark findings below the upper edge of the axes, each kind in a row of its own.

    Args:
        markers: The findings; one outside the time axis is drawn at its end.
        peaks: Of requests that failed: the allocated bytes, and the peak that was not reached, in data.
    """
    raised = peaks or {}
    start, end = axes.get_xlim()
    inside = _SIDE * (end - start)
    places = {marker: min(max(marker.time_s, start + inside / 2), end - inside / 2) for marker in markers}
    in_rows = (_find_kind(marker) for marker in markers if marker not in raised)
    rows = {kind: row for row, kind in enumerate(dict.fromkeys(in_rows))}
    groups: dict[tuple[str, str], list[Marker]] = {}
    for marker in markers:
        groups.setdefault((marker.label, marker.severity), []).append(marker)
    for marker in markers[:_MOST_LINES]:
        axes.axvline(places[marker], color=_find_style(marker).colour, linewidth=0.7, alpha=0.8, zorder=1.5)
    for marker, heights in raised.items():
        colour = _find_style(marker).colour
        at = places[marker]
        axes.plot([at, at], heights, color=colour, linestyle=(0, (1, 1)), linewidth=2.6, zorder=4)
    for number, group in enumerate(groups.values()):
        first = group[0]
        style = _find_style(first)
        row = rows.get(_find_kind(first), 0)
        at = top * (1 - _EDGE - _ROW * row)
        axes.scatter(
            [places[marker] for marker in group],
            [raised[marker][1] if marker in raised else at for marker in group],
            s=30,
            marker=style.shape,
            color=style.colour,
            edgecolors="white",
            linewidths=0.4,
            zorder=5,
            label=_name_group(group) if number < _MOST_IN_LEGEND else None,
        )


def _find_kind(marker: Marker) -> str:
    return marker.label if marker.label in MARKS else OTHER


def _find_style(marker: Marker) -> MarkStyle:
    return MARKS[_find_kind(marker)]


def _name_group(group: Sequence[Marker]) -> str:
    first = group[0]
    times = "" if len(group) == 1 else f" ×{len(group)}"
    name = _NAMES.get(first.label, first.label.replace("_", " "))
    asked = [marker.request_bytes for marker in group if marker.request_bytes is not None]
    refused = f"\n{format_bytes(max(asked))} refused: the mark\nis the peak that failed" if asked else ""
    return f"{name} ({first.severity}){times}{refused}"
