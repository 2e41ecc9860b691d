"""The least cost that no stage exceeds, where all stages pay alike: a greedy probe under integer bisection.

The chains-on-chains problem: A. Pinar and C. Aykanat, "Fast optimal load balancing algorithms for 1D
partitioning", JPDC 64 (2004), 10.1016/j.jpdc.2004.05.003. A probe asks whether `stages` stages of at most a
given cost reach the end, each taking as much as it can. As costs are integers, bisection ends at the exact
answer; every probe moves its bound to a cost that some stage really has.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import sub


def find_least_maximum(before: Sequence[int], most_of_one: int, stages: int) -> int:
    """Return the least cost of the dearest stage over all splits into contiguous stages.

    Takes O(stages · log layers) for a probe, and at most as many probes as the dearest layer's cost has bits.

    Args:
        before: Sum of the costs before each position, one entry more than layers.
        most_of_one: Cost of the dearest layer.
        stages: How many there are, at most as many as layers.
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
