"""The source `nvml`: finds the NVIDIA devices of this machine, keyed by UUID."""

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from ...errors import SourceUnavailableError
from ..processes import ProcessTable
from .enumeration import DeviceEnumerator, Enumeration
from .library import NvmlLibrary
from .missing import HungReader, LostReader, list_gpu_folders
from .reader import NvmlReader

RESTART_AFTER_S = 30.0
MOST_RESTART_AFTER_S = 300.0
"""Time between two restarts of NVML for a device that stays lost, doubled each time up to the second figure:
starting it costs seconds where no persistence daemon runs."""


class NvmlSource:
    """NVIDIA devices through NVML.

    MIG instances follow their GPU as devices of their own with its `parent_uuid`; their memory is part of
    the GPU's, so whoever sums devices skips those with a parent. CUDA_VISIBLE_DEVICES has no effect: a
    monitor shows what is there.

    Args:
        root: Where the machine's /proc is found.
        clock_s: Monotonic seconds.
    """

    name = "nvml"

    def __init__(self, root: Path = Path("/"), clock_s: Callable[[], float] = monotonic) -> None:
        self._proc = root / "proc"
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._library = NvmlLibrary(self._proc)
        self._enumerator = DeviceEnumerator(self._library, ProcessTable(root, clock_s), self._proc, clock_s)
        self._gpu_folders: frozenset[str] = frozenset()
        self._restart_due_s = clock_s()
        self._restart_after_s = RESTART_AFTER_S

    def discover(self) -> list[NvmlReader | LostReader | HungReader]:
        """Start NVML where it does not run, and return its devices in index order.

        NVML lists the devices that it found when it was started. It is started anew when it answers
        nothing any more, when a device is lost, and when the driver knows of more or fewer GPUs than then;
        the readers that were given out before are dead after that. While a call hangs in the driver NVML is
        not stopped, and the device that it asked for is a reader which says so.

        Raises:
            SourceUnavailableError: There is nothing to measure; the text says why and what to do.
        """
        with self._lock:
            was_open = self._library.is_open
            self._start()
            try:
                found = self._enumerator.enumerate()
            except SourceUnavailableError:
                if not was_open:
                    self._stop()
                    raise
                found = self._restart()
            if self._is_restart_due(found) and was_open:
                found = self._restart()
            if not found.readers and found.lost_count == 0:
                self._stop()
                raise SourceUnavailableError(
                    "The NVIDIA driver runs but reports no device; see `lspci | grep -i nvidia` and "
                    "`dmesg | grep -i nvrm`, or pass the GPUs into this container."
                )
            return found.readers

    def close(self) -> None:
        """Stop NVML, unless a call hangs in it."""
        with self._lock:
            self._stop()

    def _start(self) -> None:
        if not self._library.is_open:
            self._library.open()
            self._gpu_folders = list_gpu_folders(self._proc)

    def _stop(self) -> None:
        if not self._enumerator.is_hanging:
            self._library.close()

    def _is_restart_due(self, found: Enumeration) -> bool:
        has_changed = found.lost_count > 0 or list_gpu_folders(self._proc) != self._gpu_folders
        if not has_changed:
            self._restart_after_s = RESTART_AFTER_S
        return has_changed and self._clock_s() >= self._restart_due_s and not self._enumerator.is_hanging

    def _restart(self) -> Enumeration:
        self._restart_due_s = self._clock_s() + self._restart_after_s
        self._restart_after_s = min(2 * self._restart_after_s, MOST_RESTART_AFTER_S)
        self._stop()
        self._start()
        try:
            return self._enumerator.enumerate()
        except SourceUnavailableError:
            self._stop()
            raise
