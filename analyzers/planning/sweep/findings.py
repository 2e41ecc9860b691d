"""All that a sweep says, in the order in which a person asks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from math import exp, log, log2
from statistics import median
from typing import NamedTuple

from ...sentence import count
from .model import (
    SweepCell,
    SweepFinding,
    SweepGrid,
    describe_best,
    explain_impossibility,
    list_places,
    name_cell,
    name_cells,
    show_gib,
)

# Memory as a sum of two parts, by least squares: what is divided by TP × PP, and what by TP alone.
#
# Weights and optimizer states are divided by both. The activations of the first stage are not: with PP
# times less of the layers it keeps up to PP micro-batches in flight (Narayanan et al., "Efficient Large-
# Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, section 2.2: the 1F1B
# schedule).

LEAST_CELLS = 3
# A theory that two parts describe less well than this is not the sum of the two.
_WORST_SHARE = 0.05


class TwoParts(NamedTuple):
    """The two parts, in bytes, that the memory of a whole model is made of; neither below zero."""

    # Divided by TP × PP.
    states_bytes: float
    # Divided by TP.
    activations_bytes: float
    # Largest error, as a share of the value it was fitted to.
    worst_share: float

    def predict(self, tp: int, pp: int) -> float:
        return self.states_bytes / (tp * pp) + self.activations_bytes / tp


def fit_two_parts(cells: Sequence[SweepCell], values: Sequence[float]) -> TwoParts | None:
    """Fit the two parts to bytes by TP and PP; None where the cells cannot separate the parts."""
    if len(cells) < LEAST_CELLS or len({cell.pp for cell in cells}) < 2:
        return None
    first = [1.0 / cell.gpus_per_replica for cell in cells]
    second = [1.0 / cell.tp for cell in cells]
    states, activations = solve_two(first, second, values)
    errors = [
        abs(states * a + activations * b - value) / value
        for a, b, value in zip(first, second, values, strict=True)
        if value > 0
    ]
    return TwoParts(states, activations, max(errors, default=0.0))


def solve_two(
    first: Sequence[float], second: Sequence[float], values: Sequence[float]
) -> tuple[float, float]:
    """Return the two weights, neither below zero, with which two columns come nearest to some values."""
    aa = _dot(first, first)
    bb = _dot(second, second)
    ab = _dot(first, second)
    ay = _dot(first, values)
    by = _dot(second, values)
    determinant = aa * bb - ab * ab
    alone = max(0.0, ay / aa if aa else 0.0), max(0.0, by / bb if bb else 0.0)
    if determinant > 1e-12 * aa * bb:
        both = (ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant
        if min(both) >= 0:
            return both
    # The best solution at the edge, where one of the two is zero.
    is_first = aa * alone[0] ** 2 >= bb * alone[1] ** 2
    return (alone[0], 0.0) if is_first else (0.0, alone[1])


def split_theory(cells: Sequence[SweepCell]) -> tuple[list[tuple[float, float]], str] | None:
    """Return states and activations of each cell according to the theory, and where they are from.

    The logs state them; else they are worked out of the theory's own values, as far as those are such a sum.
    """
    logged = [
        (float(cell.states_bytes), float(cell.activations_bytes))
        for cell in cells
        if cell.states_bytes is not None and cell.activations_bytes is not None
    ]
    if logged and len(logged) == len(cells):
        return logged, "from the logs"
    parts = fit_two_parts(cells, [float(cell.theory_bytes or 0) for cell in cells])
    if parts is None or parts.worst_share > _WORST_SHARE:
        return None
    split = [(parts.states_bytes / it.gpus_per_replica, parts.activations_bytes / it.tp) for it in cells]
    return split, "derived from how the theory changes with PP"


def _dot(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))


def find_all(grid: SweepGrid) -> tuple[SweepFinding, ...]:
    """Return the findings of a sweep: best, trends, failures, the theory's errors, what to try next."""
    described = (
        describe_best,
        describe_trends,
        describe_failures,
        describe_prediction,
        describe_recommendations,
    )
    return tuple(chain.from_iterable(describe(grid) for describe in described))


# A factor nearer to one than this is no change.
_FLAT = 0.05


class Trend(NamedTuple):
    """What doubling one degree does while the other stays."""

    # For each pair of neighbours, per doubling.
    factors: tuple[float, ...]

    @property
    def typical(self) -> float:
        return exp(sum(map(log, self.factors)) / len(self.factors))

    @property
    def direction(self) -> str:
        down = all(factor < 1 - _FLAT for factor in self.factors)
        up = all(factor > 1 + _FLAT for factor in self.factors)
        if all(abs(factor - 1) <= _FLAT for factor in self.factors):
            return "flat"
        return "down" if down else "up" if up else "mixed"


