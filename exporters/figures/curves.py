"""Curves on axes: a line of the highest values, and a band down to the lowest where columns hold several."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .curve import Curve, CurveRecorder
from .style import LINES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLOT_COLUMNS = 640
"""Columns that can be told apart on the width of a figure."""
_BAND_KEY = "line: highest\nband: down to lowest"


def draw_curves(axes: "Axes", curves: Mapping[str, Curve], scale: float = 1.0) -> None:
    """Draw curves by what they show, their values divided by a scale."""
    for name, curve in curves.items():
        _draw_curve(axes, _bound(curve), name, scale)


def draw_legend(axes: "Axes", curves: Mapping[str, Curve]) -> None:
    """Name lines and marks beside the axes, and what the bands are where there are any."""
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
