"""What stands in a panel of memory by length: points, their law, crosses where memory ran out."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analyzers.length_law import LengthSeries
from ...engine.model.length_memory import LengthStudy
from ...engine.model.phase_memory import PrivacyMode
from ...engine.units import MIB
from .length_style import ALGORITHMS, LengthLook
from .style import INK, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    from .sweep_page import SweepPage

_LAW_STEPS = 96
_CROSS_FOOT, _CROSS_STEP = 0.05, 0.09
"""Height of the lowest cross, and from one algorithm's to the next, as shares of the panel."""
OUT_OF_MEMORY, PREDICTED = "out of memory", "as the law predicts"


def draw_series(axes: "Axes", series: LengthSeries, look: LengthLook) -> None:
    """Draw the points of one algorithm and its law, hollow where only the law speaks."""
    style = look.choose_algorithm(series.privacy, series.name)
    known = {
        length: value / MIB
        for length, value in zip(series.lengths, series.values_bytes, strict=True)
        if value is not None
    }
    if series.law is not None:
        lengths = _spread(series.lengths[0], series.lengths[-1])
        law = [series.law.predict(length) / MIB for length in lengths]
        axes.plot(lengths, law, color=style.colour, linestyle=style.dashes, linewidth=0.9, zorder=2)
    axes.plot(
        list(known),
        list(known.values()),
        color=style.colour,
        marker=style.shape,
        markersize=3.2,
        linestyle="none",
        zorder=3,
        label=series.privacy,
    )
    missing = {length: value / MIB for length, value in series.predicted_bytes.items()}
    axes.plot(
        list(missing),
        list(missing.values()),
        color=style.colour,
        marker=style.shape,
        markersize=3.6,
        markerfacecolor=PAPER,
        linestyle="none",
        zorder=3,
    )
    if look.style == "original":
        _write_values(axes, known)


def mark_out_of_memory(
    axes: "Axes", study: LengthStudy, drawn: Sequence[LengthSeries], look: LengthLook
) -> None:
    """Put a cross on the axis at each length whose run ran out of memory, a row an algorithm."""
    for row, series in enumerate(drawn):
        points = (study.find_point(series.privacy, length) for length in series.lengths)
        lengths = [
            point.seq_length
            for point in points
            if point is not None and point.run is not None and point.run.end == "out_of_memory"
        ]
        axes.plot(
            lengths,
            [_CROSS_FOOT + row * _CROSS_STEP] * len(lengths),
            color=look.choose_algorithm(series.privacy, series.name).colour,
            marker="x",
            markersize=4.5,
            markeredgewidth=1.2,
            linestyle="none",
            transform=axes.get_xaxis_transform(),
            zorder=4,
        )


def draw_key(page: "SweepPage", study: LengthStudy, look: LengthLook) -> None:
    """Say below the panels what lines and crosses are, where there are several or any."""
    handles = (
        [_make_handle(look, mode) for mode in study.privacy_modes] if len(study.privacy_modes) > 1 else []
    )
    if any(run.end == "out_of_memory" for run in study.runs):
        handles += [_make_mark("x", OUT_OF_MEMORY), _make_mark("o", PREDICTED)]
    if handles:
        page.legend(handles=handles, loc="outside lower center", ncols=len(handles), handlelength=2.8)


def _make_handle(look: LengthLook, mode: PrivacyMode) -> "Line2D":
    from matplotlib.lines import Line2D

    style = ALGORITHMS[mode]
    colour = style.colour if look.style == "usenix" else INK
    handle = Line2D([], [], color=colour, marker=style.shape, markersize=3.2, linewidth=0.9, label=mode)
    handle.set_linestyle(style.dashes)
    return handle


def _make_mark(shape: str, label: str) -> "Line2D":
    from matplotlib.lines import Line2D

    return Line2D(
        [], [], color=INK, marker=shape, markerfacecolor=PAPER, linestyle="none", markersize=4, label=label
    )


def _write_values(axes: "Axes", known: dict[int, float]) -> None:
    for length, value in known.items():
        axes.annotate(
            f"{value:,.1f}",
            (length, value),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=7,
            color=INK,
        )


def _spread(first: int, last: int) -> list[float]:
    """Return lengths from the first to the last, evenly on an axis of logarithms."""
    return [first * (last / first) ** (step / _LAW_STEPS) for step in range(_LAW_STEPS + 1)]
