"""Seconds of a step of one given configuration."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import exp, log
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from ....engine.errors import UsageError
from ..cluster import Cluster
from ..theory import ModelShape, ParallelLayout, TrainingSetup, check_all, split_layers
from ..theory.weights import WeightTensor, list_layer_weights, list_outside_weights
from .groups import DeviceSpeed, Ring, StageGroups, TimeAssumptions, describe_speed, find_groups, place_stages
from .layer_time import LayerTime, PassTime, StageClock

# Seconds of one training step: stages, the pipeline between them, and what follows it.


class StepTime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Seconds of one training step by cause, estimated; they add up to `total_s`."""

    compute_s: float
    """Kernels of the slowest stage, all its micro-batches, with recomputation."""
    tensor_s: float
    """Collectives of the slowest stage between tensor, context and expert ranks that nothing hides."""
    pipeline_s: float
    """Transfers between stages that nothing hides."""
    bubble_s: float
    """Waiting while the pipeline fills and drains."""
    data_s: float
    """Collectives of gradients and weights between data-parallel ranks that nothing hides."""
    optimizer_s: float
    """Reading and writing the states once."""

    @property
    def total_s(self) -> float:
        return (
            self.compute_s + self.tensor_s + self.pipeline_s + self.bubble_s + self.data_s + self.optimizer_s
        )


class StageTime(NamedTuple):
    """Work of one stage for one micro-batch, and once a step."""

    work: LayerTime
    # One way, to the next stage.
    handover_s: float
    data_s: float
    optimizer_s: float

    @property
    def both_s(self) -> float:
        return self.work.both.total_s


def add_up_step(
    stages: Sequence[StageTime], layout: ParallelLayout, setup: TrainingSetup, factor: float = 1.0
) -> StepTime:
    """Return the seconds of a step of a pipeline.

    The slowest stage works on m micro-batches without a pause; before the first and after the last it waits
    for the others: under 1F1B and GPipe as long as these need for one micro-batch together, and v times less
    where each rank has v pieces (arXiv 2104.04473, section 2.2; (p - 1) t / v with stages alike). A
    micro-batch is sent on in both directions, v times, and nothing hides that. Gradients and optimizer are
    those of the stage that takes longest. v and m are of the layout and the setup; all seconds are multiplied
    by the factor.
    """
    pieces = layout.virtual_stages
    often = setup.micro_batches
    slowest = max(stages, key=lambda stage: stage.both_s)
    waiting = sum(stage.both_s for stage in stages) - slowest.both_s
    handover = max(stage.handover_s for stage in stages)
    after = max(stages, key=lambda stage: stage.data_s + stage.optimizer_s)
    return StepTime(
        compute_s=factor * often * slowest.work.both.kernels_s,
        tensor_s=factor * often * slowest.work.both.sent_s,
        pipeline_s=factor * 2 * count_turns(layout, setup) * handover,
        bubble_s=factor * waiting / pieces,
        data_s=factor * after.data_s,
        optimizer_s=factor * after.optimizer_s,
    )


def count_turns(layout: ParallelLayout, setup: TrainingSetup) -> int:
    if layout.pipeline == 1:
        return 0
    # Hidden states are sent on one after another, in one direction: v m + p - 1.
    return layout.virtual_stages * setup.micro_batches + layout.pipeline - 1


def estimate_step(
    shape: ModelShape,
    layout: ParallelLayout,
    setup: TrainingSetup,
    cluster: Cluster,
    assumptions: TimeAssumptions | None = None,
) -> StepTime:
    """Estimate where the seconds of a step go.

    Args:
        layout: Degrees; no more ranks than the cluster has devices, which are used from the first on.
        setup: Batch, ZeRO stage, recomputation.

    Raises:
        UsageError: Impossible degrees, sizes or numbers; one line says which and why.
    """
    check_all(shape, layout, setup)
    assumed = settle_assumptions(assumptions, cluster)
    stages = place_stages(layout)
    groups = find_groups(cluster, layout, stages, assumed)
    pieces = split_layers(shape.layers, layout)
    times = []
    for number, own in enumerate(stages):
        device = find_slowest(cluster, own)
        prices = LayerPrices(shape, layout, setup, device, groups[number], assumed)
        times.append(time_stage(prices, layout, setup, groups[number], assumed, number, pieces[number]))
    return add_up_step(times, layout, setup, assumed.factor)


