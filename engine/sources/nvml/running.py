"""Which processes hold memory on a device: NVML's process lists, whatever layout the driver writes.

NVML has three versions of each list. The struct of version 3 was longer in some drivers of the 535 series
(`usedGpuCcProtectedMemory`) than before and after; read with the wrong length it yields garbage pids. So a
list is believed only when every entry is possible, and otherwise read in the next layout.
"""

import ctypes
import struct
from typing import NamedTuple

from .codes import GONE_CODES, Code
from .library import NvmlLibrary

LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
MOST_PIDS = 1 << 22
"""Largest pid that Linux gives (PID_MAX_LIMIT)."""
NOT_AVAILABLE = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE: the driver does not tell the memory of this process."""
LONGEST_ENTRY_BYTES = 32
FIRST_ROOM = 32
"""Entries that a buffer holds at first; it grows as needed."""


class _Layout(NamedTuple):
    """One version of the function with one layout of its entries."""

    suffix: str
    entry: struct.Struct


_WITH_INSTANCE = struct.Struct("=I4xQII")
_WITH_PROTECTED = struct.Struct("=I4xQII8x")
_LAYOUTS = (
    _Layout("_v3", _WITH_INSTANCE),
    _Layout("_v3", _WITH_PROTECTED),
    _Layout("_v2", _WITH_INSTANCE),
    _Layout("_v2", _WITH_PROTECTED),
    _Layout("", struct.Struct("=I4xQ")),
)
_FUNCTIONS = {name: tuple(name + layout.suffix for layout in _LAYOUTS) for name in LISTS}


class RunningProcess(NamedTuple):
    """One entry of a process list."""

    pid: int
    used_bytes: int | None
    instances: tuple[int, ...]
    """GPU instance and compute instance; all ones outside MIG, empty in version 1."""


class ListRefusedError(Exception):
    """A process list could not be read; `code` is what NVML returned."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class ListBuffer:
    """Room for one list of one device; kept, because making it costs more than the call."""

    def __init__(self) -> None:
        self.count = ctypes.c_uint()
        self.count_reference = ctypes.byref(self.count)
        self.entries = ctypes.create_string_buffer(0)
        self.room = 0
        self.grow(FIRST_ROOM)

    def grow(self, room: int) -> None:
        """Make room for so many entries of the longest layout that any driver writes."""
        self.room = room
        self.entries = ctypes.create_string_buffer(room * LONGEST_ENTRY_BYTES)


class ProcessLists:
    """Reads the process lists of the devices of one library; remembers which layout made sense.

    Args:
        library: The open library.
    """

    def __init__(self, library: NvmlLibrary) -> None:
        self._library = library
        self._proven = 0
        """First layout of `_LAYOUTS` that is worth trying."""

    def read(
        self, handle: ctypes.c_void_p, total_bytes: int | None, buffer: ListBuffer
    ) -> dict[int, int | None] | None:
        """Return used bytes by pid, of compute, graphics and MPS processes together; None if none is told.

        A process that is in several lists holds its memory once; one that runs in several MIG instances
        holds it in each. A list that the device does not support is left out.

        Args:
            handle: The device.
            total_bytes: Its capacity, beyond which an entry is garbage; None where it is not known.
            buffer: The device's own; no other call may write it.

        Raises:
            ListRefusedError: The device is gone.
        """
        held: dict[tuple[int, ...], int | None] = {}
        lists = [self._read_list(name, handle, total_bytes, buffer) for name in LISTS]
        if all(processes is None for processes in lists):
            return None
        for processes in lists:
            for process in processes or ():
                key = (process.pid, *process.instances)
                known = held.get(key)
                held[key] = process.used_bytes if known is None else max(known, process.used_bytes or 0)
        return _sum_by_pid(held)

    def _read_list(
        self, name: str, handle: ctypes.c_void_p, total_bytes: int | None, buffer: ListBuffer
    ) -> list[RunningProcess] | None:
        """Return the entries of one list; None where no version of it is supported."""
        best: list[RunningProcess] | None = None
        for number in range(self._proven, len(_LAYOUTS)):
            layout = _LAYOUTS[number]
            count = self._call(_FUNCTIONS[name][number], handle, buffer)
            if count == 0:
                return []
            if count is None:
                continue
            processes = _parse(layout.entry, count, buffer)
            sane = [process for process in processes if _is_possible(process, total_bytes)]
            if len(sane) == len(processes):
                if count > 1:  # a single entry reads the same in a longer layout
                    self._proven = number
                return sane
            best = max(best or [], sane, key=len)
        return best

    def _call(self, function_name: str, handle: ctypes.c_void_p, buffer: ListBuffer) -> int | None:
        """Return the number of entries that were written; None where this version does not answer."""
        function = self._library.find(function_name)
        if function is None:
            return None
        for _ in range(3):
            buffer.count.value = buffer.room
            code = function(handle, buffer.count_reference, buffer.entries)
            if code == Code.SUCCESS:
                return buffer.count.value
            if code != Code.INSUFFICIENT_SIZE:
                break
            buffer.grow(2 * max(buffer.room, buffer.count.value))
        if code in GONE_CODES:
            raise ListRefusedError(code)
        return None


def _parse(entry: struct.Struct, count: int, buffer: ListBuffer) -> list[RunningProcess]:
    data = memoryview(buffer.entries)[: min(count, buffer.room) * entry.size]
    return [
        RunningProcess(pid, None if used == NOT_AVAILABLE else used, tuple(instances))
        for pid, used, *instances in entry.iter_unpack(data)
    ]


def _is_possible(process: RunningProcess, total_bytes: int | None) -> bool:
    if not 0 < process.pid <= MOST_PIDS:
        return False
    return process.used_bytes is None or total_bytes is None or process.used_bytes <= total_bytes


def _sum_by_pid(held: dict[tuple[int, ...], int | None]) -> dict[int, int | None]:
    by_pid: dict[int, int | None] = {}
    for (pid, *_), used_bytes in held.items():
        known = by_pid.get(pid)
        by_pid[pid] = used_bytes if known is None else known + (used_bytes or 0)
    return by_pid
