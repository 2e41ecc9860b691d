"""How good the theory is: its signed errors, what it ruled out wrongly, which of its parts is to blame."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from .model import SweepCell, SweepFinding, SweepGrid
from .parts import split_theory
from .words import count, list_places, name_cells, show_gib

_LEAST_ERROR_PERCENT = 2.0
_LEAST_GAIN = 1.5
"""One part is blamed where correcting it leaves this many times less error than correcting the other."""
_LEAST_CELLS = 3


class PredictionErrors(NamedTuple):
    """How much more the theory said than was measured, in percent of that."""

    least: float
    typical: float
    """The median."""
    most: float
    layouts: int
    """Of how many."""


def measure_errors(cells: Iterable[SweepCell]) -> PredictionErrors | None:
    """Return how far the theory is from what was measured, None where nothing can be compared."""
    errors = [cell.error_percent for cell in cells if cell.error_percent is not None]
    return PredictionErrors(min(errors), median(errors), max(errors), len(errors)) if errors else None


def describe_prediction(grid: SweepGrid) -> Iterator[SweepFinding]:
    """Yield how far the theory is from what was measured, and why."""
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
    """Yield what the theory ruled out and ran, and what it let pass and ran out of memory."""
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
    """Yield whether the theory becomes better or worse with PP."""
    by_pp: dict[int, list[float]] = {}
    for cell in cells:
        by_pp.setdefault(cell.pp, []).append(abs(cell.error_percent or 0.0))
    middles = [(pp, median(errors)) for pp, errors in sorted(by_pp.items())]
    if len(middles) < 2:
        return
    is_worse = all(later > earlier for (_, earlier), (_, later) in pairwise(middles))
    is_better = all(later < earlier for (_, earlier), (_, later) in pairwise(middles))
    if is_worse or is_better:
        told = ", ".join(f"{error:.0f} % at PP {pp}" for pp, error in (middles[0], middles[-1]))
        yield SweepFinding(
            "prediction",
            f"the theory is {'less' if is_worse else 'more'} accurate at high PP: {told}",
            list_places(cells),
        )


def _blame(cells: list[SweepCell]) -> Iterator[SweepFinding]:
    """Yield which part explains the errors: correcting it by one factor leaves less of them.

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
