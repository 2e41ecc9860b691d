"""What layers cost a rank of some stage: each kind of layer is timed once, a stage is counts of kinds."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from ..theory import ModelShape, ParallelLayout, TrainingSetup
from ..theory.weights import WeightTensor, list_layer_weights, list_outside_weights
from .assumptions import TimeAssumptions
from .collectives import Ring
from .device import DeviceSpeed
from .groups import StageGroups
from .layer_time import LayerTime, PassTime, StageClock
from .step import StageTime

GATHERED_BYTES = 2
"""Of a weight that is gathered: ranks compute in 16 bits."""


class Parameters(NamedTuple):
    """Parameters of a rank."""

    dense: int = 0
    expert: int = 0
    """Of routed experts, which have data ranks of their own where experts are spread."""

    def plus(self, other: "Parameters") -> "Parameters":
        """Return both together."""
        return Parameters(self.dense + other.dense, self.expert + other.expert)

    def times(self, count: int) -> "Parameters":
        """Return so many of them."""
        return Parameters(count * self.dense, count * self.expert)

    @property
    def total(self) -> int:
        """Return all of them."""
        return self.dense + self.expert


def count_parameters_of(weights: Sequence[WeightTensor]) -> Parameters:
    """Return the parameters of some tensors."""
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

    ZeRO (arXiv 1910.02054, section 7): stage 0 all-reduces gradients; 1 reduce-scatters gradients and
    gathers weights; 2 the same, the gradients of every micro-batch; 3 gathers weights in both passes of
    every micro-batch besides.

    Args:
        parameters: Of the rank.
        setup: Its ZeRO stage, micro-batches and number formats.
        groups: Rings of the stage.
        assumptions: Whether collectives overlap, and what that costs.
        window_s: Seconds of computing that can hide a micro-batch's share of them.
        layers: Of the rank.
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

    Adam computes little for what it reads: memory bandwidth bounds it. ZeRO from stage 1 divides it by the
    data ranks, but for the gradients of stage 1, which are whole.
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
    """Seconds and parameters of layers on one kind of device, by what a stage has of them.

    Args:
        shape: The model.
        layout: Its tensor, context and expert ranks.
        setup: Its micro-batch and recomputation.
        device: Peaks of a rank.
        groups: Its tensor, context and expert rings.
        assumptions: What the times rest on.
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
        self.bytes_per_s = device.memory_bytes_per_s * assumptions.bandwidth_share
        """Of the device's memory, as far as kernels reach it."""
        order = [shape.is_expert_layer(layer) for layer in range(shape.layers)]
        kinds = {kind: order.index(kind) for kind in (False, True) if kind in order}
        self._times = {kind: self._clock.time_layer(layer) for kind, layer in kinds.items()}
        self._sizes = {
            kind: count_parameters_of(list_layer_weights(shape, layout, layer))
            for kind, layer in kinds.items()
        }
        self._experts_before = list(accumulate(order, initial=0))
        self.layer_s = [self._times[kind].both.total_s for kind in order]
        """Of each layer of the model, both passes of one micro-batch."""
        self.model_s = sum(self.layer_s)
        """Of all layers."""
        self._embedding, self._head = self._clock.time_embedding(), self._clock.time_head()
        self.embedding_s = self._embedding.both.total_s
        self.head_s = self._head.both.total_s
        """Both passes of one micro-batch."""

    def time_work(self, layers: Sequence[range], *, is_first: bool, is_last: bool) -> LayerTime:
        """Return the seconds of one micro-batch on a stage that holds some runs of layers."""
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
        """Return the seconds in which hidden states go to the next stage."""
        return self._clock.time_handover(following)

    def _count(self, layers: Sequence[range]) -> list[tuple[bool, int]]:
        """Return how many layers there are of each kind: without experts, and with."""
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
    """Return the seconds of a stage, from 0, that holds some runs of layers."""
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
