"""Of all splits that exceed no limit: the one of least sum of squared stage costs, then of the earliest cuts.

A dynamic programme from the last stage to the first, over the windows in which a stage can start. Squares of
sums satisfy the quadrangle inequality (F. Yao, "Efficient dynamic programming using quadrangle inequalities",
STOC 1980), also with a limit: as the start moves back, an end once overtaken by an earlier one never wins
again. So the ends worth keeping form a queue, and a state costs a few steps however wide the window is.
Integers have any size in Python: squares of bytes are exact.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from .alike_layers import choose_even_ends, find_stops, share_evenly
from .stage import Stage

_Values = Sequence[int | None]
"""Least sum of squares from each start of a window on; None where no split exists."""
_FEW = 64
"""Starts times ends up to which trying all is quicker than keeping a queue."""


def break_tie(stages: Sequence[Stage], windows: Sequence[range], most: int) -> tuple[int, ...]:
    """Return the positions at which the stages begin, and the end: one more than stages.

    Args:
        stages: In the order of the pipeline.
        windows: Where each stage may start; the last entry is the end of all layers alone. The first is 0
            alone.
        most: Limit on the cost of each stage; some split within the windows keeps to it.
    """
    return _choose(stages, windows, most, range(len(stages) + 1))


def break_tie_of_alike(stage: Stage, windows: Sequence[range], most: int) -> tuple[int, ...]:
    """Return the same where all stages pay alike: quickly, where many layers cost the same.

    Args:
        stage: What each of them pays.
        windows: As `find_windows` has them: from each start some split exists.
        most: As above.
    """
    return _choose([stage] * (len(windows) - 1), windows, most, find_stops(stage.costs, windows))


def _choose(
    stages: Sequence[Stage], windows: Sequence[range], most: int, stops: Sequence[int]
) -> tuple[int, ...]:
    """Return where the stages begin, of which those between two stops share layers of one cost evenly."""
    values: _Values = [0]
    choices: list[list[int]] = []
    hops = list(pairwise(stops))
    for first, after in reversed(hops):
        starts, ends, stage = windows[first], windows[after], stages[first]
        if after > first + 1:
            known, cost = cast("Sequence[int]", values), stage.costs[starts.start]
            values, chosen = choose_even_ends(after - first, cost, starts, ends, known, most)
        elif len(starts) == 1 or len(starts) * len(ends) <= _FEW:
            values, chosen = _try_ends(stage, starts, ends, values, most)
        else:
            values, chosen = _choose_ends(stage, starts, ends, values, most)
        choices.append(chosen)
    bounds = [0]
    for (first, after), chosen in zip(hops, reversed(choices), strict=True):
        end = chosen[bounds[-1] - windows[first].start]
        if after > first + 1:
            bounds += share_evenly(bounds[-1], end, after - first)[:-1]
        bounds.append(end)
    return tuple(bounds)


def _try_ends(
    stage: Stage, starts: range, ends: range, values: _Values, most: int
) -> tuple[_Values, list[int]]:
    """Return what `_choose_ends` does, by trying all."""
    before, first, last = stage.before, ends.start, ends[-1]
    best_values: list[int | None] = []
    best_ends: list[int] = []
    for start in starts:
        best, chosen, at = None, first, before[start]
        for end in range(max(first, start + 1), min(last, stage.reach(start, most)) + 1):
            value = values[end - first]
            if value is not None:
                cost = before[end] - at
                total = value + cost * cost
                if best is None or total < best:
                    best, chosen = total, end
        best_values.append(best)
        best_ends.append(chosen)
    return best_values, best_ends


def _choose_ends(
    stage: Stage, starts: range, ends: range, values: _Values, most: int
) -> tuple[_Values, list[int]]:
    """Return for each start the least sum of squares from there on, and the first end that attains it."""
    before, first, end = stage.before, ends.start, ends.stop - 1
    lost = [stage.lose(each, most, starts) for each in ends]
    queue = _Queue(before, starts)
    queued, since, add = queue.ends, queue.since, queue.add
    best_values: list[int | None] = []
    best_ends: list[int] = []
    head = 0
    for start in reversed(starts):
        while end > start and end >= first:
            value = values[end - first]
            if value is not None:
                add(end, value, lost[end - first], head)
            end -= 1
        while head + 1 < len(since) and since[head + 1] >= start:
            head += 1
        best = queued[head] if queued else first
        value = values[best - first]
        if best <= start or value is None or lost[best - first] >= start:
            best_values.append(None)
        else:
            cost = before[best] - before[start]
            best_values.append(value + cost * cost)
        best_ends.append(best)
    return best_values[::-1], best_ends[::-1]


class _Queue:
    """Ends of a stage in the order in which they become best while its start moves back."""

    def __init__(self, before: Sequence[int], starts: range) -> None:
        self._before, self._low, self._high = before, starts.start, starts.stop
        self.ends: list[int] = []
        self.since: list[int] = []
        """Largest start at which each end is as good as the one ahead of it."""
        self._totals: list[int] = []
        """Least sum of squares behind each end, and the square of the sum before it."""
        self._lost: list[int] = []
        """Largest start from which each end is too far."""

    def add(self, end: int, value: int, lost: int, head: int) -> None:
        """Add an end that lies before all others.

        Args:
            end: Its position.
            value: Least sum of squares behind it.
            lost: Largest start from which it is too far.
            head: Place of the end that is best; those ahead of it are not looked at again.
        """
        before, ends, since, totals = self._before, self.ends, self.since, self._totals
        low, high = self._low, self._high
        overtakes, at = high, before[end]
        total = value + at * at
        while len(ends) > head:
            width, ahead = before[ends[-1]] - at, totals[-1] - total
            if width:
                overtakes = bisect_right(before, ahead // (2 * width), low, high) - 1
            else:
                overtakes = high if ahead >= 0 else -1
            overtakes = max(overtakes, self._lost[-1])
            if len(ends) == head + 1 or overtakes < since[-1]:
                break
            del ends[-1], since[-1], totals[-1], self._lost[-1]
        ends.append(end)
        since.append(overtakes)
        totals.append(total)
        self._lost.append(lost)
