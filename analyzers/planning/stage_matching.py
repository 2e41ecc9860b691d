"""Puts devices of different speed and memory in the order of stages that makes the dearest stage cheapest.

With devices in free order the problem is NP-complete (A. Pinar, E. Tabak and C. Aykanat, "One-dimensional
partitioning for heterogeneous systems", JPDC 68, 2008). Devices that are alike are one kind, so that orders
count by kinds: the search over them (`search_order`) is exact for two kinds of a hundred each, three of
twenty, or ten devices that all differ. Beyond that it is a beam search, and the gap bounds the distance from
the best.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import gcd, lcm
from typing import Literal, NamedTuple

import msgspec

from ...engine.errors import UsageError
from .partition import Split
from .partition.exact import split_exactly, split_in_flight, split_over
from .partition.stages import (
    Room,
    Runs,
    Stage,
    add_up,
    check_stages,
    ends_at,
    join_runs,
    make_stage,
    reach_forward,
    reach_on,
)

# Devices that stages are matched to, and the matching.


class StageDevice(msgspec.Struct, frozen=True, gc=False):
    """One device, or one group of tensor ranks, that runs one stage."""

    # In any unit that all share, at least 1; for a group: all its ranks together.
    speed: int
    # Most bytes that a stage on it may hold.
    capacity_bytes: int


class Matching(msgspec.Struct, frozen=True, kw_only=True):
    # For each stage the position of its device among those given.
    order: tuple[int, ...]
    # Layers of each stage, with costs in units of `split_over_devices`: a layer's cost over the least common
    # multiple of the speeds.
    split: Split
    # `exact`: no order and no split has a cheaper dearest stage.
    optimality: Literal["exact", "heuristic"]
    # At most how much dearer its dearest stage is than that of the best matching: 0 where exact, 0.02 for
    # 2 %.
    gap: float


class Workload:
    """Layers, and kinds of devices that run them.

    Args:
        memory: Bytes of each layer, whatever stage it is in.
        activations: Bytes of each layer for one micro-batch in flight.
        micro_batches: In one step.
    """

    def __init__(
        self,
        costs: Sequence[int],
        memory: Sequence[int],
        activations: Sequence[int] | None,
        micro_batches: int,
        groups: Sequence[StageDevice],
    ) -> None:
        self.layers = len(costs)
        self.stages = len(groups)
        self.kinds = tuple(dict.fromkeys(groups))
        self.counts = tuple(groups.count(kind) for kind in self.kinds)
        self.micro_batches = micro_batches
        self._memory = memory
        self._activations = activations
        unit = gcd(*(kind.speed for kind in self.kinds))
        common = lcm(*(kind.speed // unit for kind in self.kinds))
        factors = [common * unit // kind.speed for kind in self.kinds]
        # For each kind what a stage on it costs, without room.
        self.plain = tuple(make_stage([cost * factor for cost in costs]) for factor in factors)
        self._rooms: dict[int, Room] = {}

    @cached_property
    def shares(self) -> tuple[int, ...]:
        """Speeds of the kinds as least integers: the cost of a stage times this compares across kinds."""
        unit = gcd(*(kind.speed for kind in self.kinds))
        return tuple(kind.speed // unit for kind in self.kinds)

    def stage(self, kind: int, number: int) -> Stage:
        """Return what stage `number`, from 0, costs on a kind of device, and the room it has there."""
        in_flight = min(self.stages - number, self.micro_batches) if self._activations is not None else 0
        if in_flight not in self._rooms:
            live = self._activations or (0,) * self.layers
            held = [fixed + in_flight * each for fixed, each in zip(self._memory, live, strict=True)]
            self._rooms[in_flight] = Room(add_up(held), 0, held, max(held))
        room = self._rooms[in_flight]
        return self.plain[kind]._replace(room=room._replace(most=self.kinds[kind].capacity_bytes))

    def order_stages(self, order: Sequence[int]) -> list[Stage]:
        return [self.stage(kind, number) for number, kind in enumerate(order)]


# A search that proves nothing ends within a thousandth.
CLOSE_ENOUGH = 1000


def match_stages(
    costs: Sequence[int],
    memory: Sequence[int],
    groups: Sequence[StageDevice],
    *,
    activations: Sequence[int] | None = None,
    micro_batches: int = 1,
) -> Matching:
    """Match a row of layers, cut into as many stages as there are groups, to the groups.

    The given order of groups is kept where no other is better, so pass neighbours in a row.

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
    best, bound = _improve(workload, best)
    # Each stage gets the first group of its kind that is left.
    left = [[at for at, group in enumerate(groups) if group == kind] for kind in workload.kinds]
    return Matching(
        order=tuple(left[kind].pop(0) for kind in best.kinds),
        split=best.split,
        optimality="exact" if bound >= best.split.maximum else "heuristic",
        gap=max(0.0, best.split.maximum / bound - 1) if bound else 0.0,
    )


