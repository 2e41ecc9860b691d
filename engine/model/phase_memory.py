"""Memory of a training run by phase. None means unmeasured; never 0 or a guess."""

from collections.abc import Iterable
from typing import Literal

import msgspec

PrivacyMode = Literal["hooks", "functorch", "ghost", "none"]
"""How Opacus takes gradients by sample: hooks, torch.func, norms alone (ghost clipping); or not at all."""
PRIVACY_MODES: tuple[PrivacyMode, ...] = ("hooks", "functorch", "ghost", "none")
Precision = Literal["fp32", "bf16", "amp"]
"""Of weights and arithmetic; `amp` keeps weights in fp32 and runs under autocast to bf16."""
OptimizerName = Literal["sgd", "adam", "adamw"]
Strategy = Literal["ddp", "fsdp2"]
RunEnd = Literal["finished", "out_of_memory", "interrupted", "failed"]

SETUP_PHASES = ("Model Creation", "DP Setup")
STEP_PHASES = ("Forward", "Loss", "Backward", "Optimizer Step", "Zero Gradients")
"""Phases of one training step, in order."""


class PhaseTraining(msgspec.Struct, frozen=True, kw_only=True):
    """What is trained, and how: all that a run by phase is told."""

    model_size: str | None = "small"
    """Name of a preset; None where a factory or a folder of Hugging Face gives the model."""
    factory: str | None = None
    """`module:function` that makes the model."""
    hugging_face: str | None = None
    """Folder with config.json, read by transformers."""
    batch_size: int = 1
    seq_length: int = 128
    num_steps: int = 3
    warmup_steps: int = 0
    """Steps before the first that is told."""
    learning_rate: float = 1e-4
    noise_multiplier: float = 1.0
    max_grad_norm: float = 1.0
    privacy: PrivacyMode = "hooks"
    optimizer: OptimizerName = "sgd"
    precision: Precision = "fp32"
    is_checkpointed: bool = False
    """Whether the activations inside blocks are computed anew in the backward pass."""
    strategy: Strategy | None = None
    """How ranks of torchrun share the model; None for one process."""
    is_fixed: bool = False
    """Whether `ModuleValidator.fix` may replace what Opacus cannot handle."""
    seed: int = 42
    """Of weights, tokens and noise."""


class MemoryLevels(msgspec.Struct, frozen=True, kw_only=True):
    """What the allocator held at one moment; on the CPU the process's resident memory stands for it."""

    allocated_bytes: int | None
    reserved_bytes: int | None


class PhaseMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of one step: before, after, and the most in between."""

    phase: str
    """One of `SETUP_PHASES` or `STEP_PHASES`."""
    step: int | None = None
    """From 1 on, warm-up steps not counted; None for the phases before the first step."""
    before: MemoryLevels
    after: MemoryLevels
    peak: MemoryLevels
    seconds: float | None = None
    """How long it took; on a simulated device the host's time."""

    @property
    def allocated_difference_bytes(self) -> int | None:
        """What is allocated after it and was not before; negative where it freed more."""
        if self.before.allocated_bytes is None or self.after.allocated_bytes is None:
            return None
        return self.after.allocated_bytes - self.before.allocated_bytes

    @property
    def reserved_difference_bytes(self) -> int | None:
        """What is reserved after it and was not before."""
        if self.before.reserved_bytes is None or self.after.reserved_bytes is None:
            return None
        return self.after.reserved_bytes - self.before.reserved_bytes


class TrainingState(msgspec.Struct, frozen=True, kw_only=True):
    """What of the memory is known by name, counted storage by storage after the last backward pass."""

    parameters: int
    """How many there are."""
    parameter_bytes: int
    gradient_bytes: int
    per_sample_gradient_bytes: int
    """`grad_sample` of Opacus; 0 in ghost clipping and in plain training."""
    optimizer_bytes: int
    """State of the optimizer, after its last step."""


class PhaseDevice(msgspec.Struct, frozen=True, kw_only=True):
    """What the run was measured on."""

    kind: Literal["cuda", "cpu", "simulated"]
    name: str
    """As people know it: `NVIDIA H100 80GB HBM3`, `Simulated 24 GiB GPU`, `CPU (resident memory)`."""
    total_bytes: int | None = None
    """Capacity of the card; on the CPU the host's memory."""
    is_fake: bool = False
    """Simulated without storage: bytes are followed, values are not computed."""
    note: str | None = None
    """Why it is another device than was asked for, or how."""


class PhaseRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run by phase of one rank, as far as it came."""

    training: PhaseTraining
    device: PhaseDevice
    rank: int = 0
    world_size: int = 1
    model: dict[str, int] = {}
    """Sizes of the model: `vocab_size`, `hidden_size`, `intermediate_size`, `num_layers`, `num_heads`,
    `num_kv_heads`; empty for a model of a factory."""
    phases: tuple[PhaseMemory, ...] = ()
    """In order: those before the first step, then those of each step, warm-up left out."""
    losses: tuple[float | None, ...] = ()
    """By step; None where values are not computed."""
    state: TrainingState | None = None
    end: RunEnd = "finished"
    failed_phase: str | None = None
    """In which phase it ended, where it did not finish."""
    failed_step: int | None = None
    requested_bytes: int | None = None
    """What was asked for when memory ran out, to the two decimals of PyTorch's message."""
    held: MemoryLevels | None = None
    """What was held when memory ran out: the most of that phase."""
    error: str | None = None
    """What was wrong, in one line, where it did not finish."""
    notes: tuple[str, ...] = ()
    """Sentences about what was done: modules replaced, figures that are modelled."""

    @property
    def peak(self) -> MemoryLevels:
        """The most of all phases."""
        return MemoryLevels(
            allocated_bytes=_find_most(each.peak.allocated_bytes for each in self.phases),
            reserved_bytes=_find_most(each.peak.reserved_bytes for each in self.phases),
        )


def _find_most(values: Iterable[int | None]) -> int | None:
    """Return the largest of what was measured."""
    return max((each for each in values if each is not None), default=None)