def settle_assumptions(assumptions: TimeAssumptions | None, cluster: Cluster) -> TimeAssumptions:
    """Complete the assumptions: where the cluster measured how much overlap slows computing, that is used."""
    assumed = assumptions or TimeAssumptions()
    slowdown = None if cluster.measured is None else cluster.measured.overlap_slowdown
    return assumed if slowdown is None else msgspec.structs.replace(assumed, overlap_slowdown=slowdown)


def find_slowest(cluster: Cluster, positions: Sequence[int]) -> DeviceSpeed:
    device = min((cluster.devices[at] for at in positions), key=lambda each: each.flops_per_s)
    return describe_speed(device)


# What layers cost a rank of some stage: each kind of layer is timed once, a stage is counts of kinds.

# Bytes of one element of a gathered weight: ranks compute in 16 bits.
GATHERED_BYTES = 2


class Parameters(NamedTuple):
    dense: int = 0
    # Parameters of routed experts, which have data ranks of their own where experts are spread.
    expert: int = 0

    def plus(self, other: "Parameters") -> "Parameters":
        return Parameters(self.dense + other.dense, self.expert + other.expert)

    def times(self, count: int) -> "Parameters":
        return Parameters(count * self.dense, count * self.expert)

    @property
    def total(self) -> int:
        return self.dense + self.expert


def count_parameters_of(weights: Sequence[WeightTensor]) -> Parameters:
    expert = sum(tensor.elements * tensor.copies for tensor in weights if tensor.is_expert)
    return Parameters(sum(tensor.elements * tensor.copies for tensor in weights) - expert, expert)


def time_gradients(
    parameters: Parameters,
    setup: TrainingSetup,
    groups: StageGroups,
    assumptions: TimeAssumptions,
    window_s: float,
    layers: int = 1,
) -> float:
    """Return the seconds of collectives between data ranks that computing does not hide.

    ZeRO (arXiv 1910.02054, section 7): stage 0 all-reduces gradients; 1 reduce-scatters gradients and gathers
    weights; 2 the same, the gradients of every micro-batch; 3 in addition gathers weights in both passes of
    every micro-batch. `window_s` is the computing that can hide a micro-batch's share of them.
    """
    experts = groups.expert_data if groups.expert.ranks > 1 else groups.data
    parts = max(1, layers) if setup.zero_stage >= 2 else 1
    sent = _time_sharing(parameters.dense, setup, groups.data, parts)
    sent += _time_sharing(parameters.expert, setup, experts, parts)
    if not assumptions.overlaps_gradients:
        return sent
    window = window_s * (setup.micro_batches if setup.zero_stage >= 2 else 1)
    hidden = min(sent, window)
    return sent - hidden + (assumptions.overlap_slowdown - 1) * hidden


def time_optimizer(
    parameters: Parameters, layout: ParallelLayout, setup: TrainingSetup, bytes_per_s: float
) -> float:
    """Return the seconds of clipping, Adam and clearing: gradients three times, other states read and
    written.

    Memory bandwidth bounds it, as Adam computes little for what it reads. ZeRO from stage 1 divides it by the
    data ranks, except for the gradients of stage 1, which are whole.
    """
    numbers = setup.numbers
    ranks = layout.data * layout.context
    shards = ranks if setup.zero_stage >= 1 else 1
    states = 2 * (numbers.master_bytes + numbers.moment_bytes) + numbers.weight_bytes + numbers.gradient_bytes
    cleared = 2 * numbers.gradient_bytes / (ranks if setup.zero_stage >= 2 else 1)
    return parameters.total * (states / shards + cleared) / bytes_per_s


