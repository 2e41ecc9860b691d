"""What a joint plan says: configurations in order of their step time, with the memory of every rank."""

import msgspec

from ..theory import ParallelLayout, RankMemory, TrainingSetup
from ..time import StepTime

JOINT_PLAN_SCHEMA = "vramscope.joint-plan/1"


class JointStage(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline stage of a configuration."""

    stage: int
    layers: tuple[int, ...]
    """Transformer layers, from 0; embedding and head belong to the first and last stage besides."""
    devices: tuple[int, ...]
    """Positions in the cluster of all ranks of the stage: all its tensor and data ranks."""
    capacity_bytes: int
    """Of the smallest of these devices, as far as a plan may fill it."""
    memory: RankMemory
    compute_s: float
    """Seconds of one micro-batch, forward and backward, its tensor ranks' collectives included, on the
    slowest of these devices."""


class JointConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """One way to train the model on the cluster."""

    layout: ParallelLayout
    setup: TrainingSetup
    stages: tuple[JointStage, ...]
    time: StepTime
    reasons: tuple[str, ...] = ()
    """Why it stands where it stands, beside the one before it."""

    @property
    def peak_bytes(self) -> int:
        """Peak of the rank that holds most."""
        return max(stage.memory.peak_bytes for stage in self.stages)

    @property
    def least_headroom_bytes(self) -> int:
        """What is left, at its peak, on the rank that comes nearest to its capacity."""
        return min(stage.capacity_bytes - stage.memory.peak_bytes for stage in self.stages)


class PrunedCount(msgspec.Struct, frozen=True, gc=False):
    """How many configurations were left out for one reason."""

    reason: str
    count: int


class JointAssumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the times rest on; `calibration` names what was measured, None for nothing."""

    global_batch: int
    seq_length: int
    efficiency: float
    """Share of a device's peak FLOP/s that matrix products reach."""
    memory_share: float
    """Share of a device's memory that a plan may fill."""
    calibration: str | None = None


class JointPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest configurations of a model on a cluster, and what became of the others."""

    schema: str
    model: str
    cluster: str
    devices: int
    assumptions: JointAssumptions
    model_flops: float
    """Of the model in one step, nothing recomputed."""
    configurations: tuple[JointConfiguration, ...]
    """The fastest that fit, the fastest first."""
    considered: int
    """How many configurations the space has."""
    pruned: tuple[PrunedCount, ...]
    """How many of them were left out, and why; what remains was estimated one by one."""
    optimality: str
    """Whether the order of devices was searched exactly, or how far from the best it can be at most."""
