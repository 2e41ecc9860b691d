"""Stretches of stages among layers that all cost the same, where the best cuts are known without a search.

Of k stages over n such layers the sum of squares is least where shares differ by one layer at most, and the
cuts are earliest where the smaller shares come first. That sum is convex in n, so the best end of a stretch
never moves back while its start moves on (totally monotone matrices: A. Aggarwal et al., "Geometric
applications of a matrix-searching algorithm", Algorithmica 2, 1987).
"""

from collections.abc import Sequence
from operator import add


def find_stops(costs: Sequence[int], windows: Sequence[range]) -> list[int]:
    """Return the stages whose starts have to be chosen one by one, from 0 to the number of stages.

    Between two of them that are further apart than one, every window lies among layers of one cost.

    Args:
        costs: Of each layer.
        windows: Where each stage may start; the last entry is the end of all layers.
    """
    stops = [0]
    while stops[-1] < len(windows) - 1:
        stops.append(_end_stretch(costs, windows, stops[-1]))
    return stops


def _end_stretch(costs: Sequence[int], windows: Sequence[range], first: int) -> int:
    """Return the last stage with nothing but layers of one cost between its window and that of the first."""
    position, last = windows[first].start, first
    cost = costs[position]
    if not cost or len(windows[first]) == len(windows[first + 1]) == 1:
        return first + 1  # of layers without cost any split is as good: even ones are not the earliest
    while last < len(windows) - 1:
        end = windows[last + 1].stop - 1
        if costs[position:end].count(cost) < end - position:
            break
        position, last = end, last + 1
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
    best_values, best_ends, first = [], [], ends.start
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
