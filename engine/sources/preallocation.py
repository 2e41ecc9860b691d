"""Processes of JAX on a device: they take most of it when they start, whatever lives in it."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from ..model import DeviceSample, ProcessReading
from .processes import PROC, list_mapped_files, read_variables

# Processes whose answer is kept; each is looked at once.
_MOST_KNOWN = 4096
# What a program of JAX has loaded once it uses a device.
_FOLDERS = ("/jaxlib/", "/jax_plugins/")
_LOCATIONS = ("here", "container")


class PreallocationWatch:
    """Says of which devices JAX has taken a share when it started.

    Args:
        proc: Where processes are described.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._known: dict[tuple[int, float | None], str | None] = {}

    def collect(self, devices: Sequence[DeviceSample]) -> tuple[str, ...]:
        """Return a sentence for each process of JAX on a device that is preallocated."""
        return tuple(chain.from_iterable(map(self._describe, devices)))

    def _describe(self, device: DeviceSample) -> Iterator[str]:
        for process in device.processes or ():
            said = self._look(process)
            if said is not None:
                yield f"{device.label}: {said} (process {process.pid})"

    def _look(self, process: ProcessReading) -> str | None:
        if process.location not in _LOCATIONS:
            return None
        key = process.pid, process.started_s
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._ask(process.pid)
        return self._known[key]

    def _ask(self, pid: int) -> str | None:
        """Return what a process's variables mean, if it has loaded JAX and we may read it."""
        try:
            paths = [file.path for file in list_mapped_files(pid, self._proc)]
        except OSError:
            return None
        if not any(folder in path for path in paths for folder in _FOLDERS):
            return None
        from ..probe.jax_backend import describe_preallocation, preallocates

        variables = read_variables(pid, self._proc)
        return describe_preallocation(variables) if preallocates(variables) else None
