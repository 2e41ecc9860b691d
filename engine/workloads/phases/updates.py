"""What the process that trains is told, and what it reports: one JSON object a line. Loads no torch."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Protocol

import msgspec
import torch

from ...model.phase_memory import (
    MemoryLevels,
    PhaseDevice,
    PhaseMemory,
    PhaseRun,
    PhaseTraining,
    RunEnd,
    TrainingState,
)

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Written to clear_refs it sets VmHWM back to VmRSS (proc(5))."""


class Meter(Protocol):
    """Reads the memory of this process on one device."""

    def wait(self) -> None:
        """Wait until the device has done what it was given."""

    def reset_peak(self) -> None:
        """Let the peak begin anew at what is held now."""

    def read(self) -> MemoryLevels:
        """Return what is held now."""

    def read_peak(self) -> MemoryLevels:
        """Return the most that was held since the peak was reset."""


class CudaMeter:
    """The caching allocator of the current CUDA device, real or simulated."""

    def wait(self) -> None:
        """Wait for all kernels."""
        torch.cuda.synchronize()

    def reset_peak(self) -> None:
        """Reset the allocator's peak counters."""
        torch.cuda.reset_peak_memory_stats()

    def read(self) -> MemoryLevels:
        """Return allocated and reserved bytes."""
        return MemoryLevels(
            allocated_bytes=torch.cuda.memory_allocated(), reserved_bytes=torch.cuda.memory_reserved()
        )

    def read_peak(self) -> MemoryLevels:
        """Return the peaks of both; they need not be of one moment."""
        return MemoryLevels(
            allocated_bytes=torch.cuda.max_memory_allocated(),
            reserved_bytes=torch.cuda.max_memory_reserved(),
        )


class ResidentMeter:
    """Resident memory of this process, in the place of what an allocator would hold."""

    def __init__(self) -> None:
        self._can_reset = True

    def wait(self) -> None:
        """The host has done what it was given."""

    def reset_peak(self) -> None:
        """Reset the kernel's peak; where that is not allowed, peaks stay unmeasured."""
        try:
            _CLEAR.write_text(_RESET_PEAK)
        except OSError:
            self._can_reset = False

    def read(self) -> MemoryLevels:
        """Return what is resident."""
        return MemoryLevels(allocated_bytes=_read_status("VmRSS:"), reserved_bytes=None)

    def read_peak(self) -> MemoryLevels:
        """Return the most that was resident."""
        peak = _read_status("VmHWM:") if self._can_reset else None
        return MemoryLevels(allocated_bytes=peak, reserved_bytes=None)


class PhaseRecorder:
    """Measures phases and reports each as it ends.

    Args:
        meter: Of the device.
        writer: Where reports go.
    """

    def __init__(self, meter: Meter, writer: UpdateWriter) -> None:
        self._meter = meter
        self._writer = writer

    @contextmanager
    def measure(self, phase: str, step: int | None = None) -> Iterator[None]:
        """Measure what runs inside; a step below one is warm-up, and its phases are not reported."""
        is_told = step is None or step > 0
        self._writer.send(RunUpdate(began=phase, began_step=step if is_told else None))
        self._meter.wait()
        self._meter.reset_peak()
        before = self._meter.read()
        began_s = time.perf_counter()
        yield
        self._meter.wait()
        seconds = time.perf_counter() - began_s
        after = self._meter.read()
        peak = self._meter.read_peak()
        if is_told:
            measured = PhaseMemory(
                phase=phase, step=step, before=before, after=after, peak=peak, seconds=seconds
            )
            self._writer.send(RunUpdate(phase=measured))


def _read_status(key: str) -> int | None:
    """Return bytes of a line of /proc/self/status, which tells kB; None where there is none."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), None)


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
    """Return a run with what is new in it."""
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
