"""What a process can tell of itself without any framework."""

from __future__ import annotations

import os
import sys

from .descriptors import identify, is_still


def read_started_s() -> float | None:
    """Return when this process started, in seconds since the epoch.

    The boot time of /proc/stat and the start of proc(5) in ticks after it, as psutil adds them up.
    """
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123 - the probe stays light
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/stat", "rb") as file:  # noqa: PTH123
            booted_s = next(int(line.split()[1]) for line in file if line.startswith(b"btime"))
        return booted_s + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def read_command() -> list[str]:
    """Return the words with which this process was started."""
    try:
        with open("/proc/self/cmdline", "rb") as file:  # noqa: PTH123
            words = file.read().rstrip(b"\0").split(b"\0")
        return [os.fsdecode(word) for word in words]
    except OSError:
        return [sys.executable, *sys.argv]


class ResidentMemory:
    """Reads the resident memory of this process (`statm` of proc(5)) from a file that stays open."""

    def __init__(self) -> None:
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        try:
            self._file: int | None = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None
        self._identity = None if self._file is None else identify(self._file)

    def read_bytes(self) -> int | None:
        """Return resident bytes, or None where there is no such file."""
        if self._file is None:
            return None
        if not is_still(self._file, self._identity):
            # The program has closed it, and may have opened a file of its own in its place.
            self._file = None
            return None
        try:
            return int(os.pread(self._file, 128, 0).split()[1]) * self._page_bytes
        except (OSError, ValueError, IndexError):
            return None

    def close(self) -> None:
        """Close the file, where it still is ours."""
        file = self._file
        self._file = None
        if file is not None and is_still(file, self._identity):
            os.close(file)
