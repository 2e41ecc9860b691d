"""All that a sweep says, in the order in which a person asks."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, groupby, pairwise
from math import exp, log, log2
from typing import NamedTuple

from .best import describe_best
from .model import SweepCell, SweepFinding, SweepGrid
from .parts import TwoParts, fit_two_parts
from .prediction import describe_prediction
from .states import explain_impossibility
from .words import count, list_places, name_cell, name_cells, show_gib


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
        down = all(factor < 1 - _FLAT for factor in self.factors)
        up = all(factor > 1 + _FLAT for factor in self.factors)
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
        low = min(trend.factors)
        high = max(trend.factors)
        span = "" if len(trend.factors) == 1 else f" ({low:.2f} to {high:.2f}"
        span += f", {count(len(trend.factors), 'pair')} of neighbours)" if span else ""
        text = (
            f"{_WORDS[trend.direction].format(what=what)}doubling {what} multiplies it by {trend.typical:.2f}"
        )
        yield SweepFinding("trend", text + span, list_places(cells))


MOST_SHARE = 0.9
"""Of the device's memory, that a recommended layout is to need at most."""
_MOST_LAYOUTS = 3
_LARGEST_TP = 8
"""TP beyond the GPUs of one node is slow (Narayanan et al., SC 2021, takeaway 1): not unless it was tried."""


def describe_recommendations(grid: SweepGrid) -> Iterator[SweepFinding]:
    """Yield what to try next, or why nothing is recommended."""
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
        yield SweepFinding("recommendation", f"{_say_nothing_left(grid)} ({basis})")
        return
    chosen = candidates[:_MOST_LAYOUTS]
    told = "; ".join(_describe(cell, parts) for cell in chosen)
    yield SweepFinding("recommendation", f"try next: {told} ({basis})", list_places(chosen))


def _describe(cell: SweepCell, parts: TwoParts) -> str:
    again = ", again: it failed and no cause is told" if cell.state == "failed" else ""
    return f"{name_cell(cell)}, about {show_gib(parts.predict(cell.tp, cell.pp))}{again}"


def _say_nothing_left(grid: SweepGrid) -> str:
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
    """Yield how many failed and of what, and the patterns in where they did."""
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
            (len(failed) - of_memory - unknown, "for another cause"),
            (unknown, "with no cause told"),
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
    """Yield the number of GPUs a replica that parts what ran from what failed, where one does."""
    ran = [cell.gpus_per_replica for cell in grid.in_state("ok")]
    most = max(cell.gpus_per_replica for cell in failed)
    if ran and most < min(ran):
        text = f"every layout with TP × PP up to {most:,} failed, every one from {min(ran):,} on ran"
        yield SweepFinding("failures", text, list_places(failed))


def _find_low_pp(grid: SweepGrid) -> Iterator[SweepFinding]:
    """Yield from which PP on each TP runs, where all that failed in the row stand below."""
    told = []
    below = []
    for tp in grid.tps:
        row = [cell for cell in grid.cells if cell.tp == tp]
        ran = [it.pp for it in row if it.has_run]
        failed = [it for it in row if it.has_failed]
        if not ran or not failed:
            continue
        if max(cell.pp for cell in failed) >= min(ran):
            return
        told.append(f"TP {tp} from PP {min(ran)} on")
        below += failed
    if told:
        yield SweepFinding("failures", f"low PP fails: {', '.join(told)} runs", list_places(below))


def _find_causes(failed: list[SweepCell]) -> Iterator[SweepFinding]:
    """Yield the most frequent causes other than memory."""
    causes = Counter(cell.cause for cell in failed if cell.state == "failed" and cell.cause is not None)
    for cause, number in causes.most_common(_MOST_CAUSES):
        cells = [cell for cell in failed if cell.cause == cause]
        yield SweepFinding("failures", f"{count(number, 'layout')} failed by: {cause}", list_places(cells))
