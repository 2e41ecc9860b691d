"""Request to the process that trains, and its reports: one JSON object a line. Loads no torch."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Literal

import msgspec

from ...errors import ErrorPart
from ...model.phase_memory import (
    MemoryLevels,
    PhaseDevice,
    PhaseMemory,
    PhaseRun,
    PhaseTraining,
    RunEnd,
    TrainingState,
)

# Why there is no run: the request is impossible, a package is missing, no CUDA, or no host memory for real
# tensors.
Obstacle = Literal["refused", "no_package", "no_cuda", "host_full"]


class PhaseRequest(msgspec.Struct, frozen=True, kw_only=True):
    training: PhaseTraining
    kind: Literal["cuda", "cpu", "simulated"]
    is_fake: bool = False
    # Why it is this device, for `PhaseDevice.note`.
    note: str | None = None


class RunUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is new in a run; None or empty is unchanged."""

    device: PhaseDevice | None = None
    rank: int | None = None
    world_size: int | None = None
    model: dict[str, int] | None = None
    # The phase that begins; it is the one that failed, should nothing more come.
    began: str | None = None
    began_step: int | None = None
    phase: PhaseMemory | None = None
    losses: tuple[float | None, ...] = ()
    state: TrainingState | None = None
    notes: tuple[str, ...] = ()
    end: RunEnd | None = None
    requested_bytes: int | None = None
    held: MemoryLevels | None = None
    error: str | None = None
    # There is no run, or none that counts; `error` or `refusal` says why.
    obstacle: Obstacle | None = None
    # Parts of the error of whoever asked for the run; it names settings as they do.
    refusal: tuple[ErrorPart, ...] = ()


class UpdateWriter:
    """Sends updates to the process that started this one. `descriptor`: a pipe, open for writing."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, update: RunUpdate) -> None:
        """Send an update; end the process (SystemExit) if nobody reads any more."""
        rest = msgspec.json.encode(update) + b"\n"
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except BrokenPipeError:
            raise SystemExit(1) from None

    def close(self) -> None:
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
