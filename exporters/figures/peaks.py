"""Figure of the peaks: the most that each device ever had allocated, reserved and used, and its capacity."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...engine.units import GIB, MIB
from .canvas import open_page, save_page, show_text
from .frame import say_unmeasured, title_axes
from .model import FORMATS, FigureFormat, Peaks
from .style import LINES, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "memory_peaks"
_BARS = ("allocated", "reserved", "used")
_HATCHES = {"allocated": "", "reserved": "////", "used": "...."}
_BAR = 0.27
_GROUP = 0.81
"""Heights of a bar and of a device's bars, where the next device is 1 further down."""
_MOST_LABELS = 32
"""Devices past this many have every so many named."""
_MOST_TOLD = 16
"""Devices past this many have no figure at the end of their bars."""
_ROW_IN = 0.5
_FRAME_IN = 1.1
_LEAST_HEIGHT_IN = 2.0
_MOST_HEIGHT_IN = 9.0
_HEADROOM = 1.12


def plot_peaks(peaks: Peaks, folder: Path, formats: Sequence[FigureFormat] = FORMATS) -> list[Path]:
    """Draw the peaks of all devices as `memory_peaks.{png,pdf}` and return the files.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    height_in = _FRAME_IN + _ROW_IN * len(peaks.devices)
    with open_page(min(_MOST_HEIGHT_IN, max(_LEAST_HEIGHT_IN, height_in))) as page:
        axes = page.add_subplot()
        title_axes(axes, "peak memory of each device", show_text(peaks.subtitle))
        if any(value is not None for name in _BARS for value in peaks.of(name)):
            _draw(axes, peaks)
        else:
            say_unmeasured(axes, "no figure of memory in this input")
        return save_page(page, folder, NAME, formats)


def _draw(axes: "Axes", peaks: Peaks) -> None:
    known = [value for name in (*_BARS, "capacity") for value in peaks.of(name) if value is not None]
    scale, unit = (GIB, "GiB") if max(known) >= GIB else (MIB, "MiB")
    for number, name in enumerate(_BARS):
        _draw_bars(axes, peaks, name, number, scale)
    _draw_capacity(axes, peaks, scale)
    count = len(peaks.devices)
    step = -(-count // _MOST_LABELS)
    axes.set_yticks(range(0, count, step), [show_text(peaks.devices[at]) for at in range(0, count, step)])
    axes.set_ylim(count - 0.5, -0.5)
    axes.set_xlim(0, max(known) / scale * _HEADROOM)
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
    # What tells unmeasured cells apart elsewhere would not be seen on a bar; the page restores the settings.
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
    if len(peaks.devices) <= _MOST_TOLD:
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
