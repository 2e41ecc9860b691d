"""The difference of two runs as text and as a figure."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyzers.diff import (
    FIGURE_WORDS,
    Comparison,
    Curves,
    Figure,
    FigureDifference,
    FoundOnce,
    RunDifference,
    RunFacts,
    SubjectDifference,
)
from ...analyzers.diff.model import OUT_OF_MEMORY, say_percent, say_position, say_signed, say_times
from ...analyzers.sentence import count
from ...engine.text import make_printable
from ...engine.units import GIB, MIB, format_age, format_bytes
from ..annotations import MOST_SHOWN, Annotation, Level
from ..figures.charts import draw_curves, draw_legend
from ..figures.model import Curve, CurveRecorder
from ..figures.style import (
    FAINT,
    INK,
    frame_time,
    open_page,
    save_file,
    say_unmeasured,
    show_text,
    title_axes,
)
from ..text import UNKNOWN, format_rows, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# A comparison of two runs as plain text.

MOST_WITH_ALL_FIGURES = 4
"""Ranks and devices up to which every metric is printed; of more only the one that differs most."""
MOST_ROWS = 64
"""Ranks and devices that are printed; the JSON has all."""
MOST_NAMES = 8
_HEADING = ("who", "diverge at", "metric", "A", "B", "B - A", "%", "at the end", "noise up to")
_ALIGNMENT = "lllrrrrrr"


def describe_difference(comparison: Comparison, width: int) -> str:
    told = comparison.difference
    lines = [*_describe_runs(told, width), "", *wrap(told.verdict, width), ""]
    lines += format_rows([_HEADING, *_list_rows(told)], _ALIGNMENT, width) if told.subjects else []
    hidden = len(told.subjects) - MOST_ROWS
    lines += [f"  and {hidden:,} more, which --json lists"] if hidden > 0 else []
    lines += [line for sentence in describe_rest(told) for line in wrap(sentence, width)]
    return "".join(f"{make_printable(line)}\n" for line in lines)


def annotate_difference(comparison: Comparison, *, is_crossed: bool) -> Iterator[Annotation]:
    """Yield the verdict, then each rank or device whose memory grew, the first to differ first.

    Args:
        is_crossed: Whether they differ by more than was allowed: the verdict and what grew are errors.
    """
    told = comparison.difference
    level: Level = "error" if is_crossed else "warning"
    shown = [(told.subjects[place], told.subjects[place].shown) for place in order_subjects(told.subjects)]
    grown = [
        (subject, figure)
        for subject, figure in shown
        if figure is not None and figure.parts_at is not None and figure.difference_bytes > 0
    ]
    errors = [each for each in told.found_only_in_b if each.kind == OUT_OF_MEMORY]
    is_shown = is_crossed or grown or errors
    yield Annotation(level if is_shown else "notice", f"{told.b.file} against {told.a.file}", told.verdict)
    for each in errors:
        yield Annotation("error", each.subject or told.b.file, describe_found(each, told))
    for subject, figure in grown[: MOST_SHOWN - 1]:
        start = "the start" if figure.is_from_start else say_position(figure.parts_at, subject.aligned_by)
        yield Annotation(
            level,
            f"{subject.name}: {FIGURE_WORDS[figure.figure]} grew by {format_bytes(figure.difference_bytes)}",
            f"{format_bytes(figure.a_bytes)} in {told.a.file}, {format_bytes(figure.b_bytes)} in "
            f"{told.b.file}, from {start} on",
        )


def describe_rest(told: RunDifference) -> Iterator[str]:
    """Yield further facts, a sentence each: how the runs were aligned, what is in one run only."""
    yield describe_alignment(told)
    yield from _describe_pace(told.subjects)
    for run, names in (("A", told.only_in_a), ("B", told.only_in_b)):
        if names:
            yield f"only in {run}, and not compared: {_list_names(names)}"
    for run, found in (("A", told.found_only_in_a), ("B", told.found_only_in_b)):
        for each in found:
            yield f"found in {run} only: {describe_found(each, told)}"
    for run, facts in (("A", told.a), ("B", told.b)):
        if facts.restarts:
            yield f"{run} was restarted {count(facts.restarts, 'time')}: steps that ran twice count once"
        yield from (f"{run}: {note}" for note in facts.notes)


def describe_alignment(told: RunDifference) -> str:
    """Return by what the runs were aligned, and why by time."""
    if told.aligned_by == "step":
        return "aligned by step" + ("" if told.bin_width <= 1 else f", {told.bin_width:,.0f} at a time")
    why = "" if told.aligned_because is None else f": {told.aligned_because}"
    return f"aligned by seconds since the first sample{why}"


def describe_run(facts: RunFacts) -> str:
    steps = "" if facts.last_step is None else f", steps {facts.first_step:,} to {facts.last_step:,}"
    who = "1 rank or device" if facts.subjects == 1 else f"{facts.subjects:,} ranks or devices"
    made = ", simulated" if facts.is_simulated else ""
    return f"{facts.format}{made}, {who}{steps}, {format_age(facts.duration_s)}"


def describe_found(each: FoundOnce, told: RunDifference) -> str:
    where = "" if each.at is None else f" ({say_position(each.at, told.aligned_by)})"
    return f"{each.title}{where}"


def order_subjects(subjects: Sequence[SubjectDifference]) -> list[int]:
    """Return the places of ranks and devices as a list shows them: who diverges first, and most, comes
    first."""

    def order(place: int) -> tuple[bool, bool, float, int, int]:
        shown = subjects[place].shown
        is_apart = shown is not None and shown.parts_at is not None
        start = shown.parts_at if shown is not None and shown.parts_at is not None else 0.0
        return not is_apart, shown is None, start, -subjects[place].capital_bytes, place

    return sorted(range(len(subjects)), key=order)


def _describe_runs(told: RunDifference, width: int) -> list[str]:
    runs = (("A", told.a), ("B", told.b))
    return [
        line for run, facts in runs for line in wrap(f"{run}  {facts.file}: {describe_run(facts)}", width)
    ]


def _list_rows(told: RunDifference) -> Iterator[Sequence[str]]:
    has_all = len(told.subjects) <= MOST_WITH_ALL_FIGURES
    for place in order_subjects(told.subjects)[:MOST_ROWS]:
        subject = told.subjects[place]
        shown = subject.shown
        figures = subject.figures if has_all or shown is None else (shown,)
        if not figures:
            yield (subject.name, UNKNOWN, "nothing measured in both", *[UNKNOWN] * 6)
        for number, figure in enumerate(figures):
            yield (subject.name if number == 0 else "", *_list_cells(subject, figure))


def _list_cells(subject: SubjectDifference, figure: FigureDifference) -> Iterator[str]:
    yield "the start" if figure.is_from_start else say_position(figure.parts_at, subject.aligned_by)
    yield FIGURE_WORDS[figure.figure]
    yield format_bytes(figure.a_bytes)
    yield format_bytes(figure.b_bytes)
    yield say_signed(figure.difference_bytes)
    yield (
        UNKNOWN
        if figure.difference_percent is None
        else say_percent(figure.difference_percent).removesuffix(" %")
    )
    yield say_signed(figure.final_difference_bytes)
    yield format_bytes(figure.noise_bytes)


def _describe_pace(subjects: Sequence[SubjectDifference]) -> Iterator[str]:
    """Yield how long steps took, of the rank with the largest difference."""
    known = [
        (each.name, each.a_step_s, each.b_step_s) for each in subjects if each.a_step_s and each.b_step_s
    ]
    if not known:
        return
    name, a_s, b_s = max(known, key=lambda each: abs(each[2] / each[1] - 1))
    percent = 100 * (b_s / a_s - 1)
    apart = say_times(percent) or f"{percent:+.0f} %"
    yield f"a step of {name} takes {a_s:.3g} s in A, {b_s:.3g} s in B ({apart})"


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


# Figure of two runs over each other, and under them how far they are apart.

HEIGHT_IN = 4.6
_PANELS = (2, 1)
"""Heights of both runs and of their difference."""
_HEADROOM = 1.06


def draw_difference(comparison: Comparison, path: Path) -> None:
    """Draw the rank or device that diverges first, or the first one, in the metric that differs most.

    Args:
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
            say_unmeasured(axes, "nothing was measured in both")
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
    difference = {"B - A": _make_curve(curves, apart)}
    noise = next(each.noise_bytes for each in subject.figures if each.figure == figure) / scale
    below.axhspan(-noise, noise, color=FAINT, linewidth=0, zorder=1, label="noise")
    below.axhline(0, color=INK, linewidth=0.5, zorder=2)
    draw_curves(below, difference, scale)
    below.set_ylabel(f"B - A, {unit}")
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
    label = f"they diverge at\n{say_position(shown.parts_at, subject.aligned_by)}"
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
