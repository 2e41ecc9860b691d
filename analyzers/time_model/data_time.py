"""Seconds of what happens once a step on one rank: gradients reduced, weights gathered, the optimizer."""

from collections.abc import Sequence
from typing import NamedTuple

from ..memory_theory import ParallelLayout, TrainingSetup
from ..memory_theory.weights import WeightTensor
from .assumptions import TimeAssumptions
from .collectives import Ring
from .groups import StageGroups

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
    numbers, ranks = setup.numbers, layout.data * layout.context
    shards = ranks if setup.zero_stage >= 1 else 1
    states = 2 * (numbers.master_bytes + numbers.moment_bytes) + numbers.weight_bytes + numbers.gradient_bytes
    cleared = 2 * numbers.gradient_bytes / (ranks if setup.zero_stage >= 2 else 1)
    return parameters.total * (states / shards + cleared) / bytes_per_s


def _time_sharing(elements: int, setup: TrainingSetup, ring: Ring, parts: int) -> float:
    if not elements:
        return 0.0
    gradients, weights = elements * setup.numbers.gradient_bytes, elements * GATHERED_BYTES
    if setup.zero_stage == 0:
        return ring.time_all_reduce(gradients)
    often = setup.micro_batches if setup.zero_stage >= 2 else 1
    gathers = 2 * setup.micro_batches if setup.zero_stage == 3 else 1
    return often * ring.time_phase(gradients, parts) + gathers * ring.time_phase(weights, parts)