class _Candidate(NamedTuple):
    kinds: tuple[int, ...]
    split: Split


def _improve(workload: Workload, best: _Candidate) -> tuple[_Candidate, int]:
    # Bisects the limit on the dearest stage; `bound` is a cost that no matching can be cheaper than.
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
    """Return the best of a few orders within the capacities; of equals the given one."""
    given = [workload.kinds.index(group) for group in groups]
    fastest = sorted(given, key=lambda kind: -workload.kinds[kind].speed)
    largest = sorted(given, key=lambda kind: -workload.kinds[kind].capacity_bytes)
    orders = dict.fromkeys(tuple(order) for order in (given, fastest, fastest[::-1], largest))
    found = []
    for order in orders:
        stages = workload.order_stages(order)
        if ends_at(reach_forward(stages, _sum_slowest(stages))[-1], workload.layers):
            found.append(_Candidate(order, split_over(stages)))
    return min(found, key=lambda candidate: candidate.split.maximum, default=None)


def _find_any(workload: Workload) -> _Candidate | None:
    order = search_order(workload, _sum_slowest(workload.order_stages(range(len(workload.kinds))))).kinds
    return None if order is None else _Candidate(order, split_over(workload.order_stages(order)))


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
        f"no order of {count} devices was found in which stages stay within their {min(capacities):,} "
        f"to {max(capacities):,} bytes: with {least:,} bytes on every device any order works; use more "
        "stages or larger devices"
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
            raise UsageError(
                f"bytes of {len(given)} layers for costs of {len(costs)}: expected the same number"
            )
    slowest = min(group.speed for group in groups)
    if slowest < 1:
        raise UsageError(f"a speed of {slowest}: expected an integer of at least 1")


# A state is how many devices of each kind the first stages took, and which positions they can end at; orders
# that took the same devices are one state. Where a level has too many states, those that lost most of what
# their devices could have worked off are given up, and a search that fails then proves nothing.

# Stages that one search may try, which bounds its time.
MOST_STEPS = 1 << 16
# States of one level: as many as ten devices that all differ have (252).
MOST_STATES = 256

# How many devices of each kind are taken.
Used = tuple[int, ...]


class SearchResult(NamedTuple):
    # Kinds in the order of stages; None where none was found.
    kinds: tuple[int, ...] | None
    # Whether nothing was given up.
    is_proven: bool


