"""Whether some order of devices covers all layers within a limit: a dynamic programme over what is used up.

A state is how many devices of each kind the first stages took, and which positions they can end at; orders
that took the same devices are one state. Where a level has too many states, those that lost most of what
their devices could have worked off are given up, and a search that fails then proves nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..partition.reachable import Runs, ends_at, join_runs, reach_on
from .bounds import count_most, count_total
from .devices import Workload

MOST_STEPS = 1 << 16
"""Stages that one search may try, which is what bounds its time."""
MOST_STATES = 256
"""Of one level: as many as ten devices that all differ have (252)."""

Used = tuple[int, ...]
"""How many devices of each kind are taken."""


class SearchResult(NamedTuple):
    """What a search found."""

    kinds: tuple[int, ...] | None
    """Kinds in the order of stages; None where none was found."""
    is_proven: bool
    """Whether nothing was given up."""


def search_order(workload: Workload, most: int) -> SearchResult:
    """Return an order of kinds in which some split keeps every stage within a limit and within its room.

    Args:
        workload: The layers and kinds.
        most: Limit on the cost of a stage.
    """
    each, total = count_most(workload, most), count_total(workload)
    levels: list[dict[Used, Runs]] = [{(0,) * len(workload.kinds): [range(1)]}]
    is_proven = True
    width = min(MOST_STATES, max(1, MOST_STEPS // (workload.stages * len(workload.kinds))))
    for number in range(workload.stages):
        states = _take_step(workload, levels[-1], number, most)
        ranked = sorted(_score(workload, states, each, total), reverse=True)
        is_proven = is_proven and len(ranked) <= width
        levels.append({used: states[used] for _, used in ranked[:width]})
        if not ranked:
            return SearchResult(None, is_proven)
    if not ends_at(levels[-1].get(workload.counts, []), workload.layers):
        return SearchResult(None, is_proven)
    return SearchResult(_trace_back(workload, levels, most), is_proven)


def _take_step(workload: Workload, states: dict[Used, Runs], number: int, most: int) -> dict[Used, Runs]:
    """Return the states after one more stage."""
    stages = [workload.stage(kind, number) for kind in range(len(workload.kinds))]
    found: dict[Used, list[range]] = {}
    for used, runs in states.items():
        for kind, stage in enumerate(stages):
            if used[kind] < workload.counts[kind]:
                ends = reach_on(stage, runs, most)
                found.setdefault(_add(used, kind, 1), []).extend(ends)
    return {used: join_runs(sorted(runs, key=_start)) for used, runs in found.items() if runs}


def _score(
    workload: Workload, states: dict[Used, Runs], each: tuple[int, ...], total: int
) -> Iterator[tuple[int, Used]]:
    """Yield what each state and the devices that are left could cover beyond all layers.

    Those that cannot cover them are left out: no order is lost with them.
    """
    before = workload.stage(0, 0).before
    for used, runs in states.items():
        covered = before[runs[-1][-1]] * workload.shares[0]
        left = sum((all_ - one) * most for all_, one, most in zip(workload.counts, used, each, strict=True))
        if covered + left >= total:
            yield covered + left - total, used


def _trace_back(workload: Workload, levels: list[dict[Used, Runs]], most: int) -> tuple[int, ...]:
    order: list[int] = []
    used, end = workload.counts, workload.layers
    for number in range(workload.stages - 1, -1, -1):
        used, end, kind = next(_list_sources(workload, levels[number], (used, end), number, most))
        order.append(kind)
    return tuple(reversed(order))


def _list_sources(
    workload: Workload, states: dict[Used, Runs], reached: tuple[Used, int], number: int, most: int
) -> Iterator[tuple[Used, int, int]]:
    """Yield states and positions from which a stage of some kind ends at a position, and the kind."""
    used, end = reached
    for kind in range(len(workload.kinds)):
        earlier = _add(used, kind, -1)
        stage = workload.stage(kind, number)
        first = stage.reach_back(end, most)
        for run in states.get(earlier, []):
            start = max(first, run.start)
            if start < min(end, run.stop):
                yield earlier, start, kind


def _add(used: Used, kind: int, difference: int) -> Used:
    return (*used[:kind], used[kind] + difference, *used[kind + 1 :])


def _start(run: range) -> int:
    return run.start
