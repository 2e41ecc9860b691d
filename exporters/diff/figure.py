"""Figure of two runs over each other, and under them how far they are apart."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyzers.comparison import FIGURE_WORDS, Comparison, Curves, Figure, SubjectDifference
from ...analyzers.comparison.model import say_position
from ...engine.units import GIB, MIB
from ..figures.canvas import open_page, save_file, show_text
from ..figures.curve import Curve, CurveRecorder
from ..figures.curves import draw_curves, draw_legend
from ..figures.frame import frame_time, say_unmeasured, title_axes
from ..figures.style import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT_IN = 4.6
_PANELS = (2, 1)
"""Heights of both runs and of their difference."""
_HEADROOM = 1.06


def draw_difference(comparison: Comparison, path: Path) -> None:
    """Draw the rank or device that parts first, or the first one, in the figure that says most.

    Args:
        comparison: What was found.
        path: The file, whose name ends in `.pdf`, `.png` or `.svg`.

    Raises:
        OutputFileError: The folder is missing or cannot be written to.
    """
    with open_page(HEIGHT_IN) as page:
        told = comparison.difference
        place = next((at for at, each in enumerate(told.subjects) if each.name == told.first), 0)
        subject = told.subjects[place] if told.subjects else None
        shown = None if subject is None else subject.shown
        if subject is None or shown is None:
            axes = page.add_subplot()
            title_axes(axes, "Two runs", show_text(told.verdict))
            say_unmeasured(axes, "no figure was measured in both")
        else:
            above, below = page.subplots(2, 1, sharex=True, height_ratios=_PANELS)
            title = f"{subject.name}: {FIGURE_WORDS[shown.figure]} of A, {told.a.file}, and B, {told.b.file}"
            title_axes(above, show_text(title), show_text(told.verdict))
            _draw(above, below, subject, comparison.curves[place], shown.figure)
        save_file(page, path)


def _draw(above: "Axes", below: "Axes", subject: SubjectDifference, curves: Curves, figure: Figure) -> None:
    a = curves.a[figure]
    b = curves.b[figure]
    apart = [None if one is None or other is None else other - one for one, other in zip(a, b, strict=True)]
    most = max((value for value in (*a, *b) if value is not None), default=0.0)
    scale, unit = (GIB, "GiB") if most >= GIB else (MIB, "MiB")
    runs = {"A": _make_curve(curves, a), "B": _make_curve(curves, b)}
    draw_curves(above, runs, scale)
    above.set_ylim(0, max(most / scale * _HEADROOM, 1e-3))
    above.set_ylabel(f"memory, {unit}")
    difference = {"B less A": _make_curve(curves, apart)}
    noise = next(each.noise_bytes for each in subject.figures if each.figure == figure) / scale
    below.axhspan(-noise, noise, color=FAINT, linewidth=0, zorder=1, label="noise")
    below.axhline(0, color=INK, linewidth=0.5, zorder=2)
    draw_curves(below, difference, scale)
    below.set_ylabel(f"B less A, {unit}")
    _mark_parting(above, below, subject)
    _frame(below, subject, curves)
    draw_legend(above, runs)
    draw_legend(below, difference)


def _make_curve(curves: Curves, values: Sequence[float | None]) -> Curve:
    recorder = CurveRecorder()
    for position, value in zip(curves.positions, values, strict=True):
        recorder.add(position, value)
    return recorder.curve()


def _mark_parting(above: "Axes", below: "Axes", subject: SubjectDifference) -> None:
    shown = subject.shown
    if shown is None or shown.parts_at is None:
        return
    label = f"they part:\n{say_position(shown.parts_at, subject.aligned_by)}"
    for axes in (above, below):
        axes.axvline(
            shown.parts_at,
            color=INK,
            linewidth=0.8,
            linestyle=(0, (2, 2)),
            zorder=4,
            label=label if axes is above else None,
        )


def _frame(axes: "Axes", subject: SubjectDifference, curves: Curves) -> None:
    start = curves.positions[0]
    end = curves.positions[-1]
    if subject.aligned_by == "time":
        frame_time(axes, start, end, "trace")
        axes.set_xlabel(axes.get_xlabel().replace("time,", "time since the start,"))
        return
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(start - 0.5, max(end, start) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
    axes.set_xlabel("step")
    if math.isclose(start, end):
        axes.set_xticks([start])
