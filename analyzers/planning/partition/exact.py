"""Exact splits of a row of layers into contiguous pipeline stages.

Each returns the split whose dearest stage is cheapest; ties are broken by the least sum of squared stage
costs, then by the earliest first cut, then the second, and so on. Costs are integers, so that equal
means equal. The order of stages is fixed: with stages of different speed in free order the problem is
NP-complete (A. Pinar, E. Tabak and C. Aykanat, "One-dimensional partitioning for heterogeneous systems", JPDC
68, 2008).
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import gcd, lcm
from operator import add
from typing import cast

import msgspec

from ....engine.errors import UsageError
from .stages import (
    Stage,
    check_stages,
    ends_at,
    find_least_maximum,
    find_windows,
    make_room,
    make_stage,
    reach_backward,
    reach_forward,
)


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A row of layers cut into contiguous stages."""

    # First layer of each stage, and the number of layers: one entry more than stages.
    bounds: tuple[int, ...]
    # Cost of each stage, in the unit of the layers' costs.
    costs: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(end - start for start, end in pairwise(self.bounds))

    @property
    def maximum(self) -> int:
        return max(self.costs)


def split_exactly(costs: Sequence[int], stages: int) -> Split:
    """Split layers over stages whose costs are alike.

    Args:
        costs: Of each layer, at least 0.
        stages: At most as many as layers.

    Raises:
        UsageError: No split exists.
    """
    check_stages(len(costs), stages, min(costs, default=0))
    unit = gcd(*costs) or 1
    if 0 < max(costs) == min(costs):  # every split into shares and shares plus one is best
        share, rest = divmod(len(costs), stages)
        bounds = tuple(number * share + max(0, number - stages + rest) for number in range(stages + 1))
        return Split(bounds=bounds, costs=tuple(unit * (end - start) for start, end in pairwise(bounds)))
    stage = make_stage(costs if unit == 1 else [cost // unit for cost in costs])
    most = find_least_maximum(stage.before, stage.most_of_one, stages)
    windows = find_windows(stage.before, stages, most)
    bounds = break_tie_of_alike(stage, windows, most)
    before = stage.before
    return Split(
        bounds=bounds,
        costs=tuple(unit * (before[end] - before[start]) for start, end in pairwise(bounds)),
    )


def split_in_flight(
    kept: Sequence[int], per_micro_batch: Sequence[int], stages: int, micro_batches: int
) -> Split:
    """Split layers by the memory that a stage needs under the 1F1B schedule.

    Stage i of p holds activations of min(p - i, m) micro-batches at a time (D. Narayanan et al., "Efficient
    Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021), so the first needs most.

    Args:
        kept: Bytes of each layer that stay all the time: weights, gradients, optimizer states.
        per_micro_batch: Bytes of activations of each layer for one micro-batch.
        stages: At most as many as layers.
        micro_batches: In one step, at least 1.

    Raises:
        UsageError: No split exists.
    """
    check_stages(len(kept), stages, min((*kept, *per_micro_batch), default=0))
    if micro_batches < 1:
        raise UsageError(f"{micro_batches} micro-batches: expected at least 1")
    made: dict[int, Stage] = {}
    for number in range(stages):
        in_flight = min(stages - number, micro_batches)
        if in_flight not in made:
            rows = zip(kept, per_micro_batch, strict=True)
            made[in_flight] = make_stage([bytes_ + in_flight * live for bytes_, live in rows])
    return split_over([made[min(stages - number, micro_batches)] for number in range(stages)])


def split_over_devices(
    costs: Sequence[int],
    *,
    speeds: Sequence[int] | None = None,
    memory: Sequence[int] | None = None,
    capacities: Sequence[int] | None = None,
) -> Split:
    """Split layers over devices in a fixed order, which differ in speed or in memory.

    Args:
        costs: Of each layer, for example its FLOPs.
        speeds: Of each device, in any common unit; None: all alike. A stage costs its layers' costs over its
            device's speed; the result's costs are in units of cost over the least common multiple of the
            speeds.
        memory: Bytes of each layer; with `capacities`.
        capacities: Bytes that each device can hold.

    Raises:
        UsageError: The devices are of no use, or no split stays within their capacities; the text says which
            capacity would do.
    """
    count = len(speeds or capacities or ())
    check_stages(len(costs), count, min(costs, default=0))
    speeds = tuple(speeds or (1,) * count)
    if min(speeds) < 1:
        raise UsageError(f"a speed of {min(speeds)}: expected an integer of at least 1")
    common = lcm(*speeds)
    held = None if memory is None else make_room(memory, 0)
    stages = []
    for number, speed in enumerate(speeds):
        room = None if held is None or capacities is None else held._replace(most=capacities[number])
        stages.append(make_stage([cost * (common // speed) for cost in costs], room))
    if memory is not None and capacities is not None:
        _check_capacities(stages, memory, capacities)
    return split_over(stages)


def split_over(stages: Sequence[Stage]) -> Split:
    """Split layers over stages of any costs, in their order; some split must keep to their rooms."""
    most = _find_least_maximum(stages)
    forward = reach_forward(stages, most)
    backward = reach_backward(stages, most)
    windows = [
        range(max(ahead[0].start, behind[0].start), min(ahead[-1].stop, behind[-1].stop))
        for ahead, behind in zip(forward, backward, strict=True)
    ]
    bounds = break_tie(stages, windows, most)
    return Split(
        bounds=bounds,
        costs=tuple(
            stage.before[end] - stage.before[start]
            for stage, (start, end) in zip(stages, pairwise(bounds), strict=True)
        ),
    )


def _find_least_maximum(stages: Sequence[Stage]) -> int:
    layers = len(stages[0].before) - 1
    low = 0
    high = max(stage.before[-1] for stage in stages)
    while low < high:
        middle = (low + high) // 2
        if ends_at(reach_forward(stages, middle)[-1], layers):
            high = middle
        else:
            low = middle + 1
    return high


def _check_capacities(stages: Sequence[Stage], memory: Sequence[int], capacities: Sequence[int]) -> None:
    everything = max(stage.before[-1] for stage in stages)
    if ends_at(reach_forward(stages, everything)[-1], len(memory)):
        return
    least = split_exactly(memory, len(stages)).maximum
    raise UsageError(
        f"no split into {len(stages)} stages stays within {min(capacities):,} to {max(capacities):,} bytes: "
        f"with {least:,} bytes on every device one does; use more stages or larger devices"
    )


# A dynamic programme from the last stage to the first, over the windows in which a stage can start. Squares
# of sums satisfy the quadrangle inequality (F. Yao, "Efficient dynamic programming using quadrangle
# inequalities", STOC 1980), also with a limit: as the start moves back, an end once overtaken by an earlier
# one never wins again. So the ends worth keeping form a queue, and a state costs a few steps however wide the
# window is. Integers have any size in Python: squares of bytes are exact.

# Least sum of squares from each start of a window on; None where no split exists.
_Values = Sequence[int | None]
# Up to so many starts times ends, trying all is quicker than keeping a queue.
_FEW = 64


def break_tie(stages: Sequence[Stage], windows: Sequence[range], most: int) -> tuple[int, ...]:
    """Return the positions at which the stages begin, and the end: one more than stages.

    Args:
        windows: Where each stage may start; the first is 0 alone, the last entry the end of all layers alone.
        most: Limit on the cost of each stage; some split within the windows keeps to it.
    """
    return _choose(stages, windows, most, range(len(stages) + 1))


def break_tie_of_alike(stage: Stage, windows: Sequence[range], most: int) -> tuple[int, ...]:
    """As `break_tie`, for stages that are all alike: quickly, where many layers cost the same.

    From each start in the windows (of `find_windows`) some split exists.
    """
    return _choose([stage] * (len(windows) - 1), windows, most, find_stops(stage.costs, windows))


def _choose(
    stages: Sequence[Stage], windows: Sequence[range], most: int, stops: Sequence[int]
) -> tuple[int, ...]:
    """Return where the stages begin; those between two stops share layers of one cost evenly."""
    values: _Values = [0]
    choices: list[list[int]] = []
    hops = list(pairwise(stops))
    for first, after in reversed(hops):
        starts = windows[first]
        ends = windows[after]
        stage = stages[first]
        if after > first + 1:
            known = cast("Sequence[int]", values)
            cost = stage.costs[starts.start]
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
    before = stage.before
    first = ends.start
    last = ends[-1]
    best_values: list[int | None] = []
    best_ends: list[int] = []
    for start in starts:
        best = None
        chosen = first
        at = before[start]
        for end in range(max(first, start + 1), min(last, stage.reach(start, most)) + 1):
            value = values[end - first]
            if value is not None:
                cost = before[end] - at
                total = value + cost * cost
                if best is None or total < best:
                    best = total
                    chosen = end
        best_values.append(best)
        best_ends.append(chosen)
    return best_values, best_ends


def _choose_ends(
    stage: Stage, starts: range, ends: range, values: _Values, most: int
) -> tuple[_Values, list[int]]:
    """Return for each start the least sum of squares from there on, and the first end that attains it."""
    before = stage.before
    first = ends.start
    end = ends.stop - 1
    lost = [stage.lose(each, most, starts) for each in ends]
    queue = _Queue(before, starts)
    queued = queue.ends
    since = queue.since
    add = queue.add
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
        self._before = before
        self._low = starts.start
        self._high = starts.stop
        self.ends: list[int] = []
        # Largest start at which each end is as good as the one ahead of it.
        self.since: list[int] = []
        # Least sum of squares behind each end, and the square of the sum before it.
        self._totals: list[int] = []
        # Largest start from which each end is too far.
        self._lost: list[int] = []

    def add(self, end: int, value: int, lost: int, head: int) -> None:
        """Add an end before all others, with the least sum of squares behind it (`value`).

        `lost` is the largest start from which it is too far; ends ahead of `head` are not looked at again.
        """
        before = self._before
        ends = self.ends
        since = self.since
        totals = self._totals
        low = self._low
        high = self._high
        overtakes = high
        at = before[end]
        total = value + at * at
        while len(ends) > head:
            width = before[ends[-1]] - at
            ahead = totals[-1] - total
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


# Among k stages over n such layers the sum of squares is least where shares differ by one layer at most, and
# the cuts are earliest where the smaller shares come first. That sum is convex in n, so the best end of a
# stretch never moves back while its start moves on (totally monotone matrices: A. Aggarwal et al., "Geometric
# applications of a matrix-searching algorithm", Algorithmica 2, 1987).
def find_stops(costs: Sequence[int], windows: Sequence[range]) -> list[int]:
    """Return the stages whose starts have to be chosen one by one, from 0 to the number of stages.

    Between two of them that are further apart than one, every window is among layers of one cost.
    """
    stops = [0]
    while stops[-1] < len(windows) - 1:
        stops.append(_end_stretch(costs, windows, stops[-1]))
    return stops


def _end_stretch(costs: Sequence[int], windows: Sequence[range], first: int) -> int:
    """Return the last stage with only layers of one cost between its window and that of the first."""
    position = windows[first].start
    last = first
    cost = costs[position]
    if not cost or len(windows[first]) == len(windows[first + 1]) == 1:
        return first + 1  # of layers without cost any split is as good: even ones are not the earliest
    while last < len(windows) - 1:
        end = windows[last + 1].stop - 1
        if costs[position:end].count(cost) < end - position:
            break
        position = end
        last = last + 1
    return max(last, first + 1)


def choose_even_ends(
    count: int, cost: int, starts: range, ends: range, values: Sequence[int], most: int
) -> tuple[list[int], list[int]]:
    """Return for each start of a stretch the least sum of squares from there on, and the first end with it.

    Args:
        count: Stages of the stretch.
        cost: Of each of its layers, at least 1.
        starts: Where its first stage may start; from each some split within the limit exists.
        ends: Where the stage after it may start.
        values: Least sum of squares from each of these on.
        most: Limit on the cost of a stage.
    """
    shortest = max(count, ends.start - starts[-1])
    longest = min(ends[-1] - starts.start, count * (most // cost))
    weights = [cost * cost * _square_shares(layers, count) for layers in range(shortest, longest + 1)]
    best_values = []
    best_ends = []
    first = ends.start
    for start in starts:
        first = max(first, start + shortest)
        within = values[first - ends.start : start + longest + 1 - ends.start]
        totals = list(map(add, within, weights[first - start - shortest :]))
        least = min(totals)
        first += totals.index(least)
        best_values.append(least)
        best_ends.append(first)
    return best_values, best_ends


def share_evenly(start: int, end: int, count: int) -> list[int]:
    """Return where the stages of a stretch end, the smaller ones first."""
    share, rest = divmod(end - start, count)
    return [start + number * share + max(0, number - count + rest) for number in range(1, count + 1)]


def _square_shares(layers: int, count: int) -> int:
    """Return the sum of squares of that many layers in shares that differ by one at most."""
    share, rest = divmod(layers, count)
    return count * share * share + rest * (2 * share + 1)