def search_order(workload: Workload, most: int) -> SearchResult:
    """Return an order of kinds in which some split keeps every stage within a cost limit and within
    its room.
    """
    each = count_most(workload, most)
    total = count_total(workload)
    levels: list[dict[Used, Runs]] = [{(0,) * len(workload.kinds): [range(1)]}]
    is_proven = True
    width = min(MOST_STATES, max(1, MOST_STEPS // (workload.stages * len(workload.kinds))))
    for number in range(workload.stages):
        states = _add_stage(workload, levels[-1], number, most)
        ranked = sorted(_score(workload, states, each, total), reverse=True)
        is_proven = is_proven and len(ranked) <= width
        levels.append({used: states[used] for _, used in ranked[:width]})
        if not ranked:
            return SearchResult(None, is_proven)
    if not ends_at(levels[-1].get(workload.counts, []), workload.layers):
        return SearchResult(None, is_proven)
    return SearchResult(_trace_back(workload, levels, most), is_proven)


def _add_stage(workload: Workload, states: dict[Used, Runs], number: int, most: int) -> dict[Used, Runs]:
    stages = [workload.stage(kind, number) for kind in range(len(workload.kinds))]
    found: dict[Used, list[range]] = {}
    for used, runs in states.items():
        for kind, stage in enumerate(stages):
            if used[kind] < workload.counts[kind]:
                ends = reach_on(stage, runs, most)
                found.setdefault(_add(used, kind, 1), []).extend(ends)
    return {used: join_runs(sorted(runs, key=lambda run: run.start)) for used, runs in found.items() if runs}


def _score(
    workload: Workload, states: dict[Used, Runs], each: tuple[int, ...], total: int
) -> Iterator[tuple[int, Used]]:
    """Yield how much cost each state and the devices that are left could cover beyond all layers.

    States that cannot cover all layers are left out: no order is lost with them.
    """
    before = workload.stage(0, 0).before
    for used, runs in states.items():
        covered = before[runs[-1][-1]] * workload.shares[0]
        left = sum((all_ - one) * most for all_, one, most in zip(workload.counts, used, each, strict=True))
        if covered + left >= total:
            yield covered + left - total, used


def _trace_back(workload: Workload, levels: list[dict[Used, Runs]], most: int) -> tuple[int, ...]:
    order: list[int] = []
    used = workload.counts
    end = workload.layers
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


# The bound ends within this share of a matching that was found: the search goes on from there.
PRECISION = 4096


def find_least_bound(workload: Workload, found: int) -> int:
    """Return a cost that the dearest stage of every matching reaches.

    It is the least limit under which all devices together could cover the layers' cost, each with the run of
    layers that it works off most of, some device each layer, and each device a layer: runs may overlap.
    `found` is the cost of the dearest stage of some matching.
    """
    together = sum(count * share for count, share in zip(workload.counts, workload.shares, strict=True))
    low = min(-(-count_total(workload) // together), found)
    high = found
    if low < high and not _could_cover(workload, high - 1):
        return high
    while high - low > found // PRECISION:
        middle = (low + high) // 2
        if _could_cover(workload, middle):
            high = middle
        else:
            low = middle + 1
    return low


def count_most(workload: Workload, most: int) -> tuple[int, ...]:
    """Return the most cost that each kind works off in one run of layers under a limit, in a common unit."""
    return tuple(_find_largest(workload, kind, most) * share for kind, share in enumerate(workload.shares))


def count_total(workload: Workload) -> int:
    """Return the cost of all layers in the unit of `count_most`."""
    return workload.stage(0, 0).before[-1] * workload.shares[0]


def _find_largest(workload: Workload, kind: int, most: int) -> int:
    """Return the cost of the dearest run that a stage can hold, in the last place, where most fits."""
    stage = workload.stage(kind, workload.stages - 1)
    before = stage.before
    largest = 0
    for start in range(workload.layers):
        largest = max(largest, before[stage.reach(start, most)] - before[start])
    return largest


def _could_cover(workload: Workload, most: int) -> bool:
    each = count_most(workload, most)
    if sum(count * cost for count, cost in zip(workload.counts, each, strict=True)) < count_total(workload):
        return False
    last = [workload.stage(kind, workload.stages - 1) for kind in range(len(workload.kinds))]
    layers = range(workload.layers)
    is_each_layer_held = all(any(stage.reach(layer, most) > layer for stage in last) for layer in layers)
    # No device stays idle.
    return is_each_layer_held and all(
        any(stage.reach(layer, most) > layer for layer in layers) for stage in last
    )
