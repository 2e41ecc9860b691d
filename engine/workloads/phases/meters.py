"""Meters of memory: what an allocator holds, or what is resident, before, after and most in a phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from ...model.phase_memory import MemoryLevels, PhaseMemory
from .updates import RunUpdate, UpdateWriter

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
