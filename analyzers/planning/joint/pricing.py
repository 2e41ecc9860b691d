"""What candidates cost in time: rings and layers are priced once for all that share them."""

from ..cluster import Cluster
from ..theory import ModelShape, ParallelLayout, TrainingSetup, split_layers
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

Order = tuple[int, ...]
"""For each stage the position of its devices, where these are cut into as many runs as there are stages;
the empty order is the natural one."""


class Pricing:
    """Step times of candidates on one cluster.

    Args:
        shape: The model.
        cluster: Where it is trained.
        assumptions: What times rest on.
    """

    def __init__(self, shape: ModelShape, cluster: Cluster, assumptions: TimeAssumptions) -> None:
        self._shape = shape
        self._cluster = cluster
        self._assumptions = assumptions
        self._places: dict[tuple[int, Order], list[tuple[int, ...]]] = {}
        self._speeds: dict[tuple[int, Order], list[DeviceSpeed]] = {}
        self._groups: dict[tuple[Degrees, Order], tuple[StageGroups, ...]] = {}
        self._prices: dict[tuple[object, ...], LayerPrices] = {}

    def place(self, layout: ParallelLayout, order: Order = ()) -> list[tuple[int, ...]]:
        """Return the positions in the cluster of the ranks of each stage."""
        key = (layout.pipeline, order)
        if key not in self._places:
            natural = place_stages(layout)
            self._places[key] = [natural[each] for each in order] or natural
        return self._places[key]

    def find_speeds(self, layout: ParallelLayout, order: Order = ()) -> list[DeviceSpeed]:
        """Return the peaks of the slowest device of each stage."""
        key = (layout.pipeline, order)
        if key not in self._speeds:
            self._speeds[key] = [find_slowest(self._cluster, own) for own in self.place(layout, order)]
        return self._speeds[key]

    def find_rings(self, candidate: Candidate, order: Order = ()) -> tuple[StageGroups, ...]:
        """Return the rings of each stage."""
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
        """Return seconds that no split of the layers makes a step shorter than.

        The slowest stage takes at least the mean of all, and the dearest layer; gradients and the optimizer
        are left out. What it waits for grows less, as it grows, than it works itself. Transfers between
        stages are what they are.
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
        """Return the seconds of a step, and those of one micro-batch on each stage.

        Args:
            candidate: The configuration.
            layout: That of the candidate, with the layers of each stage.
            order: Where its stages are.
        """
        prices = self.list_prices(candidate, order)
        rings = self.find_rings(candidate, order)
        stages = [
            time_stage(prices[stage], layout, candidate.setup, rings[stage], self._assumptions, stage, runs)
            for stage, runs in enumerate(split_layers(self._shape.layers, layout))
        ]
        step = add_up_step(stages, layout, candidate.setup, self._assumptions.factor)
        return step, tuple(self._assumptions.factor * stage.both_s for stage in stages)
