"""Memory of a run by phase as files of other profilers tell it. None is what a file does not tell."""

from typing import Literal

import msgspec

from .phase_memory import MemoryLevels, PhaseMemory, PhaseRun, RunEnd

PhaseRecordFormat = Literal["phase profiler log", "FSDP profiler", "single-GPU profiler", "profiler summary"]
"""Captured output of Opacus's phase profiler; results of its siblings, in GiB or in bytes; their summary."""

UNKNOWN = MemoryLevels(allocated_bytes=None, reserved_bytes=None)


class RecordedPhase(PhaseMemory, frozen=True, kw_only=True):
    """One phase as it was written down."""

    told: MemoryLevels = UNKNOWN
    """The difference as the file says it: finer than that of two rounded figures, or all that there is."""

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
        """What is reserved after it and was not before."""
        return (
            super().reserved_difference_bytes
            if self.told.reserved_bytes is None
            else self.told.reserved_bytes
        )


class PhaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a file tells of one run."""

    format: PhaseRecordFormat
    device: str | None = None
    """As PyTorch names its kind: `cuda`, `cpu`."""
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
    """In order and by the file's own names; those that hold others come before them."""
    losses: tuple[float | None, ...] = ()
    peak: MemoryLevels = UNKNOWN
    """The most of the whole run."""
    final: MemoryLevels = UNKNOWN
    """What was held at the end."""
    breakdown: dict[str, int] = {}
    """Bytes by phase as the profiler sums them up, by its own rule."""
    duration_s: float | None = None
    end: RunEnd = "finished"
    failed_phase: str | None = None
    requested_bytes: int | None = None
    """What was asked for when memory ran out."""


class PhaseFile(msgspec.Struct, frozen=True, kw_only=True):
    """What one file holds: runs of ours, or records of other profilers."""

    file: str
    """Its name."""
    trainings: tuple[tuple[PhaseRun, ...], ...] = ()
    """Of ours: the runs of all ranks of each."""
    records: tuple[PhaseRecord, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences about what the figures are and what was left out."""
