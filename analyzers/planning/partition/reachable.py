"""Which positions a row of unlike stages can reach, each with a layer at least, none above its limit.

Where stages pay alike, what a stage can reach is one run of positions. Where they differ, a layer that is too
dear for one stage may be cheap for the next, and the reachable positions fall into several runs. A stage
takes a run of starts to a run of ends, unless a layer that it cannot hold alone stands between: there the run
breaks.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from .stage import Stage

Runs = list[range]
"""Disjoint runs of positions, in order."""


def reach_forward(stages: Sequence[Stage], most: int) -> list[Runs]:
    """Return where each stage can start, and after them where the last can end: one entry more than stages.

    Args:
        stages: In the order of the pipeline.
        most: Limit on the cost of each.
    """
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
    """Return whether a position is in the runs."""
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
    """Return runs that begin in order with those that touch made one, and empty ones left out."""
    joined: Runs = []
    for run in runs:
        if joined and run.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, run.stop))
        elif run:
            joined.append(run)
    return joined
