"""How memory goes with TP and with PP: the factor of each doubling, from neighbours in the grid."""

from collections.abc import Iterator
from itertools import groupby, pairwise
from math import exp, log, log2
from typing import NamedTuple

from .model import SweepCell, SweepFinding, SweepGrid
from .words import count, list_places

_FLAT = 0.05
"""A factor that is nearer to one than this is no change."""


class Trend(NamedTuple):
    """What doubling one degree does while the other stays."""

    factors: tuple[float, ...]
    """Of each pair of neighbours, one doubling's worth."""

    @property
    def typical(self) -> float:
        """Their geometric mean."""
        return exp(sum(map(log, self.factors)) / len(self.factors))

    @property
    def direction(self) -> str:
        """Which way it goes, in a word; `mixed` where neighbours disagree."""
        down, up = (
            all(factor < 1 - _FLAT for factor in self.factors),
            all(factor > 1 + _FLAT for factor in self.factors),
        )
        if all(abs(factor - 1) <= _FLAT for factor in self.factors):
            return "flat"
        return "down" if down else "up" if up else "mixed"


_WORDS = {
    "down": "memory falls as {what} grows: ",
    "up": "memory grows with {what}: ",
    "flat": "memory does not depend on {what}: ",
    "mixed": "memory goes both ways as {what} grows: ",
}


def measure_trend(cells: list[SweepCell], *, is_along_pp: bool) -> Trend | None:
    """Return what doubling PP (or TP) does, None where no two cells differ in it alone."""

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
    """Yield how memory goes with PP and with TP."""
    cells = list(grid.measured)
    for is_along_pp, what in ((True, "PP"), (False, "TP")):
        trend = measure_trend(cells, is_along_pp=is_along_pp)
        if trend is None:
            continue
        low, high = min(trend.factors), max(trend.factors)
        span = "" if len(trend.factors) == 1 else f" ({low:.2f} to {high:.2f}"
        span += f", {count(len(trend.factors), 'pair')} of neighbours)" if span else ""
        text = (
            f"{_WORDS[trend.direction].format(what=what)}doubling {what} multiplies it by {trend.typical:.2f}"
        )
        yield SweepFinding("trend", text + span, list_places(cells))
