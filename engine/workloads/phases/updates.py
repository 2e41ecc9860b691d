"""What the process that trains is told, and what it reports: one JSON object a line. Loads no torch."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

import msgspec

from ...model.phase_memory import (
    MemoryLevels,
    PhaseDevice,
    PhaseMemory,
    PhaseRun,
    PhaseTraining,
    RunEnd,
    TrainingState,
)

Obstacle = Literal["refused", "no_cuda", "host_full"]
"""Why there is no run: what was asked for cannot be, no CUDA, or no host memory for real tensors."""


class PhaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a process that trains is told."""

    training: PhaseTraining
    kind: Literal["cuda", "cpu", "simulated"]
    is_fake: bool = False
    note: str | None = None
    """Why it is this device, for `PhaseDevice.note`."""


class RunUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is new in a run; what is None or empty stays as it was."""

    device: PhaseDevice | None = None
    rank: int | None = None
    world_size: int | None = None
    model: dict[str, int] | None = None
    began: str | None = None
    """The phase that begins; it is the one that failed, should nothing more come."""
    began_step: int | None = None
    phase: PhaseMemory | None = None
    losses: tuple[float | None, ...] = ()
    state: TrainingState | None = None
    notes: tuple[str, ...] = ()
    end: RunEnd | None = None
    requested_bytes: int | None = None
    held: MemoryLevels | None = None
    error: str | None = None
    obstacle: Obstacle | None = None
    """Set with `error`: there is no run, or none that counts."""


class UpdateWriter:
    """Sends updates to whoever started this process.

    Args:
        descriptor: Open for writing; a pipe.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, update: RunUpdate) -> None:
        """Send one update.

        Raises:
            SystemExit: Nobody reads any more; then nobody wants the rest.
        """
        rest = msgspec.json.encode(update) + b"\n"
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except BrokenPipeError:
            raise SystemExit(1) from None

    def close(self) -> None:
        """End the report."""
        with suppress(OSError):
            os.close(self._descriptor)


def apply_update(run: PhaseRun, update: RunUpdate) -> PhaseRun:
    changed: dict[str, object] = {
        name: value
        for name in (
            "device",
            "rank",
            "world_size",
            "model",
            "state",
            "requested_bytes",
            "held",
            "error",
            "end",
        )
        if (value := getattr(update, name)) is not None
    }
    if update.began is not None:
        changed |= {"failed_phase": update.began, "failed_step": update.began_step}
    if update.phase is not None:
        changed |= {"phases": (*run.phases, update.phase), "failed_phase": None, "failed_step": None}
    if update.end == "finished":
        changed |= {"failed_phase": None, "failed_step": None}
    changed["losses"] = (*run.losses, *update.losses)
    changed["notes"] = (*run.notes, *update.notes)
    return msgspec.structs.replace(run, **changed)