_WORDS = {
    "down": "memory falls as {what} grows: ",
    "up": "memory grows with {what}: ",
    "flat": "memory does not depend on {what}: ",
    "mixed": "memory both rises and falls as {what} grows: ",
}


def measure_trend(cells: list[SweepCell], *, is_along_pp: bool) -> Trend | None:
    """Return what doubling PP (or TP) does; None where no two cells differ in it alone."""

    def place(cell: SweepCell) -> tuple[bool, int]:
        return bool(cell.is_simulated), cell.tp if is_along_pp else cell.pp

    ordered = sorted(cells, key=lambda it: (place(it), it.pp if is_along_pp else it.tp))
    factors = []
    for _, group in groupby(ordered, key=place):
        for one, other in pairwise(group):
            steps = log2((other.pp if is_along_pp else other.tp) / (one.pp if is_along_pp else one.tp))
            if steps > 0 and one.actual_bytes and other.actual_bytes:
                factors.append((other.actual_bytes / one.actual_bytes) ** (1 / steps))
    return Trend(tuple(factors)) if factors else None


def describe_trends(grid: SweepGrid) -> Iterator[SweepFinding]:
    cells = list(grid.measured)
    for is_along_pp, what in ((True, "PP"), (False, "TP")):
        trend = measure_trend(cells, is_along_pp=is_along_pp)
        if trend is None:
            continue
        low = min(trend.factors)
        high = max(trend.factors)
        span = "" if len(trend.factors) == 1 else f" ({low:.2f} to {high:.2f}"
        span += f", {count(len(trend.factors), 'pair')} of neighbours)" if span else ""
        text = (
            f"{_WORDS[trend.direction].format(what=what)}doubling {what} multiplies it by {trend.typical:.2f}"
        )
        yield SweepFinding("trend", text + span, list_places(cells))


# Share of the device's memory that a recommended layout needs at most.
MOST_SHARE = 0.9
_MOST_LAYOUTS = 3
# TP beyond the GPUs of one node is slow (Narayanan et al., SC 2021, takeaway 1): not unless it was tried.
_LARGEST_TP = 8


def describe_recommendations(grid: SweepGrid) -> Iterator[SweepFinding]:
    measured = grid.measured
    parts = fit_two_parts(measured, [float(cell.actual_bytes or 0) for cell in measured])
    if parts is None:
        return
    limit_bytes = MOST_SHARE * grid.capacity_bytes
    candidates = [cell for cell in _list_candidates(grid) if parts.predict(cell.tp, cell.pp) <= limit_bytes]
    candidates.sort(key=lambda cell: (cell.gpus_per_replica, cell.tp))
    accuracy = f"{100 * parts.worst_share:.0f} %"
    basis = f"from {len(measured):,} measurements, which the estimate meets within {accuracy}"
    if not candidates:
        yield SweepFinding("recommendation", f"{_describe_no_candidates(grid)} ({basis})")
        return
    chosen = candidates[:_MOST_LAYOUTS]
    layouts = "; ".join(
        f"{name_cell(cell)}, about {show_gib(parts.predict(cell.tp, cell.pp))}"
        f"{', again: it failed for an unknown reason' if cell.state == 'failed' else ''}"
        for cell in chosen
    )
    yield SweepFinding("recommendation", f"try next: {layouts} ({basis})", list_places(chosen))


def _describe_no_candidates(grid: SweepGrid) -> str:
    least = min(cell.gpus_per_replica for cell in grid.measured)
    lean = [cell for cell in grid.measured if cell.gpus_per_replica == least]
    return (
        f"no untried layout is expected to need less than {100 * MOST_SHARE:.0f} % of the device; of those "
        f"that ran, {name_cells(lean)} divide the model least"
    )


