"""What is measured of a phase, and what is reported when it fails."""

from __future__ import annotations

import re
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol

import torch

from ...model.phase_memory import MemoryLevels, PhaseMemory
from ...text import fit_to_reader
from .models import RefusedError, UserError
from .updates import RunUpdate, UpdateWriter

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
# Written to clear_refs it sets VmHWM back to VmRSS (proc(5)).
_RESET_PEAK = "5"


class Meter(Protocol):
    """Reads the memory of this process on one device."""

    def wait(self) -> None:
        """Wait until the device has finished all work."""

    def reset_peak(self) -> None: ...

    def read(self) -> MemoryLevels: ...

    def read_peak(self) -> MemoryLevels:
        """Since the peak was reset."""


class CudaMeter:
    """The caching allocator of the current CUDA device, real or simulated."""

    def wait(self) -> None:
        torch.cuda.synchronize()

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def read(self) -> MemoryLevels:
        return MemoryLevels(
            allocated_bytes=torch.cuda.memory_allocated(), reserved_bytes=torch.cuda.memory_reserved()
        )

    def read_peak(self) -> MemoryLevels:
        """Allocated and reserved; they need not be of one moment."""
        return MemoryLevels(
            allocated_bytes=torch.cuda.max_memory_allocated(),
            reserved_bytes=torch.cuda.max_memory_reserved(),
        )


class ResidentMeter:
    """Resident memory of this process, in place of an allocator's."""

    def __init__(self) -> None:
        self._can_reset = True

    def wait(self) -> None: ...

    def reset_peak(self) -> None:
        """Reset the kernel's peak; if that is not allowed, peaks stay unmeasured."""
        try:
            _CLEAR.write_text(_RESET_PEAK)
        except OSError:
            self._can_reset = False

    def read(self) -> MemoryLevels:
        return MemoryLevels(allocated_bytes=_read_status("VmRSS:"), reserved_bytes=None)

    def read_peak(self) -> MemoryLevels:
        peak = _read_status("VmHWM:") if self._can_reset else None
        return MemoryLevels(allocated_bytes=peak, reserved_bytes=None)


class PhaseRecorder:
    """Measures phases and reports each as it ends."""

    def __init__(self, meter: Meter, writer: UpdateWriter) -> None:
        self._meter = meter
        self._writer = writer

    @contextmanager
    def measure(self, phase: str, step: int | None = None) -> Iterator[None]:
        """Measure the block; a step below one is warm-up, and its phases are not reported."""
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
    """Return bytes of a line of /proc/self/status, which has kB; None if there is none."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), None)


_ASKED = re.compile(r"Tried to allocate (\d+(?:\.\d+)?) (bytes|KiB|MiB|GiB)")
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_HOST_IS_FULL = "real tensors need real memory"
# In messages of gloo when a rank is no longer there.
_PEER_IS_GONE = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
_NEEDS_OPACUS = (
    "Opacus is not installed here: pip install 'vramscope[train]', or train without differential privacy"
)


def describe_failure(error: BaseException, notices: Sequence[str], meter: Meter) -> RunUpdate:
    """Return the last update of a run that did not finish.

    If the user's own code raised, its traceback goes to stderr.
    """
    if isinstance(error, torch.OutOfMemoryError):
        return RunUpdate(
            end="out_of_memory",
            requested_bytes=read_asked_bytes(str(error)),
            held=meter.read_peak(),
            # PyTorch's message goes on with used memory, which is reported as numbers.
            error=_read_first_line(error).partition(" Including non-PyTorch")[0].strip(),
        )
    if isinstance(error, RefusedError):
        return RunUpdate(obstacle="refused", refusal=error.args)
    if isinstance(error, UserError):
        _print_theirs(error.__cause__ or error)
        return RunUpdate(obstacle="refused", refusal=error.args)
    if isinstance(error, SystemExit) and notices:
        is_full = _HOST_IS_FULL in notices[-1]
        return RunUpdate(end="failed", error=notices[-1], obstacle="host_full" if is_full else None)
    return _describe_error(error)


def _describe_error(error: BaseException) -> RunUpdate:
    """Explain any other error: no Opacus, another rank gone, or the code that is trained raised."""
    if isinstance(error, ModuleNotFoundError) and error.name == "opacus":
        return RunUpdate(obstacle="no_package", error=_NEEDS_OPACUS)
    if any(words in str(error) for words in _PEER_IS_GONE):
        return RunUpdate(end="failed", error="another rank had ended before")
    _print_theirs(error)
    return RunUpdate(end="failed", error=f"{type(error).__name__}: {_read_first_line(error)}")


def read_asked_bytes(message: str) -> int | None:
    """Return the requested bytes of an out-of-memory error; None if it does not say."""
    found = _ASKED.search(message)
    return round(float(found.group(1)) * _UNITS[found.group(2)]) if found else None


def _print_theirs(error: BaseException) -> None:
    lines = traceback.format_exception(type(error), error, _skip_ours(error.__traceback__), chain=False)
    sys.stderr.write(fit_to_reader("".join(lines), sys.stderr))


def _skip_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame on that is neither ours nor the import machinery's."""
    import contextlib
    import importlib

    folder = Path(__file__).parent
    machinery = Path(importlib.__file__).parent
    ours = (str(folder), "<frozen importlib", str(machinery), contextlib.__file__)
    while trace is not None and trace.tb_next is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(ours):
            break
        trace = trace.tb_next
    return trace


def _read_first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no message")