def _time_sharing(elements: int, setup: TrainingSetup, ring: Ring, parts: int) -> float:
    if not elements:
        return 0.0
    gradients = elements * setup.numbers.gradient_bytes
    weights = elements * GATHERED_BYTES
    if setup.zero_stage == 0:
        return ring.time_all_reduce(gradients)
    often = setup.micro_batches if setup.zero_stage >= 2 else 1
    gathers = 2 * setup.micro_batches if setup.zero_stage == 3 else 1
    return often * ring.time_phase(gradients, parts) + gathers * ring.time_phase(weights, parts)


class LayerPrices:
    """Seconds and parameters of layers on one kind of device, from which those of a stage are added up.

    Args:
        device: Peaks of a rank.
        groups: Its tensor, context and expert rings.
    """

    def __init__(
        self,
        shape: ModelShape,
        layout: ParallelLayout,
        setup: TrainingSetup,
        device: DeviceSpeed,
        groups: StageGroups,
        assumptions: TimeAssumptions,
    ) -> None:
        self._shape = shape
        self._layout = layout
        self._clock = StageClock(shape, layout, setup, device, groups, assumptions)
        # The device's memory bandwidth, as far as kernels reach it.
        self.bytes_per_s = device.memory_bytes_per_s * assumptions.bandwidth_share
        order = [shape.is_expert_layer(layer) for layer in range(shape.layers)]
        kinds = {kind: order.index(kind) for kind in (False, True) if kind in order}
        self._times = {kind: self._clock.time_layer(layer) for kind, layer in kinds.items()}
        self._sizes = {
            kind: count_parameters_of(list_layer_weights(shape, layout, layer))
            for kind, layer in kinds.items()
        }
        self._experts_before = list(accumulate(order, initial=0))
        # Seconds of each layer of the model, both passes of one micro-batch.
        self.layer_s = [self._times[kind].both.total_s for kind in order]
        self.model_s = sum(self.layer_s)
        self._embedding = self._clock.time_embedding()
        self._head = self._clock.time_head()
        self.embedding_s = self._embedding.both.total_s
        # Both passes of one micro-batch.
        self.head_s = self._head.both.total_s

    def time_work(self, layers: Sequence[range], *, is_first: bool, is_last: bool) -> LayerTime:
        """Return the seconds of one micro-batch on a stage of some runs of layers."""
        parts = [(self._times[kind], count) for kind, count in self._count(layers)]
        parts += [(self._embedding, int(is_first)), (self._head, int(is_last))]
        return LayerTime(
            _add_up((time.forward, count) for time, count in parts),
            _add_up((time.backward, count) for time, count in parts),
        )

    def count_parameters(self, layers: Sequence[range], *, is_first: bool, is_last: bool) -> Parameters:
        """Return the parameters of a rank of such a stage."""
        outside = list_outside_weights(self._shape, self._layout, is_first=is_first, is_last=is_last)
        total = count_parameters_of(outside)
        for kind, count in self._count(layers):
            total = total.plus(self._sizes[kind].times(count))
        return total

    def time_handover(self, following: Ring) -> float:
        return self._clock.time_handover(following)

    def _count(self, layers: Sequence[range]) -> list[tuple[bool, int]]:
        experts = sum(self._experts_before[run.stop] - self._experts_before[run.start] for run in layers)
        dense = sum(len(run) for run in layers) - experts
        return [(kind, count) for kind, count in ((False, dense), (True, experts)) if count]


