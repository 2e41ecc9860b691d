"""The host: its memory, processor and pressure, and the limits of the cgroup of this process."""

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec

from ..model import HostSample, MemoryReading
from .kernel_files import KeptFile, parse_number

MOST_MEMINFO_BYTES = 8192
MOST_PRESSURE_BYTES = 512
MOST_VMSTAT_BYTES = 1 << 14
_DROPPABLE = (b"MemFree", b"Buffers", b"Cached", b"SReclaimable")


class Meminfo(msgspec.Struct, frozen=True):
    """Memory of the host in bytes; None if the kernel does not report it."""

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None


def read_meminfo(proc: Path = Path("/proc")) -> Meminfo:
    """Read the file `meminfo`; everything is None if it is absent."""
    try:
        with (proc / "meminfo").open("rb", buffering=0) as file:
            return parse_meminfo(file.read(MOST_MEMINFO_BYTES))
    except OSError:
        return Meminfo()


def read_host_memory(proc: Path) -> MemoryReading:
    """Return the host's memory as that of a device which shares it: used is MemTotal − MemAvailable."""
    meminfo = read_meminfo(proc)
    total = meminfo.total_bytes
    available = meminfo.available_bytes
    used = None if total is None or available is None else total - available
    return MemoryReading(total_bytes=total, used_bytes=used, free_bytes=available, source="host")


def count_memory_kills(proc: Path = Path("/proc")) -> int | None:
    """Return how many processes the kernel has killed since boot because memory was full (`oom_kill`).

    None where the kernel does not count them (before 4.13).
    """
    try:
        lines = (proc / "vmstat").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def parse_meminfo(text: bytes) -> Meminfo:
    """Parse lines of `Name:  123 kB`; other lines are ignored.

    Kernels before 3.14 have no MemAvailable; memory that is free or can be dropped replaces it.
    """
    total = _find_bytes(text, b"MemTotal")
    available = _find_bytes(text, b"MemAvailable")
    if available is None:
        available = _estimate_available(text)
    if total is not None and available is not None:
        available = min(available, total)
    return Meminfo(
        total_bytes=total,
        available_bytes=available,
        swap_total_bytes=_find_bytes(text, b"SwapTotal"),
        swap_free_bytes=_find_bytes(text, b"SwapFree"),
    )


def _estimate_available(text: bytes) -> int | None:
    if _find_bytes(text, b"MemFree") is None:
        return None
    return sum(_find_bytes(text, name) or 0 for name in _DROPPABLE)


def _find_bytes(text: bytes, name: bytes) -> int | None:
    """Return the value of one line; a search for each costs less than matching all lines with a pattern."""
    _, _, rest = (b"\n" + text).partition(b"\n" + name + b":")
    number = parse_number(rest.lstrip(b" \t").partition(b"\n")[0].partition(b" ")[0])
    return None if number is None else number * 1024


# Formats: the kernel's documents `admin-guide/cgroup-v2.rst` and `cgroup-v1/memory.rst`, and mountinfo(5).

MOST_STAT_BYTES = 8192


class CgroupMemory(msgspec.Struct, frozen=True):
    """Memory of the tightest group above this process, in bytes."""

    limit_bytes: int
    # In use, less the page cache that the kernel drops first.
    used_bytes: int | None
    swap_limit_bytes: int | None = None
    swap_used_bytes: int | None = None


class _Names(NamedTuple):
    """File names of one version of the memory controller."""

    limit: str
    used: str
    # Line of `memory.stat` with the inactive page cache, descendants included.
    droppable: str


_V2 = _Names("memory.max", "memory.current", "inactive_file")
_V1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


class MountedCgroup(NamedTuple):
    """One mounted hierarchy that has the memory controller."""

    # Our own group within it.
    folder: Path
    mount: Path
    is_v2: bool


