"""Seconds of one training step: stages, the pipeline between them, and what follows it."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ..theory import ParallelLayout, TrainingSetup
from .layer_time import LayerTime


class StepTime(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where the seconds of one training step go, as the time model has them; they add up to `total_s`."""

    compute_s: float
    """Kernels of the slowest stage, all its micro-batches, recomputation included."""
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
        """Seconds of a step."""
        return (
            self.compute_s + self.tensor_s + self.pipeline_s + self.bubble_s + self.data_s + self.optimizer_s
        )


class StageTime(NamedTuple):
    """What one stage does with one micro-batch, and once a step."""

    work: LayerTime
    handover_s: float
    """One way, to the next stage."""
    data_s: float
    optimizer_s: float

    @property
    def both_s(self) -> float:
        """Return the seconds of one micro-batch, forward and backward."""
        return self.work.both.total_s


def add_up_step(
    stages: Sequence[StageTime], layout: ParallelLayout, setup: TrainingSetup, factor: float = 1.0
) -> StepTime:
    """Return the seconds of a step of a pipeline.

    The slowest stage works on m micro-batches without a pause; before the first and after the last it waits
    for the others: under 1F1B and GPipe as long as these need for one micro-batch together, and v times
    less where each rank has v pieces (arXiv 2104.04473, section 2.2; (p - 1) t / v with stages alike). A
    micro-batch is handed on in both directions, v times, and nothing hides that. Gradients and optimizer
    are those of the stage that takes longest.

    Args:
        stages: In their order.
        layout: Its virtual stages are v.
        setup: Its micro-batches are m.
        factor: All seconds are multiplied by it.
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
    """Return how often hidden states are handed on one after another, in one direction: v m + p - 1."""
    if layout.pipeline == 1:
        return 0
    return layout.virtual_stages * setup.micro_batches + layout.pipeline - 1
