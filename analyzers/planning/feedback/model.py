"""What `vramscope plan --measured --json` prints."""

from typing import Literal

import msgspec

FEEDBACK_SCHEMA = "vramscope.plan-feedback/1"


class FeedbackStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: what the plan said, and what was measured on the rank that had most. None is unmeasured."""

    stage: int
    """Pipeline coordinate, from 0."""
    blocks: int
    """Transformer blocks that the plan gives it."""
    planned_bytes: int
    """Peak that the plan says for one rank: computed, not measured."""
    ranks: int
    """Ranks of the stage that were seen."""
    allocated_bytes: int | None = None
    """Most bytes of live tensors."""
    reserved_bytes: int | None = None
    """Most bytes in segments of the allocator."""
    used_bytes: int | None = None
    """Most that was in use on a device of the stage, by whatever process."""
    difference_bytes: int | None = None
    """Measured less planned, by the figure that `PlanFeedback.basis` names."""
    factor: float
    """Measured over planned; where the stage was not measured, the median of the others."""
    is_factor_assumed: bool = False
    """Whether it is that median."""


class FeedbackSplit(msgspec.Struct, frozen=True, kw_only=True):
    """The model in stages, with what each is expected to need: planned bytes times the stage's factor."""

    blocks: tuple[int, ...]
    """Transformer blocks of each stage."""
    layers: tuple[int, ...]
    """Layers of each stage, embedding and head included."""
    expected_bytes: tuple[int, ...]
    """An estimate."""

    @property
    def most_bytes(self) -> int:
        """What the fullest stage is expected to need."""
        return max(self.expected_bytes)


class PlanFeedback(msgspec.Struct, frozen=True, kw_only=True):
    """A plan held against a job that was measured."""

    schema: str = FEEDBACK_SCHEMA
    model: str
    measured: str
    """File, or `live`."""
    job: str | None
    stages: tuple[FeedbackStage, ...]
    basis: Literal["allocated", "reserved"]
    """Measured figure that factors are made of; `reserved` where a measured stage does not tell allocated."""
    tensor: int
    """Tensor ranks that share a layer, as the ranks tell; planned figures are divided by it."""
    present: FeedbackSplit
    """The split that was planned, or that the job is said to have."""
    replanned: FeedbackSplit
    """The exact optimum under the factors."""
    saving_bytes: int
    """How much less the fullest stage is expected to need; 0 where the split stays."""
    capacity_bytes: int | None = None
    notes: tuple[str, ...] = ()
    """What limits the figures."""

    @property
    def would_change(self) -> bool:
        """Whether another split is expected to need less."""
        return self.saving_bytes > 0