def time_stage(
    prices: LayerPrices,
    layout: ParallelLayout,
    setup: TrainingSetup,
    groups: StageGroups,
    assumptions: TimeAssumptions,
    stage: int,
    layers: Sequence[range],
) -> StageTime:
    """Return the seconds of a stage of some runs of layers."""
    is_first = stage == 0
    is_last = stage == layout.pipeline - 1
    work = prices.time_work(layers, is_first=is_first, is_last=is_last)
    parameters = prices.count_parameters(layers, is_first=is_first, is_last=is_last)
    return StageTime(
        work,
        prices.time_handover(groups.following),
        time_gradients(
            parameters, setup, groups, assumptions, work.both.total_s, sum(len(run) for run in layers)
        ),
        time_optimizer(parameters, layout, setup, prices.bytes_per_s),
    )


def _add_up(parts: Iterable[tuple[PassTime, int]]) -> PassTime:
    counted = list(parts)
    return PassTime(
        sum(count * part.kernels_s for part, count in counted),
        sum(count * part.sent_s for part, count in counted),
    )


# Learning from measured times: how efficient products are, and one factor on everything.

# Efficiencies that are tried where several runs were measured.

EFFICIENCIES = tuple(step / 100 for step in range(20, 100, 5))
# Seconds of one operation on the host; tried where runs are many.
LAUNCHES_S = (5e-6, 10e-6, 20e-6, 40e-6, 60e-6, 80e-6)
MANY_RUNS = 10

_replace = msgspec.structs.replace


class TimedRun(msgspec.Struct, frozen=True, kw_only=True):
    shape: ModelShape
    layout: ParallelLayout
    setup: TrainingSetup
    step_s: float


def fit_runs(
    runs: Sequence[TimedRun], cluster: Cluster, assumptions: TimeAssumptions, name: str
) -> TimeAssumptions:
    """Return the assumptions that fit some measured steps best.

    One run gives a factor. With more, the efficiency of products is the one at which estimates scatter
    least around the measured steps (mean absolute logarithm of their ratio), and the factor is their median
    ratio there. With ten or more, the host's time of an operation is fitted along with the efficiency.

    Args:
        runs: At least one.
        assumptions: Everything that is not fitted.
        name: Where this was learnt, for `calibration`.

    Raises:
        UsageError: There are no runs, or one is impossible.
    """
    if not runs:
        raise UsageError(f"{name}: no measured run; expected at least one row")
    tried = [assumptions]
    if len(runs) > 1:
        tried = [_replace(each, product_efficiency=share) for each in tried for share in EFFICIENCIES]
    if len(runs) >= MANY_RUNS:
        tried = [_replace(each, launch_s=seconds) for each in tried for seconds in LAUNCHES_S]
    fits = [_fit_factor(runs, cluster, each) for each in tried]
    best = min(range(len(fits)), key=lambda number: fits[number][0])
    learnt = f"{name}: {len(runs)} measured step" + ("s" if len(runs) > 1 else "")
    return _replace(tried[best], factor=fits[best][1], calibration=learnt)


def fit_layer_profile(
    layer_s: float,
    shape: ModelShape,
    setup: TrainingSetup,
    device: DeviceSpeed,
    assumptions: TimeAssumptions,
    name: str,
) -> TimeAssumptions:
    """Return assumptions under which one layer's forward pass of a micro-batch takes `layer_s`."""

    def estimate(efficiency: float) -> float:
        assumed = _replace(assumptions, product_efficiency=efficiency)
        clock = StageClock(shape, ParallelLayout(), setup, device, StageGroups(), assumed)
        return clock.time_layer(0).forward.total_s

    low = 0.01
    high = 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if estimate(middle) > layer_s else (low, middle)
    return _replace(assumptions, product_efficiency=high, calibration=f"{name}: one profiled layer")


def _fit_factor(
    runs: Sequence[TimedRun], cluster: Cluster, assumptions: TimeAssumptions
) -> tuple[float, float]:
    """Return how far estimates scatter around the measured steps, and the median ratio."""
    plain = _replace(assumptions, factor=1.0)
    ratios = [
        log(run.step_s / estimate_step(run.shape, run.layout, run.setup, cluster, plain).total_s)
        for run in runs
    ]
    middle = median(ratios)
    return fmean(abs(ratio - middle) for ratio in ratios), exp(middle)
