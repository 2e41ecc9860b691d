"""Another process from outside: its memory, and all its threads stopped for a moment (ptrace(2))."""

import ctypes
import errno
import os
import time
from bisect import bisect_right
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ..errors import AttachRefusedError
from ..sources.processes import PROC

_LIBRARY = ctypes.CDLL(None, use_errno=True)
_LIBRARY.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_LIBRARY.ptrace.restype = ctypes.c_long


class Mapping(NamedTuple):
    """A line of /proc/PID/maps."""

    start: int
    end: int
    # As proc(5) shows them: `rw-p`.
    rights: str
    path: str


class MemoryMap:
    """The mappings of a process, as they were when this was made; raises `OSError`."""

    def __init__(self, pid: int, proc: Path = PROC) -> None:
        lines = (proc / str(pid) / "maps").read_text(errors="surrogateescape").splitlines()
        self._mappings = tuple(map(_read_mapping, lines))
        self._starts = [it.start for it in self._mappings]

    def find(self, address: int, size_bytes: int = 1) -> Mapping | None:
        """Return the one mapping that holds all of a range."""
        index = bisect_right(self._starts, address) - 1
        found = self._mappings[index] if index >= 0 else None
        return found if found is not None and address + size_bytes <= found.end else None

    def is_writable(self, address: int, size_bytes: int) -> bool:
        """Return whether a range is the process's own memory, which it reads and writes."""
        found = self.find(address, size_bytes)
        return found is not None and found.rights == "rw-p"

    def is_code(self, address: int) -> bool:
        found = self.find(address)
        return found is not None and "x" in found.rights


def _read_mapping(line: str) -> Mapping:
    addresses, rights, _, _, _, *path = line.split(maxsplit=5)
    start, _, end = addresses.partition("-")
    return Mapping(int(start, 16), int(end, 16), rights, path[0] if path else "")


class _Range(ctypes.Structure):
    """`struct iovec` of process_vm_readv(2)."""

    _fields_ = (("address", ctypes.c_void_p), ("size_bytes", ctypes.c_size_t))


