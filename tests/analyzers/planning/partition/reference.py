"""Slow and obvious ways to the best split, to check the quick one against."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate, combinations, pairwise

CostOfStage = Callable[[int, int, int], int]
"""Cost of stage number, first layer, layer after its last."""


def search_every_split(
    layers: int, stages: int, cost: CostOfStage, is_allowed: Callable[[int, int, int], bool] | None = None
) -> tuple[int, ...] | None:
    """Return the bounds of least maximum, then least sum of squares, then earliest cuts, by trying all."""
    best: tuple[int, int, tuple[int, ...]] | None = None
    for cuts in combinations(range(1, layers), stages - 1):
        bounds = (0, *cuts, layers)
        parts = [(number, start, end) for number, (start, end) in enumerate(pairwise(bounds))]
        if is_allowed is not None and not all(is_allowed(*part) for part in parts):
            continue
        paid = [cost(*part) for part in parts]
        found = (max(paid), sum(each * each for each in paid), bounds)
        best = found if best is None else min(best, found)
    return None if best is None else best[2]


def split_by_programme(costs: Sequence[int], stages: int) -> tuple[int, ...]:
    """Return the same bounds by two plain dynamic programmes: the least maximum, then the rest below it."""
    before = list(accumulate(costs, initial=0))
    layers = len(costs)

    @cache
    def least_maximum(start: int, left: int) -> int:
        if left == 1:
            return before[layers] - before[start]
        ends = range(start + 1, layers - left + 2)
        return min(max(before[end] - before[start], least_maximum(end, left - 1)) for end in ends)

    most = least_maximum(0, stages)

    @cache
    def best_rest(start: int, left: int) -> tuple[int, tuple[int, ...]] | None:
        if left == 0:
            return (0, ()) if start == layers else None
        found = []
        for end in range(start + 1, layers - left + 2):
            cost = before[end] - before[start]
            if cost > most:
                break
            rest = best_rest(end, left - 1)
            if rest is not None:
                found.append((rest[0] + cost * cost, (end, *rest[1])))
        return min(found, default=None)

    best = best_rest(0, stages)
    assert best is not None
    return (0, *best[1])
