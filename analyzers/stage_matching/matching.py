"""Devices of different speed and memory, in the order of stages that makes the dearest stage cheapest.

With devices in free order the problem is NP-complete (A. Pinar, E. Tabak and C. Aykanat, "One-dimensional
partitioning for heterogeneous systems", JPDC 68, 2008). Devices that are alike are one kind, so that orders
count by kinds: the search over them (`search.py`) is exact for two kinds of a hundred each, three of twenty,
or ten devices that all differ. Beyond it is a beam search, and the gap says how far from the best it is at
most.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...engine.errors import UsageError
from ..partition import Split
from ..partition.exact import split_exactly, split_in_flight, split_over
from ..partition.reachable import ends_at, reach_forward
from ..partition.stage import Stage, check_stages
from .bounds import find_least_bound
from .devices import Workload
from .model import Matching, StageDevice
from .search import search_order

CLOSE_ENOUGH = 1000
"""A search that proves nothing ends within a thousandth."""


def match_stages(
    costs: Sequence[int],
    memory: Sequence[int],
    groups: Sequence[StageDevice],
    *,
    activations: Sequence[int] | None = None,
    micro_batches: int = 1,
) -> Matching:
    """Match a row of layers, cut into as many stages as there are groups, to the groups.

    The order that the groups are given in is kept where no other is better, so give neighbours in a row.

    Args:
        costs: Of each layer, for example its FLOPs; at least 0.
        memory: Bytes of each layer, whatever stage it is in.
        groups: One for each stage, in any order.
        activations: Bytes of each layer for one micro-batch in flight, under 1F1B: stage i of p holds
            min(p - i, m) of them. None where `memory` is everything.
        micro_batches: In one step, m.

    Raises:
        UsageError: More groups than layers, a speed below 1, or no order and no split within the capacities;
            the text says what would do.
    """
    _check(costs, memory, groups, activations)
    workload = Workload(costs, memory, activations, micro_batches, groups)
    best = _find_first(workload, groups) or _find_any(workload)
    if best is None:
        raise UsageError(_explain_capacities(memory, groups, activations, micro_batches))
    return _report(workload, groups, *_improve(workload, best))


class _Candidate(NamedTuple):
    kinds: tuple[int, ...]
    split: Split


def _report(workload: Workload, groups: Sequence[StageDevice], best: _Candidate, bound: int) -> Matching:
    return Matching(
        order=_name_groups(workload, groups, best.kinds),
        split=best.split,
        optimality="exact" if bound >= best.split.maximum else "heuristic",
        gap=max(0.0, best.split.maximum / bound - 1) if bound else 0.0,
    )


def _improve(workload: Workload, best: _Candidate) -> tuple[_Candidate, int]:
    """Return the best matching that is found, and a cost that none can be cheaper than."""
    low = bound = find_least_bound(workload, best.split.maximum)
    is_proven = True
    while low < best.split.maximum - (0 if is_proven else best.split.maximum // CLOSE_ENOUGH):
        middle = (low + best.split.maximum) // 2
        limit = _find_nearest_cost(workload, middle)
        result = search_order(workload, limit) if limit >= low else None
        if result is not None and result.kinds is not None:
            best = _Candidate(result.kinds, split_over(workload.order_stages(result.kinds)))
            continue
        is_proven = is_proven and (result is None or result.is_proven)
        low = middle + 1
        bound = low if is_proven else bound
    return best, bound


def _find_first(workload: Workload, groups: Sequence[StageDevice]) -> _Candidate | None:
    """Return the best of a few orders that keep to the capacities; of equals the given one."""
    given = [workload.kinds.index(group) for group in groups]
    fastest = sorted(given, key=lambda kind: -workload.kinds[kind].speed)
    largest = sorted(given, key=lambda kind: -workload.kinds[kind].capacity_bytes)
    orders = dict.fromkeys(tuple(order) for order in (given, fastest, fastest[::-1], largest))
    fitting = [order for order in orders if _fits(workload.order_stages(order))]
    found = [_Candidate(order, split_over(workload.order_stages(order))) for order in fitting]
    return min(found, key=lambda candidate: candidate.split.maximum, default=None)


def _find_any(workload: Workload) -> _Candidate | None:
    """Return a matching within the capacities, however slow."""
    order = search_order(workload, _sum_slowest(workload.order_stages(range(len(workload.kinds))))).kinds
    return None if order is None else _Candidate(order, split_over(workload.order_stages(order)))


def _fits(stages: Sequence[Stage]) -> bool:
    return ends_at(reach_forward(stages, _sum_slowest(stages))[-1], len(stages[0].costs))


def _sum_slowest(stages: Sequence[Stage]) -> int:
    return max(stage.before[-1] for stage in stages)


def _find_nearest_cost(workload: Workload, most: int) -> int:
    """Return the largest cost up to a limit that some run of layers has on some kind."""
    nearest = 0
    for stage in workload.plain:
        before = stage.before
        for start in range(workload.layers):
            nearest = max(nearest, before[stage.reach(start, most)] - before[start])
    return nearest


def _name_groups(workload: Workload, groups: Sequence[StageDevice], kinds: Sequence[int]) -> tuple[int, ...]:
    """Return a group for each stage: of its kind the first that is left."""
    left = [[at for at, group in enumerate(groups) if group == kind] for kind in workload.kinds]
    return tuple(left[kind].pop(0) for kind in kinds)


def _explain_capacities(
    memory: Sequence[int],
    groups: Sequence[StageDevice],
    activations: Sequence[int] | None,
    micro_batches: int,
) -> str:
    count = len(groups)
    if activations is None:
        least = split_exactly(memory, count).maximum
    else:
        least = split_in_flight(memory, activations, count, micro_batches).maximum
    capacities = [group.capacity_bytes for group in groups]
    return (
        f"no order of {count} devices was found in which stages stay within their {min(capacities):,} to "
        f"{max(capacities):,} bytes: with {least:,} bytes on every device any order does; use more stages or "
        "larger devices"
    )


def _check(
    costs: Sequence[int],
    memory: Sequence[int],
    groups: Sequence[StageDevice],
    activations: Sequence[int] | None,
) -> None:
    check_stages(len(costs), len(groups), min((*costs, *memory, *(activations or ())), default=0))
    for given in (memory, activations):
        if given is not None and len(given) != len(costs):
            raise UsageError(f"bytes of {len(given)} layers for costs of {len(costs)}: expected as many")
    slowest = min(group.speed for group in groups)
    if slowest < 1:
        raise UsageError(f"a speed of {slowest}: expected an integer of at least 1")
