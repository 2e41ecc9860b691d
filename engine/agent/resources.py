"""What this process uses, of processor time and memory, and how many files it may open."""

import os
import resource
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class OwnUsage:
    """CPU time of this process and of given others between two calls."""

    def __init__(self) -> None:
        self._at_s: float | None = None
        self._cpu_s = 0.0

    def cpu_percent(self, now_s: float, other_pids: list[int]) -> float | None:
        """Return percent of one core since the last call; None at the first, or where it cannot be read."""
        own = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = own.ru_utime + own.ru_stime + sum(_cpu_s_of(pid) for pid in other_pids)
        before_s = self._at_s
        self._at_s = now_s
        used_s = cpu_s - self._cpu_s
        self._cpu_s = cpu_s
        if before_s is None or now_s <= before_s or used_s < 0:
            return None
        return round(100.0 * used_s / (now_s - before_s), 2)


def rss_bytes(pid: int | None = None) -> int | None:
    """Return the resident bytes of a process (this one by default), or None where it cannot be read."""
    try:
        fields = Path(f"/proc/{pid or 'self'}/statm").read_text().split()
        return int(fields[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None


def _cpu_s_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    except (OSError, ValueError, IndexError):
        return 0.0


MOST_DESCRIPTORS = 65_536
"""More than one machine can open connections to one port, as Linux gives out ports by default."""


def allow_many_descriptors() -> int:
    """Raise the limit of open files as far as this user may, and return it.

    Every connection is one, also of a stranger who is refused after seconds only; with all of them taken, an
    agent could open nothing that it reads figures from. What it starts has the same limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
