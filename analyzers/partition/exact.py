"""Exact splits of a row of layers into contiguous pipeline stages.

Each returns the split whose dearest stage is cheapest; of those the one of least sum of squared stage costs;
of those the one whose first cut is earliest, then the second, and so on. Costs are integers, so that equal
means equal. The order of stages is fixed: with stages of different speed in free order the problem is
NP-complete (A. Pinar, E. Tabak and C. Aykanat, "One-dimensional partitioning for heterogeneous systems", JPDC
68, 2008).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import gcd, lcm

import msgspec

from ...engine.errors import UsageError
from .least_maximum import find_least_maximum, find_windows
from .reachable import ends_at, reach_backward, reach_forward
from .stage import Stage, check_stages, make_room, make_stage
from .tie_break import break_tie, break_tie_of_alike


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A row of layers cut into contiguous stages."""

    bounds: tuple[int, ...]
    """First layer of each stage, and the number of layers: one entry more than stages."""
    costs: tuple[int, ...]
    """Cost of each stage, in the unit of the layers' costs."""

    @property
    def counts(self) -> tuple[int, ...]:
        """How many layers each stage has."""
        return tuple(end - start for start, end in pairwise(self.bounds))

    @property
    def maximum(self) -> int:
        """Cost of the dearest stage."""
        return max(self.costs)


def split_exactly(costs: Sequence[int], stages: int) -> Split:
    """Split layers over stages that all pay alike.

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
    """Split layers by what a stage holds under the 1F1B schedule.

    Stage i of p holds activations of min(p - i, m) micro-batches at a time (D. Narayanan et al., "Efficient
    Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021), so the first needs most.

    Args:
        kept: Bytes of each layer that are there all the time: weights, gradients, optimizer states.
        per_micro_batch: Bytes of activations of each layer for one micro-batch.
        stages: At most as many as layers.
        micro_batches: In one step, at least 1.

    Raises:
        UsageError: No split exists.
    """
    check_stages(len(kept), stages, min((*kept, *per_micro_batch), default=0))
    if micro_batches < 1:
        raise UsageError(f"{micro_batches} micro-batches: a step has at least 1")
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
        speeds: Of each device, in any common unit; alike where None. A stage costs its layers' costs over its
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
    forward, backward = reach_forward(stages, most), reach_backward(stages, most)
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
    low, high = 0, max(stage.before[-1] for stage in stages)
    while low < high:
        middle = (low + high) // 2
        if ends_at(reach_forward(stages, middle)[-1], layers):
            high = middle
        else:
            low = middle + 1
    return high


def _check_capacities(stages: Sequence[Stage], memory: Sequence[int], capacities: Sequence[int]) -> None:
    """Refuse capacities that nothing can meet.

    Raises:
        UsageError: With the least capacity of every device that would do.
    """
    everything = max(stage.before[-1] for stage in stages)
    if ends_at(reach_forward(stages, everything)[-1], len(memory)):
        return
    least = split_exactly(memory, len(stages)).maximum
    raise UsageError(
        f"no split into {len(stages)} stages stays within {min(capacities):,} to {max(capacities):,} bytes: "
        f"with {least:,} bytes on every device one does; use more stages or larger devices"
    )
