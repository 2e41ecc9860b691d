"""Two runs of one device in a replay: the curve of each, and the error."""

from collections.abc import Sequence
from typing import NamedTuple

from ...engine.replay.simulated_run import (
    Curve,
    IterationComparison,
    RankComparison,
    SimulatedRank,
    describe_error,
    describe_mebibytes,
)
from ...engine.units import GIB
from ..draw.glyphs import Glyphs
from ..draw.graphs import dots_of, draw_history, history_levels
from ..draw.spans import Line, Role, Span, fit_line
from ..widgets.device_fields import GAP, join_facts
from ..widgets.replay_words import NO_PARTNER


def draw_curve(
    offsets_s: Sequence[float],
    values: Sequence[float],
    *,
    base: float,
    top: float,
    span_s: float,
    shape: tuple[int, int],
    glyphs: Glyphs,
    role: Role = "fill",
) -> list[Line]:
    """Return a filled curve of the shape (cells, rows); `base` is the value at the bottom.

    `offsets_s` are the moments, from 0 on and never decreasing, at which each value began to hold.
    """
    cells, rows = shape
    if cells <= 0 or rows <= 0:
        return []
    least, most = _cut(offsets_s, values, span_s, 2 * cells)
    lows = [None if low is None else max(0.0, low - base) for low in least]
    highs = [None if high is None else max(0.0, high - base) for high in most]
    levels = history_levels(lows, highs, max(1e-9, top - base), dots_of(rows, glyphs))
    return draw_history(levels, rows, glyphs, role)


def _cut(
    offsets_s: Sequence[float], values: Sequence[float], span_s: float, count: int
) -> tuple[list[float | None], list[float | None]]:
    """Return least and most of each bucket; a value holds until the next, and the last one to its bucket."""
    least: list[float | None] = [None] * count
    most: list[float | None] = [None] * count
    held: float | None = None
    at = 0
    for bucket in range(count):
        end_s = (bucket + 1) * span_s / count
        found = [] if held is None or at == len(values) else [held]
        while at < len(values) and (offsets_s[at] < end_s or bucket == count - 1):
            held = values[at]
            found.append(held)
            at += 1
        if found:
            least[bucket], most[bucket] = min(found), max(found)
    return least, most


# Cells of one curve; in less room there are only numbers.
LEAST_GRAPH_CELLS = 24
SCALE_CELLS = 10
# Curves get a time scale each if one is more than this many times longer.
MOST_STRETCH = 4.0


class _Frame(NamedTuple):
    """The scale of bytes that both curves share."""

    base: float
    top: float
    rows: int


def draw_comparison(
    compared: RankComparison | None, step: int | None, size: tuple[int, int], glyphs: Glyphs
) -> list[Line]:
    """Return the section of a rank in `size` (cells across, rows of the graph); empty without a simulation.

    `step` is the iteration of the moment that is shown.
    """
    if compared is None:
        return []
    width, rows = size
    if compared.simulated is None:
        return [[Span(f" Simulation: {NO_PARTNER}", "muted")]]
    head, _ = join_facts(_peak_facts(compared, compared.simulated), width - 2)
    iteration = compared.iteration(step)
    lines: list[Line] = [[Span(" "), *head]]
    if iteration is None:
        return lines
    found, _ = join_facts(_iteration_facts(compared, iteration), width - 2)
    lines.append([Span(" "), *found])
    return [*lines, *_draw_curves(iteration, compared.simulated.curve, (width, rows), glyphs)]


def _peak_facts(compared: RankComparison, simulated: SimulatedRank) -> list[Line]:
    error = "error unknown" if compared.error is None else f"error {describe_error(compared.error)}"
    facts: list[Line] = [
        [
            Span("real peak ", "muted"),
            Span(describe_mebibytes(compared.real_peak_bytes)),
            Span("   simulated peak ", "muted"),
            Span(describe_mebibytes(simulated.peak_bytes)),
        ],
        [Span(error, "strong")],
    ]
    for name, value in (("theoretical", simulated.theoretical_bytes), ("static", simulated.static_bytes)):
        if value is not None:
            facts.append([Span(f"simulated {name} ", "muted"), Span(describe_mebibytes(value))])
    return facts


def _iteration_facts(compared: RankComparison, iteration: IterationComparison) -> list[Line]:
    error = "" if iteration.error is None else f", error {describe_error(iteration.error)}"
    facts: list[Line] = [
        [
            Span(f"iteration {iteration.index:,} ", "muted"),
            Span(f"peak {describe_mebibytes(iteration.real_peak_bytes)}{error}"),
        ]
    ]
    errors = compared.errors
    if errors is not None and errors.iterations > 1:
        lowest = describe_error(errors.least)
        highest = describe_error(errors.most)
        text = lowest if lowest == highest else f"{lowest} to {highest}"
        facts.append([Span(f"all {errors.iterations:,} iterations ", "muted"), Span(text)])
    return facts


def _draw_curves(
    iteration: IterationComparison, simulated: Curve, size: tuple[int, int], glyphs: Glyphs
) -> list[Line]:
    """Return both curves next to each other on one scale of bytes, with their names above."""
    width, rows = size
    cells = (width - SCALE_CELLS - len(GAP.text) - 2) // 2
    values = [*iteration.real.allocated_bytes, *simulated.allocated_bytes]
    if cells < LEAST_GRAPH_CELLS or rows <= 0 or not values:
        return []
    lowest = float(min(values))
    highest = float(max(values))
    frame = _Frame(lowest - max(0.08 * (highest - lowest), 1.0), highest, rows)
    lasts_s = [it.offsets_s[-1] if len(it.offsets_s) else 0.0 for it in (iteration.real, simulated)]
    is_alike = max(lasts_s) <= MOST_STRETCH * min(lasts_s)
    spans_s = [max(lasts_s)] * 2 if is_alike else lasts_s
    named = f"real, iteration {iteration.index:,}" + (", most of each tick" if iteration.is_ticks else "")
    left = _draw_side(named, iteration.real, frame, (cells, spans_s[0]), "fill", glyphs)
    right = _draw_side("simulated", simulated, frame, (cells, spans_s[1]), "band", glyphs)
    scale = ["", f"{highest / GIB:.1f} GiB", *[""] * max(0, rows - 2), f"{frame.base / GIB:.1f}", ""]
    return [
        [Span("  "), *one, GAP, *other, Span(f" {label}", "faint")]
        for one, other, label in zip(left, right, scale, strict=False)
    ]


def _draw_side(
    name: str, curve: Curve, frame: _Frame, across: tuple[int, float], role: Role, glyphs: Glyphs
) -> list[Line]:
    cells, span_s = across
    rows = draw_curve(
        curve.offsets_s,
        curve.allocated_bytes,
        base=frame.base,
        top=frame.top,
        span_s=max(span_s, 1e-6),
        shape=(cells, frame.rows),
        glyphs=glyphs,
        role=role,
    )
    left = "0 "
    right = f" {span_s:.2f} s"
    rule = glyphs.rule * max(0, cells - len(left) - len(right))
    axis: Line = [Span(left, "muted"), Span(rule, "faint"), Span(right, "muted")]
    head = fit_line([Span("allocated, ", "muted"), Span(name, "strong")], cells)
    return [head, *rows, fit_line(axis, cells)]