def _list_candidates(grid: SweepGrid) -> Iterator[SweepCell]:
    """Yield untried layouts in the grid and one step around what ran, and failures without a cause."""
    known = {cell.place for cell in grid.cells}
    yield from (cell for cell in grid.in_state("not_run", "failed") if cell.cause is None)
    steps = ((2, 1), (1, 2))
    around = {
        place
        for cell in grid.measured
        for tp, pp in steps
        for place in ((cell.tp * tp, cell.pp * pp), (cell.tp // tp, cell.pp // pp))
    }
    largest_tp = max(_LARGEST_TP, *grid.tps)
    for tp, pp in sorted(around - known):
        is_near = 0 < tp <= largest_tp and pp > 0
        if is_near and explain_impossibility(tp, pp, grid) is None:
            yield SweepCell(tp=tp, pp=pp, state="not_run")


_MOST_CAUSES = 3


def describe_failures(grid: SweepGrid) -> Iterator[SweepFinding]:
    failed = [cell for cell in grid.cells if cell.has_failed]
    if not failed:
        return
    yield SweepFinding("failures", _count_states(grid, failed), list_places(failed))
    for degree in ("TP", "PP"):
        yield from _find_whole_lines(grid, degree)
    yield from _find_threshold(grid, failed)
    yield from _find_low_pp(grid)
    yield from _find_causes(failed)


def _count_states(grid: SweepGrid, failed: list[SweepCell]) -> str:
    tried = sum(cell.has_run or cell.has_failed for cell in grid.cells)
    of_memory = sum(cell.state == "oom" for cell in failed)
    unknown = sum(cell.state == "failed" and cell.cause is None for cell in failed)
    parts = [
        f"{number:,} {words}"
        for number, words in (
            (of_memory, "out of memory"),
            (len(failed) - of_memory - unknown, "for another reason"),
            (unknown, "for an unknown reason"),
        )
        if number
    ]
    return f"{len(failed):,} of {tried:,} layouts failed: {', '.join(parts)}"


def _find_whole_lines(grid: SweepGrid, degree: str) -> Iterator[SweepFinding]:
    """Yield the rows (or columns) in which everything that was tried failed, while others ran."""
    lines: dict[int, list[SweepCell]] = {}
    for cell in grid.cells:
        if cell.has_run or cell.has_failed:
            lines.setdefault(cell.tp if degree == "TP" else cell.pp, []).append(cell)
    lost = {
        at: cells for at, cells in lines.items() if len(cells) > 1 and not any(it.has_run for it in cells)
    }
    if not lost or len(lost) == len(lines):
        return
    cells = [cell for line in lost.values() for cell in line]
    values = ", ".join(map(str, sorted(lost)))
    yield SweepFinding(
        "failures", f"every layout with {degree} {values} failed ({len(cells):,})", list_places(cells)
    )


def _find_threshold(grid: SweepGrid, failed: list[SweepCell]) -> Iterator[SweepFinding]:
    """Yield the number of GPUs per replica that separates what ran from what failed, if there is one."""
    ran = [cell.gpus_per_replica for cell in grid.in_state("ok")]
    most = max(cell.gpus_per_replica for cell in failed)
    if ran and most < min(ran):
        text = f"every layout with TP × PP up to {most:,} failed, every one from {min(ran):,} on ran"
        yield SweepFinding("failures", text, list_places(failed))


def _find_low_pp(grid: SweepGrid) -> Iterator[SweepFinding]:
    """Yield from which PP on each TP runs, if all failures of the row are below it."""
    bounds = []
    below = []
    for tp in grid.tps:
        row = [cell for cell in grid.cells if cell.tp == tp]
        ran = [it.pp for it in row if it.has_run]
        failed = [it for it in row if it.has_failed]
        if not ran or not failed:
            continue
        if max(cell.pp for cell in failed) >= min(ran):
            return
        bounds.append(f"TP {tp} from PP {min(ran)} on")
        below += failed
    if bounds:
        yield SweepFinding("failures", f"low PP fails: {', '.join(bounds)} runs", list_places(below))


def _find_causes(failed: list[SweepCell]) -> Iterator[SweepFinding]:
    causes = Counter(cell.cause for cell in failed if cell.state == "failed" and cell.cause is not None)
    for cause, number in causes.most_common(_MOST_CAUSES):
        cells = [cell for cell in failed if cell.cause == cause]
        yield SweepFinding("failures", f"{count(number, 'layout')} failed by: {cause}", list_places(cells))


# How good the theory is: its signed errors, what it ruled out wrongly, which of its parts is to blame.

_LEAST_ERROR_PERCENT = 2.0
# One part is blamed where correcting it leaves this many times less error than correcting the other.
_LEAST_GAIN = 1.5
_LEAST_CELLS = 3


class PredictionErrors(NamedTuple):
    """Theory less measured, in percent of measured."""

    least: float
    # The median.
    typical: float
    most: float
    layouts: int


def measure_errors(cells: Iterable[SweepCell]) -> PredictionErrors | None:
    errors = [cell.error_percent for cell in cells if cell.error_percent is not None]
    return PredictionErrors(min(errors), median(errors), max(errors), len(errors)) if errors else None


def describe_prediction(grid: SweepGrid) -> Iterator[SweepFinding]:
    cells = [cell for cell in grid.measured if cell.error_percent is not None]
    errors = measure_errors(cells)
    if errors is None:
        return
    yield SweepFinding("prediction", _describe_errors(errors), list_places(cells))
    yield from _describe_misses(grid)
    yield from _describe_pp(cells)
    if max(-errors.least, errors.most) >= _LEAST_ERROR_PERCENT:
        yield from _blame(cells)


def _describe_errors(errors: PredictionErrors) -> str:
    low, typical, high, layouts = errors
    number = count(layouts, "layout")
    if low > 0 or high < 0:
        way = "too high" if low > 0 else "too low"
        small, large = sorted((abs(low), abs(high)))
        return (
            f"the theory is {way} in {'all ' if layouts > 1 else ''}{number}: by {small:.0f} to "
            f"{large:.0f} %, {abs(typical):.0f} % in the middle"
        )
    return (
        f"the theory errs both ways in {number}: from {low:+.0f} to {high:+.0f} %, {typical:+.0f} % in the "
        "middle"
    )


def _describe_misses(grid: SweepGrid) -> Iterator[SweepFinding]:
    wrong = [cell for cell in grid.cells if cell.is_mispredicted]
    capacity = show_gib(grid.capacity_bytes)
    if wrong:
        number = count(len(wrong), "layout")
        text = f"{number} ran although the theory said {capacity} or more: {name_cells(wrong)}"
        yield SweepFinding("prediction", text, list_places(wrong))
    passed = [
        cell
        for cell in grid.in_state("oom")
        if cell.theory_bytes is not None and cell.theory_bytes < grid.capacity_bytes
    ]
    if passed:
        number = count(len(passed), "layout")
        text = (
            f"{number} ran out of memory although the theory said less than {capacity}: {name_cells(passed)}"
        )
        yield SweepFinding("prediction", text, list_places(passed))


def _describe_pp(cells: list[SweepCell]) -> Iterator[SweepFinding]:
    by_pp: dict[int, list[float]] = {}
    for cell in cells:
        by_pp.setdefault(cell.pp, []).append(abs(cell.error_percent or 0.0))
    middles = [(pp, median(errors)) for pp, errors in sorted(by_pp.items())]
    if len(middles) < 2:
        return
    is_worse = all(later > earlier for (_, earlier), (_, later) in pairwise(middles))
    is_better = all(later < earlier for (_, earlier), (_, later) in pairwise(middles))
    if is_worse or is_better:
        both_errors = ", ".join(f"{error:.0f} % at PP {pp}" for pp, error in (middles[0], middles[-1]))
        yield SweepFinding(
            "prediction",
            f"the theory is {'less' if is_worse else 'more'} accurate at high PP: {both_errors}",
            list_places(cells),
        )


def _blame(cells: list[SweepCell]) -> Iterator[SweepFinding]:
    """Yield which part explains the errors: the one whose correction by one factor leaves less of them.

    What is left is the sum of squares of theory less measured, with one part multiplied by the factor, not
    below zero, that makes it least; as a share of what it is without a correction.
    """
    split = split_theory(cells) if len(cells) >= _LEAST_CELLS else None
    if split is None:
        return
    parts, origin = split
    actual = [float(cell.actual_bytes or 0) for cell in cells]
    states = [part[0] for part in parts]
    activations = [part[1] for part in parts]
    whole = sum((a + b - y) ** 2 for a, b, y in zip(states, activations, actual, strict=True))
    if not whole:
        return
    corrections = {
        "states (weights and optimizer)": _correct(states, activations, actual),
        "activations (what does not shrink with PP)": _correct(activations, states, actual),
    }
    (name, (factor, left)), (other, (other_factor, other_left)) = sorted(
        corrections.items(), key=lambda it: it[1][1]
    )
    if other_left < _LEAST_GAIN * left:
        return
    text = (
        f"its {name} explain the error: {factor:.2f} times as much of them leaves {100 * left / whole:.0f} % "
        f"of it; correcting the {other.partition(' (')[0]} instead, by {other_factor:.2f}, leaves "
        f"{100 * other_left / whole:.0f} % (squared; parts {origin})"
    )
    yield SweepFinding("prediction", text, list_places(cells))


def _correct(part: Sequence[float], rest: Sequence[float], actual: Sequence[float]) -> tuple[float, float]:
    """Return the factor of one part that fits what was measured best, and the squares that are left."""
    wanted = [y - b for b, y in zip(rest, actual, strict=True)]
    square = sum(a * a for a in part)
    factor = max(0.0, sum(a * w for a, w in zip(part, wanted, strict=True)) / square) if square else 0.0
    return factor, sum((factor * a - w) ** 2 for a, w in zip(part, wanted, strict=True))
