"""Stages of a pipeline: their costs, which splits can be reached, and the least of the greatest."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import sub
from typing import NamedTuple

from ....engine.errors import UsageError

# The cost of a run of layers on one pipeline stage, and how far a stage reaches within a limit.


class Room(NamedTuple):
    """A second quantity that a stage may not exceed, whatever it is balanced by."""

    # Sum of the quantity over the layers before each position; one entry more than layers.
    before: list[int]
    most: int
    # The quantity of each layer.
    costs: Sequence[int]
    most_of_one: int


class Stage(NamedTuple):
    """One stage: its cost of the layers from position a up to position b is `before[b] - before[a]`."""

    # Sum of the stage's cost over the layers before each position; one entry more than layers.
    before: list[int]
    costs: Sequence[int]
    # Cost of the dearest layer.
    most_of_one: int
    room: Room | None = None

    def reach(self, start: int, most: int) -> int:
        """Return the last position that layers from `start` on get to at a cost of at most `most`."""
        end = bisect_right(self.before, self.before[start] + most, start) - 1
        if self.room is None:
            return end
        before = self.room.before
        limit = self.room.most
        return min(end, bisect_right(before, before[start] + limit, start) - 1)

    def reach_back(self, end: int, most: int) -> int:
        """Return the first position from which layers up to `end` cost at most `most`."""
        start = bisect_left(self.before, self.before[end] - most, 0, end)
        if self.room is None:
            return start
        before = self.room.before
        limit = self.room.most
        return max(start, bisect_left(before, before[end] - limit, 0, end))

    def lose(self, end: int, most: int, starts: range) -> int:
        """Return the last of some starts from which `end` is too far; one less than all where it is in reach
        of all.
        """
        lost = bisect_left(self.before, self.before[end] - most, starts.start, starts.stop) - 1
        if self.room is None:
            return lost
        before = self.room.before
        limit = self.room.most
        return max(lost, bisect_left(before, before[end] - limit, starts.start, starts.stop) - 1)


def add_up(costs: Sequence[int]) -> list[int]:
    return list(accumulate(costs, initial=0))


def make_stage(costs: Sequence[int], room: Room | None = None) -> Stage:
    """Make a stage from its cost of each layer, at least 0."""
    return Stage(add_up(costs), costs, max(costs, default=0), room)


def make_room(costs: Sequence[int], most: int) -> Room:
    return Room(add_up(costs), most, costs, max(costs, default=0))


def check_stages(layers: int, stages: int, least: int = 0) -> None:
    """Refuse no stage, more stages than layers, or a `least` cost of a layer below 0, by `UsageError`."""
    if stages < 1:
        raise UsageError(f"{stages} stages: a pipeline has at least 1")
    if stages > layers:
        raise UsageError(
            f"{stages} stages for {layers} layers: each stage needs a layer, so ask for at most {layers}"
        )
    if least < 0:
        raise UsageError(f"a layer costs {least}: expected 0 or more")


# Which positions a row of unlike stages can reach, each with a layer at least, none above its limit.

# Where stages are alike, what a stage can reach is one run of positions. Where they differ, a layer that is
# too dear for one stage may be cheap for the next, and the reachable positions fall into several runs. A
# stage leads from a run of starts to a run of ends, unless a layer that it cannot hold alone is in between:
# there the run breaks.

# Disjoint runs of positions, in order.

Runs = list[range]


def reach_forward(stages: Sequence[Stage], most: int) -> list[Runs]:
    """Return where each stage can start, and then where the last can end: one entry more than stages."""
    reached: list[Runs] = [[range(1)]]
    for stage in stages:
        reached.append(reach_on(stage, reached[-1], most))
    return reached


def reach_on(stage: Stage, starts: Runs, most: int) -> Runs:
    """Return where a stage can end that begins in some runs of positions."""
    parts = (part for run in starts for part in _split_at_blockers(stage, run, most))
    return join_runs(range(part.start + 1, stage.reach(part[-1], most) + 1) for part in parts)


def reach_backward(stages: Sequence[Stage], most: int) -> list[Runs]:
    """Return from where each stage and those after it can cover the rest; the last entry is the end."""
    layers = len(stages[0].before) - 1
    reached: list[Runs] = [[range(layers, layers + 1)]]
    for stage in reversed(stages):
        lasts = (
            run
            for wide in reached[-1]
            for run in _split_at_blockers(stage, range(wide.start - 1, wide.stop - 1), most)
        )
        reached.append(join_runs(range(stage.reach_back(run.start + 1, most), run.stop) for run in lasts))
    return reached[::-1]


def ends_at(runs: Runs, position: int) -> bool:
    return any(position in run for run in runs)


def _split_at_blockers(stage: Stage, run: range, most: int) -> Iterator[range]:
    """Yield the parts of a run of layers between those that the stage cannot hold alone."""
    costs = stage.costs
    room = stage.room
    layers = range(max(run.start, 0), min(run.stop, len(costs)))
    blockers: list[int] = []
    if stage.most_of_one > most:
        blockers = [layer for layer in layers if costs[layer] > most]
    if room is not None and room.most_of_one > room.most:
        too_large = [layer for layer in layers if room.costs[layer] > room.most]
        blockers = sorted({*blockers, *too_large})
    edges = (layers.start - 1, *blockers, layers.stop)
    for left, right in pairwise(edges):
        if right - left > 1:
            yield range(left + 1, right)


def join_runs(runs: Iterable[range]) -> Runs:
    """Return runs that begin in order, with those that touch made one and empty ones left out."""
    joined: Runs = []
    for run in runs:
        if joined and run.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, run.stop))
        elif run:
            joined.append(run)
    return joined


# The least cost that no stage exceeds, where all stages pay alike: a greedy probe under integer bisection.
#
# The chains-on-chains problem: A. Pinar and C. Aykanat, "Fast optimal load balancing algorithms for 1D
# partitioning", JPDC 64 (2004), 10.1016/j.jpdc.2004.05.003. A probe asks whether `stages` stages of at most
# a given cost reach the end, each taking as much as it can. As costs are integers, bisection ends at the
# exact answer; every probe moves its bound to a cost that some stage really has.


def find_least_maximum(before: Sequence[int], most_of_one: int, stages: int) -> int:
    """Return the least cost of the dearest stage over all splits into contiguous stages.

    Takes O(stages · log layers) for a probe, and at most as many probes as the dearest layer's cost has bits.

    Args:
        before: Sum of the costs before each position, one entry more than layers.
    """
    total = before[-1]
    low = max(-(-total // stages), most_of_one)
    high = low + most_of_one
    while low < high:
        middle = (low + high) // 2
        reached, next_cost = _probe(before, stages, middle)
        if reached:
            high = next_cost
        else:
            low = next_cost
    return high


def _probe(before: Sequence[int], stages: int, most: int) -> tuple[bool, int]:
    """Return whether the stages reach the end, and the least maximum that the answer leaves possible.

    Where they do, that is the dearest stage they used; where they do not, the least cost of any stage and the
    layer after it: below that every stage ends where it ended here.
    """
    layers = len(before) - 1
    total = before[-1]
    position = 0
    at = 0
    starts = [0]
    beyond = []
    for _ in range(stages):
        position = bisect_right(before, at + most, position) - 1
        if position >= layers:
            return True, max(map(sub, (*starts[1:], total), starts))
        at = before[position]
        starts.append(at)
        beyond.append(before[position + 1])
    return False, min(map(sub, beyond, starts))


def find_windows(before: Sequence[int], stages: int, most: int) -> list[range]:
    """Return where each stage can start if none may exceed `most`; the last entry is the end of all layers.

    Every start in a window belongs to some split: stages before it can be made to end there, stages after it
    to cover the rest, each with a layer at least.
    """
    layers = len(before) - 1
    first = _fill_from_end(before, stages, most)
    last = [0]
    for number in range(1, stages):
        position = last[-1]
        reached = bisect_right(before, before[position] + most, position) - 1
        last.append(min(reached, layers - stages + number))
    windows = [range(low, high + 1) for low, high in zip(first, last, strict=True)]
    return [*windows, range(layers, layers + 1)]


def _fill_from_end(before: Sequence[int], stages: int, most: int) -> list[int]:
    """Return the first start of each stage from which it and those after it can cover the rest."""
    position = len(before) - 1
    starts = []
    for number in range(stages - 1, -1, -1):
        position = max(bisect_left(before, before[position] - most, 0, position), number)
        starts.append(position)
    return starts[::-1]
