"""What frames every figure: title, axis of time, and a plain sentence where there is nothing to draw."""

from typing import TYPE_CHECKING

from .model import FigureClock
from .style import INK, UNMEASURED_INK
from .time_axis import make_time_axis

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_TITLE = 100


def title_axes(axes: "Axes", title: str, subtitle: str) -> None:
    """Say what is drawn, and under it what the figures are of."""
    axes.set_title(title, fontweight="bold", color=INK, pad=16 if subtitle else 6)
    if subtitle:
        short = subtitle if len(subtitle) <= _MOST_TITLE else f"{subtitle[: _MOST_TITLE - 1]}…"
        axes.annotate(
            short,
            (0, 1),
            xytext=(0, 6),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=7,
            color=INK,
            annotation_clip=False,
        )


def frame_time(axes: "Axes", start_s: float, end_s: float, clock: FigureClock) -> None:
    """Set limits, ticks and title of the axis of time."""
    if end_s <= start_s:
        start_s = start_s - 0.5
        end_s = end_s + 0.5
    axes.set_xlim(start_s, end_s)
    axis = make_time_axis(start_s, end_s, clock)
    axes.set_xticks(axis.ticks_s, axis.labels)
    axes.set_xlabel(axis.title)


def say_unmeasured(axes: "Axes", reason: str) -> None:
    """Write where a curve would be that there is none, and why."""
    axes.set_axis_off()
    axes.text(
        0.5,
        0.5,
        "not measured" + (f"\n{reason}" if reason else ""),
        ha="center",
        va="center",
        color=UNMEASURED_INK,
        fontsize=11,
        transform=axes.transAxes,
        wrap=True,
    )
