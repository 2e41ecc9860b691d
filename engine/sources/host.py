"""The host's memory and processors, as this process may use them."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic

from ..model import HostSample
from .cgroup import CgroupMemory, CgroupReader, MountedCgroup, find_memory_cgroups
from .kept_file import KeptFile
from .meminfo import MOST_MEMINFO_BYTES, Meminfo, parse_meminfo

CGROUP_INTERVAL_S = 30.0
"""How often a limit is looked for again where there was none."""
MOST_STAT_BYTES = 1024
"""The first line of /proc/stat sums all processors; the rest grows with their number."""


class HostReader:
    """Reads memory, swap and processor load of this node; never blocks.

    Args:
        root: Where the machine's /proc and its control groups are found.
        clock_s: Monotonic seconds.
    """

    def __init__(self, root: Path = Path("/"), clock_s: Callable[[], float] = monotonic) -> None:
        self._root = root
        self._clock_s = clock_s
        self._meminfo = KeptFile(f"{root / 'proc/meminfo'}", MOST_MEMINFO_BYTES)
        self._stat = KeptFile(f"{root / 'proc/stat'}", MOST_STAT_BYTES)
        self._has_proc = self._meminfo.read() is not None
        self._hierarchies: list[MountedCgroup] = []
        self._groups = CgroupReader([])
        self._look_due_s = clock_s()
        self._is_limited = False
        self._former_times = self._read_times()

    def read(self) -> HostSample:
        """Return the host as it is now; the load is that since the last call.

        Memory is MemTotal and MemTotal − MemAvailable. Inside a control group with a lower limit it is that
        limit, and what the group uses less the page cache that is dropped first.
        """
        meminfo = parse_meminfo(self._meminfo.read() or b"") if self._has_proc else _read_meminfo_elsewhere()
        total = meminfo.total_bytes
        available = meminfo.available_bytes
        swap_total = meminfo.swap_total_bytes
        swap_free = meminfo.swap_free_bytes
        host = HostSample(
            total_bytes=total,
            used_bytes=_subtract(total, available),
            available_bytes=available,
            swap_total_bytes=swap_total,
            swap_used_bytes=_subtract(swap_total, swap_free),
            cpu_percent=self._read_cpu_percent(),
        )
        group = self._read_group(total)
        return host if group is None else _narrow(host, group)

    def _read_group(self, host_total_bytes: int | None) -> CgroupMemory | None:
        now_s = self._clock_s()
        is_due = now_s >= self._look_due_s
        if is_due:
            self._look_due_s = now_s + CGROUP_INTERVAL_S
            self._find_groups()
        if not (is_due or self._is_limited):
            return None
        group = self._groups.read(host_total_bytes)
        self._is_limited = group is not None
        return group

    def _find_groups(self) -> None:
        """Look where our group is now: a process can be moved into another."""
        hierarchies = find_memory_cgroups(self._root)
        if hierarchies != self._hierarchies:
            self._hierarchies = hierarchies
            self._groups = CgroupReader(hierarchies)

    def _read_cpu_percent(self) -> float | None:
        former = self._former_times
        self._former_times = self._read_times()
        if former is None or self._former_times is None:
            return None
        busy_s, total_s = (now - then for now, then in zip(self._former_times, former, strict=True))
        if total_s <= 0:
            return None
        return round(min(100.0, max(0.0, 100.0 * busy_s / total_s)), 1)

    def _read_times(self) -> tuple[float, float] | None:
        """Return busy and total time of all processors since boot, in one unit."""
        if not self._has_proc:
            return _read_times_elsewhere()
        text = self._stat.read()
        return None if text is None else parse_cpu_times(text)


def parse_cpu_times(text: bytes) -> tuple[float, float] | None:
    """Return busy and total ticks from the first line of /proc/stat; None where it is not as in proc(5).

    Waiting for input or output is not busy; guest time is contained in user time and not counted twice.
    """
    name, _, rest = text.partition(b"\n")[0].partition(b" ")
    fields = rest.split()[:8]
    if name != b"cpu" or len(fields) < 4 or not all(field.isdigit() for field in fields):
        return None
    ticks = [int(field) for field in fields]
    idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0)
    return float(sum(ticks) - idle), float(sum(ticks))


def _narrow(host: HostSample, group: CgroupMemory) -> HostSample:
    """Return the sample of a host of which only a control group's share may be used."""
    limit = group.limit_bytes
    used = group.used_bytes
    left = None if used is None else max(0, limit - used)
    available = left if host.available_bytes is None or left is None else min(left, host.available_bytes)
    swap_total = host.swap_total_bytes
    swap_used = host.swap_used_bytes
    swap_limit = group.swap_limit_bytes
    if swap_limit is not None and (swap_total is None or swap_limit < swap_total):
        swap_total = swap_limit
        swap_used = group.swap_used_bytes
    return HostSample(
        total_bytes=limit,
        used_bytes=used,
        available_bytes=available,
        swap_total_bytes=swap_total,
        swap_used_bytes=swap_used,
        cpu_percent=host.cpu_percent,
        limit="cgroup",
    )


def _subtract(total: int | None, part: int | None) -> int | None:
    return None if total is None or part is None else max(0, total - part)


def _read_meminfo_elsewhere() -> Meminfo:
    """Read memory where there is no /proc."""
    import psutil

    memory = psutil.virtual_memory()
    swap = psutil.swap_memory()
    return Meminfo(
        total_bytes=memory.total,
        available_bytes=memory.available,
        swap_total_bytes=swap.total,
        swap_free_bytes=swap.free,
    )


def _read_times_elsewhere() -> tuple[float, float]:
    import psutil

    times = psutil.cpu_times()
    total_s = float(sum(times))
    return total_s - float(times.idle), total_s
