"""Memory of the phases of a step, by sequence length, and what a file of phases holds."""

from typing import Literal

import msgspec

from ..unmeasured import most_known

PrivacyMode = Literal["hooks", "functorch", "ghost", "none"]
"""How Opacus computes per-sample gradients: hooks, torch.func, only their norms (ghost clipping); or none."""
PRIVACY_MODES: tuple[PrivacyMode, ...] = ("hooks", "functorch", "ghost", "none")
Precision = Literal["fp32", "bf16", "amp"]
"""Type of weights and arithmetic; `amp` keeps weights in fp32 and runs under autocast to bf16."""
OptimizerName = Literal["sgd", "adam", "adamw"]
Strategy = Literal["ddp", "fsdp2"]
RunEnd = Literal["finished", "out_of_memory", "interrupted", "failed"]

SETUP_PHASES = ("Model Creation", "DP Setup")
STEP_PHASES = ("Forward", "Loss", "Backward", "Optimizer Step", "Zero Gradients")
"""Phases of one training step, in order."""


class PhaseTraining(msgspec.Struct, frozen=True, kw_only=True):
    """What to train, and how: all inputs of a run by phase."""

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
    """Steps before the first reported one."""
    learning_rate: float = 1e-4
    noise_multiplier: float = 1.0
    max_grad_norm: float = 1.0
    privacy: PrivacyMode = "hooks"
    optimizer: OptimizerName = "sgd"
    precision: Precision = "fp32"
    is_checkpointed: bool = False
    """Whether the activations inside blocks are recomputed in the backward pass."""
    strategy: Strategy | None = None
    """How ranks of torchrun share the model; None for one process."""
    is_fixed: bool = False
    """Whether `ModuleValidator.fix` may replace what Opacus cannot handle."""
    seed: int = 42
    """Random seed of weights, tokens and noise."""


class MemoryLevels(msgspec.Struct, frozen=True, kw_only=True):
    """What the allocator had at one moment; on the CPU, the process's resident memory."""

    allocated_bytes: int | None
    reserved_bytes: int | None


class PhaseMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of one step: memory before, after, and at its peak."""

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
        """Allocated bytes after it less those before; negative where it freed more."""
        if self.before.allocated_bytes is None or self.after.allocated_bytes is None:
            return None
        return self.after.allocated_bytes - self.before.allocated_bytes

    @property
    def reserved_difference_bytes(self) -> int | None:
        """Reserved bytes after it less those before."""
        if self.before.reserved_bytes is None or self.after.reserved_bytes is None:
            return None
        return self.after.reserved_bytes - self.before.reserved_bytes


class TrainingState(msgspec.Struct, frozen=True, kw_only=True):
    """Memory by kind of tensor, counted by storage after the last backward pass."""

    parameters: int
    """Number of parameters."""
    parameter_bytes: int
    gradient_bytes: int
    per_sample_gradient_bytes: int
    """`grad_sample` of Opacus; 0 in ghost clipping and in plain training."""
    optimizer_bytes: int
    """Optimizer state after the last step."""


class PhaseDevice(msgspec.Struct, frozen=True, kw_only=True):
    """What the run was measured on."""

    kind: Literal["cuda", "cpu", "simulated"]
    name: str
    """Its usual name: `NVIDIA H100 80GB HBM3`, `Simulated 24 GiB GPU`, `CPU (resident memory)`."""
    total_bytes: int | None = None
    """Capacity of the card; on the CPU the host's memory."""
    is_fake: bool = False
    """Simulated without storage: bytes are followed, values are not computed."""
    note: str | None = None
    """Why, or how, it is not the device that was requested."""


class PhaseRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run by phase of one rank, as far as it got."""

    training: PhaseTraining
    device: PhaseDevice
    rank: int = 0
    world_size: int = 1
    model: dict[str, int] = {}
    """Sizes of the model: `vocab_size`, `hidden_size`, `intermediate_size`, `num_layers`, `num_heads`,
    `num_kv_heads`; empty for a model of a factory."""
    phases: tuple[PhaseMemory, ...] = ()
    """In order: those before the first step, then those of each step, without warm-up."""
    losses: tuple[float | None, ...] = ()
    """By step; None where values are not computed."""
    state: TrainingState | None = None
    end: RunEnd = "finished"
    failed_phase: str | None = None
    """In which phase it ended, where it did not finish."""
    failed_step: int | None = None
    requested_bytes: int | None = None
    """Bytes requested when memory ran out, to the two decimals of PyTorch's message."""
    held: MemoryLevels | None = None
    """Memory in use when it ran out: the peak of that phase."""
    error: str | None = None
    """The error in one line, where it did not finish."""
    notes: tuple[str, ...] = ()
    """Sentences about what was done: replaced modules, modelled values."""

    @property
    def peak(self) -> MemoryLevels:
        """The most of all phases."""
        return MemoryLevels(
            allocated_bytes=most_known(each.peak.allocated_bytes for each in self.phases),
            reserved_bytes=most_known(each.peak.reserved_bytes for each in self.phases),
        )


FitSize = Literal["batch size", "sequence length"]


class LengthPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One run: one algorithm at one length."""

    privacy: PrivacyMode
    seq_length: int
    run: PhaseRun | None = None
    """The run as far as it got; None where it could not start."""
    refusal: str | None = None
    """Why it could not be started."""


class LengthStudy(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that differ in the length of their sequences, and in the algorithm where several are compared."""

    training: PhaseTraining
    """What all have in common; length and algorithm are those of each point."""
    device: str
    """As it was asked for, such as `simulate:24GiB`."""
    lengths: tuple[int, ...]
    """Tokens, ascending."""
    privacy_modes: tuple[PrivacyMode, ...]
    points: tuple[LengthPoint, ...] = ()
    """In the order in which they ran; fewer than were asked for where it was interrupted."""
    is_interrupted: bool = False

    def find_point(self, privacy: PrivacyMode, seq_length: int) -> LengthPoint | None:
        """Return a point; None where it was not reached."""
        return next(
            (each for each in self.points if (each.privacy, each.seq_length) == (privacy, seq_length)), None
        )

    @property
    def runs(self) -> tuple[PhaseRun, ...]:
        """All that was started."""
        return tuple(each.run for each in self.points if each.run is not None)

    @property
    def is_simulated(self) -> bool:
        """Whether any value is from a simulated device."""
        return any(run.device.kind == "simulated" for run in self.runs)


class FitTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One size that was tried."""

    size: int
    """Sequences of a batch, or tokens of a sequence."""
    has_fitted: bool
    peak_reserved_bytes: int | None = None
    """None where it ran out of memory, or was not measured."""
    reason: str | None = None
    """Why it did not fit."""


class FitSearch(msgspec.Struct, frozen=True, kw_only=True):
    """The largest size that runs on a card, and the runs that show it."""

    privacy: PrivacyMode
    varied: FitSize
    fixed: int
    """The fixed one of both."""
    step: int
    """Sizes tried are multiples of this."""
    capacity_bytes: int
    context_bytes: int
    """Bytes of the card reserved for the CUDA context: an assumption."""
    device: str
    """Name of the device it ran on."""
    is_simulated: bool
    trials: tuple[FitTrial, ...] = ()
    """Sizes tried, in order."""
    limit: int | None = None
    """Largest size to consider."""
    refusal: str | None = None
    """Why the search ended without an answer."""

    @property
    def largest(self) -> FitTrial | None:
        """The largest size that ran; None where none did."""
        return max((it for it in self.trials if it.has_fitted), key=lambda it: it.size, default=None)

    @property
    def refused(self) -> FitTrial | None:
        """The smallest size above it that did not run; None where none was met."""
        least = 0 if self.largest is None else self.largest.size
        above = (it for it in self.trials if not it.has_fitted and it.size > least)
        return min(above, key=lambda it: it.size, default=None)

    @property
    def is_settled(self) -> bool:
        """Whether the largest that ran and the smallest that did not are neighbours, or the limit ran."""
        largest = self.largest
        refused = self.refused
        if largest is not None and largest.size == self.limit:
            return True
        below = 0 if largest is None else largest.size
        return refused is not None and refused.size - below == self.step


PhaseRecordFormat = Literal["phase profiler log", "FSDP profiler", "single-GPU profiler", "profiler summary"]
"""Captured output of Opacus's phase profiler; results of its siblings, in GiB or in bytes; their summary."""

UNKNOWN = MemoryLevels(allocated_bytes=None, reserved_bytes=None)


class RecordedPhase(PhaseMemory, frozen=True, kw_only=True):
    """One phase as recorded in the file."""

    told: MemoryLevels = UNKNOWN
    """The difference as in the file: more exact than that of two rounded sizes, or the only one."""

    @property
    def allocated_difference_bytes(self) -> int | None:
        """What is allocated after it and was not before."""
        return (
            super().allocated_difference_bytes
            if self.told.allocated_bytes is None
            else self.told.allocated_bytes
        )

    @property
    def reserved_difference_bytes(self) -> int | None:
        """Reserved bytes after it less those before."""
        return (
            super().reserved_difference_bytes
            if self.told.reserved_bytes is None
            else self.told.reserved_bytes
        )


class PhaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as a file describes it."""

    format: PhaseRecordFormat
    device: str | None = None
    """Kind of device in PyTorch's words: `cuda`, `cpu`."""
    is_simulated: bool = False
    model_size: str | None = None
    batch_size: int | None = None
    physical_batch_size: int | None = None
    """Most samples that go through the model at once."""
    seq_length: int | None = None
    num_steps: int | None = None
    is_lora: bool | None = None
    lora_rank: int | None = None
    model: dict[str, int] = {}
    """Sizes of the model: `vocab_size`, `hidden_size`, `num_layers`, `num_heads`."""
    phases: tuple[RecordedPhase, ...] = ()
    """In order and with the file's own names; a phase comes before those inside it."""
    losses: tuple[float | None, ...] = ()
    peak: MemoryLevels = UNKNOWN
    """Peak of the whole run."""
    final: MemoryLevels = UNKNOWN
    """What was in use at the end."""
    breakdown: dict[str, int] = {}
    """Bytes by phase as the profiler sums them, by its own rule."""
    duration_s: float | None = None
    end: RunEnd = "finished"
    failed_phase: str | None = None
    requested_bytes: int | None = None
    """Bytes requested when memory ran out."""


class PhaseFile(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of one file: our runs, or records of other profilers."""

    file: str
    """Its name."""
    trainings: tuple[tuple[PhaseRun, ...], ...] = ()
    """Our trainings, each with the runs of all its ranks."""
    records: tuple[PhaseRecord, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about what the values are and what was left out."""
