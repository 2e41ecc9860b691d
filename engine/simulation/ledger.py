"""Processes on one card share its capacity: each writes what it uses into a mapped file.

One file for each card, with a slot for each process: pid, start time, bytes. It is read and written under a
lock of the file that the kernel releases when its owner dies; what a dead process used is free again when
somebody asks. Only segments need the lock, not every tensor.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

PREFIX = "vramscope simulate:"
USAGE_EXIT_CODE = 2

_told: set[str] = set()
_is_silent = False


class Refusal(SystemExit):
    """The script cannot go on; `text` says why. It passes every handler of exceptions that a script has."""

    def __init__(self, text: str) -> None:
        super().__init__(USAGE_EXIT_CODE)
        self.text = text


def be_silent() -> None:
    """Print nothing from here on, for a program that prints refusals itself."""
    global _is_silent  # noqa: PLW0603 - one stderr, one switch
    _is_silent = True


def tell(text: str) -> None:
    """Print one line to stderr, if it was not printed before."""
    if text not in _told and not _is_silent:
        _told.add(text)
        print(f"{PREFIX} {text}", file=sys.stderr, flush=True)  # noqa: T201  (stderr is for people)


def refuse(text: str) -> NoReturn:
    """End the script with one line on stderr, and the exit code of a usage error."""
    tell(text)
    raise Refusal(text)


# Most processes on one card at a time.
SLOTS = 256

_HEADER = struct.Struct("=8sQQ40x")
_SLOT = struct.Struct("=QQQ")
_MAGIC = b"vrledg01"
_SIZE = _HEADER.size + SLOTS * _SLOT.size
# Index of the start time in /proc/<pid>/stat after the name of the program (proc(5): field 22).
_START_TIME_FIELD = 19


class CardLedger:
    """The memory of one card that several processes share."""

    def __init__(self, folder: str, number: int, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._path = Path(folder) / f"card-{number}.ledger"
        self._threads = threading.RLock()
        self._pid = 0
        self._slot = 0
        self._open(folder)

    def reserve(self, size_bytes: int) -> bool:
        with self._locked():
            if self._sum() + size_bytes > self.total_bytes:
                self._drop_dead()
                if self._sum() + size_bytes > self.total_bytes:
                    return False
            self._add(size_bytes)
            return True

    def release(self, size_bytes: int) -> None:
        with self._locked():
            self._add(-size_bytes)

    def free_bytes(self) -> int:
        """What no living process has reserved."""
        with self._locked():
            self._drop_dead()
            return self.total_bytes - self._sum()

    def holders(self) -> dict[int, int]:
        """Bytes of each living process, by pid."""
        with self._locked():
            self._drop_dead()
            return {pid: size for _, pid, _, size in self._entries() if size}

    def close(self) -> None:
        with self._locked():
            if self._pid == os.getpid():
                self._write(self._slot, 0, 0, 0)
                self._pid = 0

    def _open(self, folder: str) -> None:
        """Map the file; the first process lays it out.

        Raises:
            SystemExit: The folder cannot be written, or processes use another kind of card there.
        """
        try:
            Path(folder).mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            if os.fstat(self._file).st_size < _SIZE:
                os.ftruncate(self._file, _SIZE)
                os.pwrite(self._file, self._make_header(), 0)
            self._map = mmap.mmap(self._file, _SIZE)
        except OSError as error:
            refuse(
                f"{self._path}: {error.strerror}; the processes of a job share their cards through this file"
            )
        try:
            self._check_card()
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _make_header(self) -> bytes:
        return _HEADER.pack(_MAGIC, self.total_bytes, SLOTS)

    def _check_card(self) -> None:
        """Lay the file out again if it is of another card without processes."""
        magic, total_bytes, _ = _HEADER.unpack_from(self._map)
        if magic == _MAGIC and total_bytes == self.total_bytes:
            return
        if magic != _MAGIC:
            refuse(
                f"{self._path} was written by another version of vramscope; remove it when its job has ended"
            )
        self._drop_dead()
        holder = next((pid for _, pid, *_ in self._entries()), None)
        if holder is not None:
            refuse(
                f"{self._path} belongs to a job that is still running (process {holder}), with a card "
                f"of {total_bytes} bytes: expected {self.total_bytes} bytes; wait for it, or name this "
                "job with --job"
            )
        self._map[: _HEADER.size] = self._make_header()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the file against other processes, and this object against other threads."""
        with self._threads:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _add(self, size_bytes: int) -> None:
        """Change what this process uses; a new process, or a forked child, gets a slot."""
        if self._pid != os.getpid():
            self._take_slot()
        _, started, held = _SLOT.unpack_from(self._map, _HEADER.size + self._slot * _SLOT.size)
        self._write(self._slot, self._pid, started, max(0, held + size_bytes))

    def _take_slot(self) -> None:
        """Find a slot without a living process."""
        self._drop_dead()
        pid = os.getpid()
        taken = {slot for slot, *_ in self._entries()}
        slot = next((slot for slot in range(SLOTS) if slot not in taken), None)
        if slot is None:
            refuse(f"{self._path} is full: {SLOTS} processes are on this card")
        self._pid = pid
        self._slot = slot
        self._write(slot, pid, read_start_time(pid) or 0, 0)

    def _drop_dead(self) -> None:
        for slot, pid, started, _ in list(self._entries()):
            if read_start_time(pid) != started:
                self._write(slot, 0, 0, 0)

    def _sum(self) -> int:
        return sum(size for *_, size in self._entries())

    def _entries(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield slot, pid, start time and bytes of every slot in use."""
        for slot, (pid, started, size) in enumerate(_SLOT.iter_unpack(self._map[_HEADER.size : _SIZE])):
            if pid:
                yield slot, pid, started, size

    def _write(self, slot: int, pid: int, started: int, size_bytes: int) -> None:
        _SLOT.pack_into(self._map, _HEADER.size + slot * _SLOT.size, pid, started, size_bytes)


def read_start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it is gone, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[_START_TIME_FIELD])


def list_living(path: Path) -> list[int]:
    """Return the processes on the card of a ledger, which need not be open here; raises `OSError`."""
    slots = path.read_bytes()[_HEADER.size :]
    entries = _SLOT.iter_unpack(slots[: len(slots) // _SLOT.size * _SLOT.size])
    return [pid for pid, started, _ in entries if pid and read_start_time(pid) == started]
