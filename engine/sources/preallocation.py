"""Processes of JAX on a device: they take most of it when they start, whatever lives in it."""

from pathlib import Path

from msgspec.structs import replace

from ..model import DeviceSample, ProcessReading
from .processes import PROC, list_mapped_files, read_variables

# Processes whose answer is kept; each is looked at once.
_MOST_KNOWN = 4096
# What a program of JAX has loaded once it uses a device.
_FOLDERS = ("/jaxlib/", "/jax_plugins/")
_LOCATIONS = ("here", "container")


class PreallocationWatch:
    """Finds the devices on which JAX took a share when it started.

    Args:
        proc: Where processes are described.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._known: dict[tuple[int, float | None], tuple[float, str] | None] = {}

    def collect(self, devices: tuple[DeviceSample, ...]) -> tuple[tuple[DeviceSample, ...], tuple[str, ...]]:
        """Return the devices, their processes with what they have preallocated, and a sentence for each."""
        notes: list[str] = []
        described = tuple(self._describe(device, notes) for device in devices)
        return (described, tuple(notes)) if notes else (devices, ())

    def _describe(self, device: DeviceSample, notes: list[str]) -> DeviceSample:
        found = [(process, self._look(process)) for process in device.processes or ()]
        if not any(known for _, known in found):
            return device
        processes = []
        for process, known in found:
            if known is None:
                processes.append(process)
                continue
            percent, said = known
            notes.append(f"{device.label}: {said} (process {process.pid})")
            processes.append(replace(process, preallocated_percent=percent))
        return replace(device, processes=tuple(processes))

    def _look(self, process: ProcessReading) -> tuple[float, str] | None:
        if process.location not in _LOCATIONS:
            return None
        key = process.pid, process.started_s
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._ask(process.pid)
        return self._known[key]

    def _ask(self, pid: int) -> tuple[float, str] | None:
        """Return what a process of JAX that we may read preallocates: a share, and a sentence."""
        try:
            paths = [file.path for file in list_mapped_files(pid, self._proc)]
        except OSError:
            return None
        if not any(folder in path for path in paths for folder in _FOLDERS):
            return None
        from ..probe.jax_backend import describe_preallocation, preallocates, read_fraction

        variables = read_variables(pid, self._proc)
        if not preallocates(variables):
            return None
        return 100 * min(1.0, read_fraction(variables)), describe_preallocation(variables)