class _Group:
    def __init__(self, folder: Path, *, is_v2: bool) -> None:
        names = _V2 if is_v2 else _V1
        self.limit = KeptFile(f"{folder}/{names.limit}")
        self._used = KeptFile(f"{folder}/{names.used}")
        self._stat = KeptFile(f"{folder}/memory.stat", MOST_STAT_BYTES)
        self._droppable = names.droppable.encode()
        self._swap_limit = KeptFile(f"{folder}/memory.swap.max") if is_v2 else None
        self._swap_used = KeptFile(f"{folder}/memory.swap.current") if is_v2 else None

    def read(self, limit_bytes: int) -> CgroupMemory:
        return CgroupMemory(
            limit_bytes=limit_bytes,
            used_bytes=self._read_used(),
            swap_limit_bytes=_read_number(self._swap_limit),
            swap_used_bytes=_read_number(self._swap_used),
        )

    def _read_used(self) -> int | None:
        used = _read_number(self._used)
        text = None if used is None else self._stat.read()
        if used is None or text is None:
            return used
        return max(0, used - find_memory_stat(text, self._droppable))


class CgroupReader:
    """Reads the tightest limit from our group upward."""

    def __init__(self, hierarchies: list[MountedCgroup]) -> None:
        self._groups = [
            _Group(folder, is_v2=hierarchy.is_v2)
            for hierarchy in hierarchies
            for folder in _upward(hierarchy.folder, hierarchy.mount)
        ]

    def read(self, host_total_bytes: int | None) -> CgroupMemory | None:
        """Return the tightest limit and its use; None if none is below the host's memory.

        Args:
            host_total_bytes: The host's memory; version 1 says "no limit" by a number far above it.
        """
        tightest: tuple[int, _Group] | None = None
        for group in self._groups:
            limit = _read_number(group.limit)
            if limit is None or (host_total_bytes is not None and limit >= host_total_bytes):
                continue
            if tightest is None or limit < tightest[0]:
                tightest = limit, group
        return None if tightest is None else tightest[1].read(tightest[0])


