"""One candidate in full: the layers of its stages, its time, and where it runs."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec

from ....engine.errors import UsageError
from ..cluster import Cluster
from ..partition.exact import split_over
from ..partition.stages import make_room, make_stage
from ..stage_matching import StageDevice, match_stages
from ..theory import ModelShape, ParallelLayout, TrainingSetup, estimate_stages, split_layers
from ..theory.activations import RunFigures
from ..theory.estimate import estimate_pieces
from ..theory.shape import count_in_flight
from ..time import (
    DeviceSpeed,
    LayerPrices,
    StageGroups,
    StepTime,
    TimeAssumptions,
    add_up_step,
    count_turns,
    find_groups,
    find_slowest,
    place_stages,
    time_stage,
)
from .space import Candidate, Degrees

# Step times of candidates: rings and layers are priced once for all candidates that share them.

# For each stage the position of its devices, where these are cut into as many runs as there are stages; the
# empty order is the natural one.

Order = tuple[int, ...]


class Pricing:
    def __init__(self, shape: ModelShape, cluster: Cluster, assumptions: TimeAssumptions) -> None:
        self._shape = shape
        self._cluster = cluster
        self._assumptions = assumptions
        self._places: dict[tuple[int, Order], list[tuple[int, ...]]] = {}
        self._speeds: dict[tuple[int, Order], list[DeviceSpeed]] = {}
        self._groups: dict[tuple[Degrees, Order], tuple[StageGroups, ...]] = {}
        self._prices: dict[tuple[object, ...], LayerPrices] = {}

    def place(self, layout: ParallelLayout, order: Order = ()) -> list[tuple[int, ...]]:
        key = (layout.pipeline, order)
        if key not in self._places:
            natural = place_stages(layout)
            self._places[key] = [natural[each] for each in order] or natural
        return self._places[key]

    def find_speeds(self, layout: ParallelLayout, order: Order = ()) -> list[DeviceSpeed]:
        key = (layout.pipeline, order)
        if key not in self._speeds:
            self._speeds[key] = [find_slowest(self._cluster, own) for own in self.place(layout, order)]
        return self._speeds[key]

    def find_rings(self, candidate: Candidate, order: Order = ()) -> tuple[StageGroups, ...]:
        key = (candidate.degrees, order)
        if key not in self._groups:
            stages = self.place(candidate.layout, order)
            self._groups[key] = find_groups(self._cluster, candidate.layout, stages, self._assumptions)
        return self._groups[key]

    def list_prices(self, candidate: Candidate, order: Order = ()) -> list[LayerPrices]:
        """Return the prices of layers on each stage; stages that are alike share theirs."""
        layout = candidate.layout
        setup = candidate.setup
        work = (
            (layout.tensor, layout.context, layout.expert, layout.is_sequence_parallel),
            (setup.micro_batch_size, setup.recompute),
        )
        rings = self.find_rings(candidate, order)
        speeds = self.find_speeds(layout, order)
        return [
            self._price(work, layout, setup, speed, groups)
            for speed, groups in zip(speeds, rings, strict=True)
        ]

    def _price(
        self,
        work: tuple[object, ...],
        layout: ParallelLayout,
        setup: TrainingSetup,
        speed: DeviceSpeed,
        groups: StageGroups,
    ) -> LayerPrices:
        key = (work, speed, groups.tensor, groups.context, groups.expert)
        if key not in self._prices:
            self._prices[key] = LayerPrices(self._shape, layout, setup, speed, groups, self._assumptions)
        return self._prices[key]

    def bound_step(self, candidate: Candidate, order: Order = ()) -> float:
        """Return seconds below which no split of the layers brings a step.

        The slowest stage takes at least the mean of all, and the dearest layer; gradients and the optimizer
        are left out. As it grows, the time it waits grows less than its own work. Transfers between
        stages do not depend on the split.
        """
        layout = candidate.layout
        setup = candidate.setup
        prices = self.list_prices(candidate, order)
        whole = [each.model_s for each in prices]
        ends = min(each.embedding_s for each in prices) + min(each.head_s for each in prices)
        together = (1 + ends / max(whole)) / sum(1 / seconds for seconds in whole)
        slowest = max(together, min(max(each.layer_s) for each in set(prices)))
        layers = min(whole)
        waiting = (layers + ends - slowest) / layout.virtual_stages
        rings = {each.following for each in self.find_rings(candidate, order)}
        handover = max(prices[0].time_handover(ring) for ring in rings)
        sent = 2 * count_turns(layout, setup) * handover
        return self._assumptions.factor * (setup.micro_batches * slowest + waiting + sent)

    def time_step(
        self, candidate: Candidate, layout: ParallelLayout, order: Order = ()
    ) -> tuple[StepTime, tuple[float, ...]]:
        prices = self.list_prices(candidate, order)
        rings = self.find_rings(candidate, order)
        stages = [
            time_stage(prices[stage], layout, candidate.setup, rings[stage], self._assumptions, stage, runs)
            for stage, runs in enumerate(split_layers(self._shape.layers, layout))
        ]
        step = add_up_step(stages, layout, candidate.setup, self._assumptions.factor)
        return step, tuple(self._assumptions.factor * stage.both_s for stage in stages)


class StageRooms:
    """Peaks of the stages of one candidate, by how many layers they hold.

    A stage of layers that are alike holds the same wherever in the model they are. Where layers are of
    several kinds, those with experts count, which hold more. `capacities` are bytes of each stage's smallest
    device, as far as a plan fills them.
    """

    def __init__(self, shape: ModelShape, candidate: Candidate, capacities: tuple[int, ...]) -> None:
        self._layers = shape.layers
        self._layout = candidate.layout
        self._setup = candidate.setup
        self._capacities = capacities
        self._run = RunFigures(shape, candidate.layout, candidate.setup)
        self._peaks: dict[tuple[object, ...], int] = {}

    def fits(self, counts: Sequence[int]) -> bool:
        return all(
            self.find_peak(stage, count) <= self._capacities[stage] for stage, count in enumerate(counts)
        )

    def count_layers(self) -> tuple[int, ...] | None:
        """Return the most layers of each stage; None where they are too few, or a stage holds none."""
        stages = self._layout.pipeline
        if stages > 2 and len({*self._capacities}) == 1 and not self._could_hold():
            return None
        counts: list[int] = []
        for stage in range(stages):
            counts.append(self._count(stage, counts[-1] if counts else 1))
            if not counts[-1]:
                return None
        return tuple(counts) if sum(counts) >= self._layers else None

    def _could_hold(self) -> bool:
        """Return whether all stages have room together, were they in flight like the last but one."""
        stages = self._layout.pipeline
        first = self._count(0, 1)
        middle = self._count(stages - 2, 1)
        return first + (stages - 2) * middle + self._count(stages - 1, middle) >= self._layers

    def _count(self, stage: int, guess: int) -> int:
        """Return the most layers of a stage, searched from a guess on; 0 where it has no room for one."""
        most = self._layers - self._layout.pipeline + 1
        count = min(max(1, guess), most)
        while count and self.find_peak(stage, count) > self._capacities[stage]:
            count -= 1
        while 0 < count < most and self.find_peak(stage, count + 1) <= self._capacities[stage]:
            count += 1
        return count

    def find_peak(self, stage: int, count: int) -> int:
        in_flight = count_in_flight(self._layout, self._setup, stage)
        key = (stage == 0, stage == self._layout.pipeline - 1, in_flight, count)
        if key not in self._peaks:
            self._peaks[key] = estimate_pieces(self._run, stage, self._cut(count)).peak_bytes
        return self._peaks[key]

    def _cut(self, count: int) -> list[range]:
        """Return as many of the last layers, in as many pieces as a rank has."""
        pieces = self._layout.virtual_stages
        share = count // pieces
        ends = [self._layers - share * number for number in range(pieces)]
        return [range(end - share, end) for end in reversed(ends)]


class Evaluation(NamedTuple):
    candidate: Candidate
    # With the layers of each stage.
    layout: ParallelLayout
    order: Order
    time: StepTime
    # Seconds of one micro-batch, forward and backward.
    stage_s: tuple[float, ...]
    # At most how much slower its slowest stage is than in the best order of devices; None where unknown.
    gap: float | None = 0.0


def _get_seconds(found: Evaluation) -> float:
    return found.time.total_s


class Evaluator:
    """Finds the best split of candidates, and the best order of devices where these differ.

    Plans fill `memory_share` of each device's memory.
    """

    def __init__(self, shape: ModelShape, cluster: Cluster, pricing: Pricing, memory_share: float) -> None:
        self._shape = shape
        self._cluster = cluster
        self._pricing = pricing
        self._memory = [int(device.memory_bytes * memory_share) for device in cluster.devices]

    def evaluate(self, candidate: Candidate) -> Evaluation | None:
        """Return the fastest way to run a candidate; None where some rank has too little memory.

        Where devices differ, two orders are tried: the natural one, and those of most memory first, as the
        first stages have most in flight.
        """
        found = [self._evaluate_in(candidate, order) for order in self._list_orders(candidate.layout)]
        return min((each for each in found if each is not None), key=_get_seconds, default=None)

    def tighten(self, candidate: Candidate) -> float:
        """Return a lower bound of a candidate's step in seconds: exact where layers are not dealt out.

        Where they are, nothing is known beyond `Pricing.bound_step`, and this is 0.
        """
        layout = candidate.layout
        if layout.virtual_stages == 1 and layout.pipeline > 1:
            return 0.0
        return min(
            self._pricing.time_step(candidate, layout, order)[0].total_s
            for order in self._list_orders(layout)
        )

    def match(self, found: Evaluation) -> Evaluation:
        """Match the stages of a candidate to the devices where that is faster, with the gap of the order."""
        if self._cluster.is_uniform or found.layout.pipeline == 1 or found.layout.virtual_stages > 1:
            return found
        matched = self._match(found.candidate)
        if matched is None:
            return found._replace(gap=None)
        order, gap = matched
        other = self._evaluate_in(found.candidate, order)
        return min(found, other or found, key=_get_seconds)._replace(gap=gap)

    def _list_orders(self, layout: ParallelLayout) -> list[Order]:
        if self._cluster.is_uniform or layout.pipeline == 1:
            return [()]
        capacities = self.list_capacities(layout)
        largest = tuple(sorted(range(layout.pipeline), key=lambda stage: -capacities[stage]))
        return [()] if largest == tuple(range(layout.pipeline)) else [(), largest]

    def list_capacities(self, layout: ParallelLayout, order: Order = ()) -> tuple[int, ...]:
        """Return the capacity of the smallest device of each stage."""
        places = self._pricing.place(layout, order)
        return tuple(min(self._memory[at] for at in own) for own in places)

    def _evaluate_in(self, candidate: Candidate, order: Order) -> Evaluation | None:
        counts = self._split(candidate, order)
        if counts is None:
            return None
        layout = candidate.layout
        if layout.virtual_stages == 1 and layout.pipeline > 1:
            layout = msgspec.structs.replace(layout, stage_layers=counts)
        experts = self._shape.experts
        if experts is not None and len({*experts.is_expert_layer}) > 1:
            # `StageRooms` counted every layer as one with experts: the real peaks decide.
            capacities = self.list_capacities(layout, order)
            memory = estimate_stages(self._shape, layout, candidate.setup)
            if any(rank.peak_bytes > most for rank, most in zip(memory, capacities, strict=True)):
                return None
        time, stage_s = self._pricing.time_step(candidate, layout, order)
        return Evaluation(candidate, layout, order, time, stage_s)

    def _split(self, candidate: Candidate, order: Order) -> Sequence[int] | None:
        layout = candidate.layout
        rooms = StageRooms(self._shape, candidate, self.list_capacities(layout, order))
        if layout.virtual_stages > 1 or layout.pipeline == 1:
            even = (self._shape.layers // layout.pipeline,) * layout.pipeline
            return even if rooms.fits(even) else None
        prices = self._pricing.list_prices(candidate, order)
        counts = balance_layers(prices, None)
        if rooms.fits(counts):
            return counts
        most = rooms.count_layers()
        return None if most is None else balance_layers(prices, most)

    def _match(self, candidate: Candidate) -> tuple[Order, float] | None:
        """Return the order of devices by the time and memory of layers, and its gap; None without such an
        order.

        What a stage holds in addition to its layers is subtracted from every device, as on the first stage.
        """
        layout = candidate.layout
        setup = candidate.setup
        capacities = self.list_capacities(layout)
        rooms = StageRooms(self._shape, candidate, capacities)
        kept, live, outside = _measure_layers(rooms, layout.pipeline, setup.micro_batches)
        prices = self._pricing.list_prices(candidate)[0]
        speeds = [each.flops_per_s for each in self._pricing.find_speeds(layout)]
        groups = [
            StageDevice(max(1, round(speed / 1e9)), max(0, most - outside))
            for speed, most in zip(speeds, capacities, strict=True)
        ]
        costs = [round(seconds * TICKS_PER_S) for seconds in prices.layer_s]
        costs[0] += round(prices.embedding_s * TICKS_PER_S)
        costs[-1] += round(prices.head_s * TICKS_PER_S)
        layers = len(costs)
        try:
            found = match_stages(
                costs,
                [kept] * layers,
                groups,
                activations=[live] * layers,
                micro_batches=setup.micro_batches,
            )
        except UsageError:
            return None
        return found.order, found.gap


def _measure_layers(rooms: StageRooms, stages: int, micro_batches: int) -> tuple[int, int, int]:
    """Return the bytes of a layer whatever is in flight, of each micro-batch in flight, and outside all
    layers.
    """
    first = rooms.find_peak(0, 2) - rooms.find_peak(0, 1)
    last = rooms.find_peak(stages - 1, 2) - rooms.find_peak(stages - 1, 1)
    in_flight = min(stages, micro_batches)
    live = max(0, (first - last) // (in_flight - 1)) if in_flight > 1 else 0
    kept = max(0, last - live)
    return kept, live, max(0, rooms.find_peak(0, 1) - kept - in_flight * live)


# Unequal layers are split by whole picoseconds, so that ties are ties.
TICKS_PER_S = 1e12


def balance_layers(prices: Sequence[LayerPrices], rooms: Sequence[int] | None) -> tuple[int, ...]:
    """Return the layers of each stage, of at least one each: the least maximum of stage times.

    Where all layers are alike, each goes to the stage that is cheapest with it; that is exact, as the cost of
    a stage only grows, and makes the sum of squares least as well. Else by the exact split of unlike layers.
    `rooms` are the most layers of each stage, enough together; None for no limit.
    """
    layers = len(prices[0].layer_s)
    most = tuple(rooms) if rooms is not None else (layers,) * len(prices)
    if all(min(each.layer_s) == max(each.layer_s) for each in prices):
        return _deal_out(prices, most)
    return _split(prices, most)


def _deal_out(prices: Sequence[LayerPrices], most: Sequence[int]) -> tuple[int, ...]:
    last = len(prices) - 1
    ends = [0.0] * len(prices)
    ends[0] += prices[0].embedding_s
    ends[last] += prices[last].head_s
    counts = [1] * len(prices)
    # Among stages of equal cost the later one gets the layer: it has fewer micro-batches in flight.
    heap = [
        (end + 2 * each.layer_s[0], -stage)
        for stage, (end, each) in enumerate(zip(ends, prices, strict=True))
    ]
    heapify(heap)
    for _ in range(len(prices[0].layer_s) - len(prices)):
        while counts[-heap[0][1]] >= most[-heap[0][1]]:
            heappop(heap)
        stage = -heappop(heap)[1]
        counts[stage] += 1
        heappush(heap, (ends[stage] + (counts[stage] + 1) * prices[stage].layer_s[0], -stage))
    return tuple(counts)


def _split(prices: Sequence[LayerPrices], most: Sequence[int]) -> tuple[int, ...]:
    stages = []
    last = len(prices) - 1
    for number, each in enumerate(prices):
        costs = [round(seconds * TICKS_PER_S) for seconds in each.layer_s]
        costs[0] += round(each.embedding_s * TICKS_PER_S) * (number == 0)
        costs[-1] += round(each.head_s * TICKS_PER_S) * (number == last)
        stages.append(make_stage(costs, make_room([1] * len(costs), most[number])))
    return split_over(stages).counts