class ProcessMemory:
    """Reads and writes the memory of a process, running or stopped.

    Each call is one system call. It raises `OSError` where the kernel forbids it or nothing is mapped.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def read(self, address: int, size_bytes: int) -> bytes:
        buffer = ctypes.create_string_buffer(size_bytes)
        here = _Range(ctypes.addressof(buffer), size_bytes)
        there = _Range(address, size_bytes)
        self._move("process_vm_readv", (here,), (there,), size_bytes)
        return buffer.raw

    def read_number(self, address: int, size_bytes: int = 8) -> int:
        return int.from_bytes(self.read(address, size_bytes), "little")

    def write(self, *pieces: tuple[int, bytes]) -> None:
        """Write several ranges, in this order, by one call, which no signal interrupts in between."""
        buffers = [ctypes.create_string_buffer(data, len(data)) for _, data in pieces]
        here = tuple(_Range(ctypes.addressof(it), len(it)) for it in buffers)
        there = tuple(_Range(address, len(data)) for address, data in pieces)
        self._move("process_vm_writev", here, there, sum(map(len, buffers)))

    def _move(self, call: str, here: tuple[_Range, ...], there: tuple[_Range, ...], size_bytes: int) -> None:
        moved = getattr(_LIBRARY, call)(
            ctypes.c_int(self._pid),
            (_Range * len(here))(*here),
            ctypes.c_ulong(len(here)),
            (_Range * len(there))(*there),
            ctypes.c_ulong(len(there)),
            ctypes.c_ulong(0),
        )
        if moved != size_bytes:
            code = ctypes.get_errno() if moved < 0 else errno.EFAULT
            raise OSError(code, os.strerror(code))


_DETACH = 17
_SEIZE = 0x4206
_INTERRUPT = 0x4207
# Marks a stop that is no signal; the upper half of the status that waitpid(2) returns.
_EVENT_STOP = 128
# Wait for threads as for processes (waitpid(2)).
_WAIT_ALL = 0x40000000
# How long a thread that was late may take to be released, before this process leaves that to its own end.
_LEAVES_WITHIN_S = 1.0
# Sleeping costs more than most threads need to stop.
_WAITS_AWAKE_S = 0.0005
_NAP_S = 0.0001


class LateThreadError(AttachRefusedError):
    """A thread did not stop in time: it is in a system call that cannot be interrupted."""


class Standstill:
    """All threads of a process, stopped while a `with` block runs.

    No register is read or written, and no signal is lost: one that arrives meanwhile is delivered when the
    threads are released. Should this process end within the block, even by SIGKILL, the kernel releases them.
    All calls of ptrace(2) have to come from one thread; so use it within one.

    Args:
        within_s: How long to wait until the last thread has stopped.

    Raises:
        LateThreadError: One did not stop within that time; all have been released again.
        AttachRefusedError: The kernel does not permit it, or the process has ended.
    """

    def __init__(self, pid: int, within_s: float, proc: Path = PROC) -> None:
        self._pid = pid
        self._within_s = within_s
        self._tasks = proc / str(pid) / "task"
        # Threads that are traced, with the signal to deliver at their release; None while they run.
        self._threads: dict[int, int | None] = {}
        self._ended: set[int] = set()
        self._begun_s: float | None = None
        # From the first stop to the last release; 0.0 as long as the block runs.
        self.stopped_s = 0.0

    @property
    def is_over(self) -> bool:
        """Whether all threads have been released; the end of this process releases one that did not stop."""
        return not self._threads

    def __enter__(self) -> "Standstill":
        try:
            # Seizing stops nothing: only what follows keeps the process from running.
            while new := self._list_new():
                for thread in new:
                    self._seize(thread)
            self._begun_s = time.monotonic()
            new = list(self._threads)
            # A thread that ran until it was stopped may have started others.
            while new:
                for thread in new:
                    self._call(_INTERRUPT, thread)
                self._await_stops(self._begun_s)
                # Twice: a listing may skip a thread where another ends meanwhile (proc(5) promises no more).
                new = [it for _ in range(2) for it in self._list_new() if self._seize(it)]
            if self._pid not in self._threads:
                raise AttachRefusedError(f"process {self._pid} has ended")
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _list_new(self) -> list[int]:
        try:
            names = os.listdir(self._tasks)  # noqa: PTH208 - the process is stopped: paths would take longer
        except OSError:
            raise AttachRefusedError(f"process {self._pid} has ended") from None
        return [it for it in map(int, names) if it not in self._threads and it not in self._ended]

    def _seize(self, thread: int) -> bool:
        """Start to trace a thread; False if it has ended meanwhile."""
        code = self._call(_SEIZE, thread)
        if code == 0:
            self._threads[thread] = None
            return True
        if code not in (errno.ESRCH, errno.EPERM) or not self._has_ended(thread):
            raise AttachRefusedError(f"process {self._pid} cannot be traced: {os.strerror(code)}")
        self._ended.add(thread)
        return False

    def _has_ended(self, thread: int) -> bool:
        """Return whether a thread is gone, or waits to be collected; ptrace(2) says EPERM to the latter."""
        try:
            return (self._tasks / str(thread) / "stat").read_bytes().rpartition(b") ")[2][:1] in b"ZX"
        except OSError:
            return True

    def _await_stops(self, begun_s: float) -> None:
        while late := [thread for thread, signal in self._threads.items() if signal is None]:
            if sum(map(self._notice, late)) == 0:
                waited_s = time.monotonic() - begun_s
                if waited_s > self._within_s:
                    raise LateThreadError(
                        f"process {self._pid} did not stop within {self._within_s:g} s: a thread is in a "
                        "system call that cannot be interrupted, or gets no processor"
                    )
                if waited_s < _WAITS_AWAKE_S:
                    os.sched_yield()
                else:
                    time.sleep(_NAP_S)

    def _notice(self, thread: int) -> bool:
        """Return whether a thread has stopped or ended since the last look."""
        try:
            changed, status = os.waitpid(thread, os.WNOHANG | _WAIT_ALL)
        except ChildProcessError:
            changed = thread
            status = 0
        if changed == 0:
            return False
        if os.WIFSTOPPED(status):
            # A stop that was asked for carries no signal; one to receive a signal may come first.
            self._threads[thread] = 0 if status >> 16 == _EVENT_STOP else os.WSTOPSIG(status)
        else:
            del self._threads[thread]
            self._ended.add(thread)
        return True

    def _release(self) -> None:
        for thread in self._list_stopped():
            self._call(_DETACH, thread, self._threads.pop(thread) or 0)
        if self._begun_s is not None:
            self.stopped_s = time.monotonic() - self._begun_s
        deadline_s = time.monotonic() + _LEAVES_WITHIN_S
        while self._threads and time.monotonic() < deadline_s:
            for thread in list(self._threads):
                self._call(_INTERRUPT, thread)
                self._notice(thread)
            for thread in self._list_stopped():
                self._call(_DETACH, thread, self._threads.pop(thread) or 0)
            time.sleep(_NAP_S)

    def _list_stopped(self) -> list[int]:
        return [thread for thread, signal in self._threads.items() if signal is not None]

    def _call(self, request: int, thread: int, data: int = 0) -> int:
        """Return the error number of a call, 0 for none."""
        return ctypes.get_errno() if _LIBRARY.ptrace(request, thread, None, data) < 0 else 0