def find_memory_cgroups(root: Path = Path("/")) -> list[MountedCgroup]:
    """Return our own group in every mounted hierarchy with the memory controller."""
    try:
        groups = (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
        mounts = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    path_v1, path_v2 = parse_cgroup_paths(groups)
    found: list[MountedCgroup] = []
    for is_v2, mount_root, mount_point in parse_cgroup_mounts(mounts):
        path = path_v2 if is_v2 else path_v1
        if path is None:
            continue
        mount = root / mount_point.lstrip("/")
        folder = mount / _path_below(path, mount_root)
        found.append(MountedCgroup(folder if folder.is_dir() else mount, mount, is_v2))
    return found


def parse_cgroup_paths(text: str) -> tuple[str | None, str | None]:
    """Return our group's path in version 1's memory hierarchy and in version 2's, from /proc/self/cgroup."""
    path_v1 = path_v2 = None
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not path.startswith("/"):
            continue
        if number == "0" and not controllers:
            path_v2 = path
        elif "memory" in controllers.split(","):
            path_v1 = path
    return path_v1, path_v2


def parse_cgroup_mounts(text: str) -> list[tuple[bool, str, str]]:
    """Return (is version 2, root within the hierarchy, mount point) of each mount in /proc/self/mountinfo."""
    mounts: list[tuple[bool, str, str]] = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields = left.split(" ")
        kinds = right.split(" ")
        if not separator or len(fields) < 5:
            continue
        is_v1_memory = kinds[0] == "cgroup" and "memory" in kinds[-1].split(",")
        if kinds[0] == "cgroup2" or is_v1_memory:
            mounts.append((kinds[0] == "cgroup2", _unescape(fields[3]), _unescape(fields[4])))
    return mounts


def _path_below(path: str, mount_root: str) -> str:
    """Return a group's path below a mount that may show only part of the hierarchy, as in a container."""
    base = mount_root.rstrip("/")
    if ".." in path.split("/") or (base and path != base and not path.startswith(f"{base}/")):
        return ""
    return path[len(base) :].lstrip("/")


def _upward(folder: Path, mount: Path) -> list[Path]:
    folders = [folder]
    while folders[-1] != mount and mount in folders[-1].parents:
        folders.append(folders[-1].parent)
    return folders


def find_memory_stat(text: bytes, name: bytes) -> int:
    """Return one value of a file `memory.stat`, lines of `name number`; 0 if it is not there."""
    _, found, rest = (b"\n" + text).partition(b"\n" + name + b" ")
    return (parse_number(rest.partition(b"\n")[0]) or 0) if found else 0


def _read_number(file: KeptFile | None) -> int | None:
    """Return the number in a file; None for `max`, and if there is no such file."""
    return None if file is None else parse_number(file.read())


def _unescape(path: str) -> str:
    """Undo mountinfo's octal escapes of space, tab, newline and backslash."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path


class StallReader:
    """Reads how much the whole node waits for memory: two files a tick, for nodes whose GPU needs the host's.

    Formats: the kernel's `accounting/psi.rst`, a line `full avg10=0.00 … total=4711` with microseconds; and
    /proc/vmstat, a line `pswpin 42` with pages. Kernels before 4.20 have no pressure stall information.
    """

    def __init__(self, root: Path, clock_s: Callable[[], float]) -> None:
        self._pressure = KeptFile(f"{root / 'proc/pressure/memory'}", MOST_PRESSURE_BYTES)
        self._vmstat = KeptFile(f"{root / 'proc/vmstat'}", MOST_VMSTAT_BYTES)
        self._clock_s = clock_s
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        # Time, stalled microseconds and pages of the reading before.
        self._before: tuple[float, int | None, int | None] | None = None

    def read(self) -> tuple[float | None, float | None]:
        """Return the share of time that was stalled since the last call, in percent, and bytes a second."""
        stalled_us = parse_stall_us(self._pressure.read() or b"")
        pages = parse_swapped_in(self._vmstat.read() or b"")
        now_s = self._clock_s()
        before = self._before
        self._before = now_s, stalled_us, pages
        if before is None or now_s <= before[0]:
            return None, None
        passed_s = now_s - before[0]
        stalled = _rise(before[1], stalled_us)
        swapped = _rise(before[2], pages)
        return (
            None if stalled is None else round(min(100.0, 100e-6 * stalled / passed_s), 2),
            None if swapped is None else round(swapped * self._page_bytes / passed_s, 1),
        )


def parse_stall_us(text: bytes) -> int | None:
    """Return the microseconds since boot in which every process that could run waited."""
    _, found, rest = (b"\n" + text).partition(b"\nfull ")
    _, found, number = rest.partition(b"\n")[0].partition(b"total=") if found else (b"", b"", b"")
    return parse_number(number) if found else None


def parse_swapped_in(text: bytes) -> int | None:
    """Return the pages that came back from swap since boot."""
    _, found, rest = (b"\n" + text).partition(b"\npswpin ")
    return parse_number(rest.partition(b"\n")[0]) if found else None


def _rise(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None or now < before else now - before


# Between two searches for a limit if there was none.
CGROUP_INTERVAL_S = 30.0
# The first line of /proc/stat sums all processors; the rest grows with their number.
MOST_PROCESS_STAT_BYTES = 1024
MOST_LOAD_BYTES = 64


class HostReader:
    """Reads memory, swap and processor load of this node; never blocks."""

    def __init__(self, root: Path = Path("/"), clock_s: Callable[[], float] = monotonic) -> None:
        self._root = root
        self._clock_s = clock_s
        self._meminfo = KeptFile(f"{root / 'proc/meminfo'}", MOST_MEMINFO_BYTES)
        self._stat = KeptFile(f"{root / 'proc/stat'}", MOST_PROCESS_STAT_BYTES)
        self._load = KeptFile(f"{root / 'proc/loadavg'}", MOST_LOAD_BYTES)
        self._has_proc = self._meminfo.read() is not None
        self._hierarchies: list[MountedCgroup] = []
        self._groups = CgroupReader([])
        self._look_due_s = clock_s()
        self._is_limited = False
        self._former_times = self._read_times()
        self._stalls: StallReader | None = None

    def watch_stalls(self) -> None:
        """Also read from now on how much the node waits for memory."""
        if self._stalls is None:
            self._stalls = StallReader(self._root, self._clock_s)

    def read(self) -> HostSample:
        """Return the host as it is now; the load is that since the last call.

        Memory is MemTotal and MemTotal − MemAvailable. Inside a control group with a lower limit it is that
        limit, and the group's use less the page cache that is dropped first.
        """
        meminfo = parse_meminfo(self._meminfo.read() or b"") if self._has_proc else _read_meminfo_elsewhere()
        total = meminfo.total_bytes
        available = meminfo.available_bytes
        swap_total = meminfo.swap_total_bytes
        swap_free = meminfo.swap_free_bytes
        stalls = (None, None) if self._stalls is None else self._stalls.read()
        host = HostSample(
            total_bytes=total,
            used_bytes=_subtract(total, available),
            available_bytes=available,
            swap_total_bytes=swap_total,
            swap_used_bytes=_subtract(swap_total, swap_free),
            cpu_percent=self._read_cpu_percent(),
            stall_percent=stalls[0],
            swap_in_bytes_per_s=stalls[1],
            load_average=self._read_load(),
        )
        group = self._read_group(total)
        return host if group is None else _narrow(host, group)

    def _read_group(self, host_total_bytes: int | None) -> CgroupMemory | None:
        now_s = self._clock_s()
        is_due = now_s >= self._look_due_s
        if is_due:
            self._look_due_s = now_s + CGROUP_INTERVAL_S
            hierarchies = find_memory_cgroups(self._root)
            # A process can be moved into another group.
            if hierarchies != self._hierarchies:
                self._hierarchies = hierarchies
                self._groups = CgroupReader(hierarchies)
        if not (is_due or self._is_limited):
            return None
        group = self._groups.read(host_total_bytes)
        self._is_limited = group is not None
        return group

    def _read_load(self) -> float | None:
        if not self._has_proc:
            return os.getloadavg()[0]
        return parse_load(self._load.read() or b"")

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
            import psutil

            times = psutil.cpu_times()
            total_s = float(sum(times))
            return total_s - float(times.idle), total_s
        text = self._stat.read()
        return None if text is None else parse_cpu_times(text)


def parse_load(text: bytes) -> float | None:
    """Return the average of the last minute from /proc/loadavg; None if it is not as in proc(5)."""
    first = text.partition(b" ")[0]
    whole, _, hundredths = first.partition(b".")
    if not (whole.isdigit() and len(whole) <= 7 and len(hundredths) == 2 and hundredths.isdigit()):
        return None
    return float(first)


def parse_cpu_times(text: bytes) -> tuple[float, float] | None:
    """Return busy and total ticks from the first line of /proc/stat; None if it is not as in proc(5).

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
        stall_percent=host.stall_percent,
        swap_in_bytes_per_s=host.swap_in_bytes_per_s,
        load_average=host.load_average,
    )


def _subtract(total: int | None, part: int | None) -> int | None:
    return None if total is None or part is None else max(0, total - part)


def _read_meminfo_elsewhere() -> Meminfo:
    """Read memory without /proc."""
    import psutil

    memory = psutil.virtual_memory()
    swap = psutil.swap_memory()
    return Meminfo(
        total_bytes=memory.total,
        available_bytes=memory.available,
        swap_total_bytes=swap.total,
        swap_free_bytes=swap.free,
    )
