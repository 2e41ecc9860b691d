"""CPU time, memory and threads of every process that one measured command has started."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MARK = "BENCHMARK_RUN"
"""Variable that a measured command hands down to all it starts, daemons included."""

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KIB_PER_MIB = 1024
_SPOKEN = {"agent": "hub", "record": "recorder", "--json": "json"}


@dataclass(frozen=True)
class ProcessCost:
    """What one process holds, and the CPU time it and its reaped children have used so far."""

    role: str
    cpu_s: float
    rss_mib: float
    pss_mib: float
    threads: int


@dataclass(frozen=True)
class Cost:
    """What one process, or several together, cost over a window."""

    cpu_percent: float
    rss_mib: float
    pss_mib: float
    threads: int


def find_marked(mark: str) -> list[int]:
    """Return the processes that were started with `BENCHMARK_RUN` set to a mark, oldest first."""
    entry = f"{MARK}={mark}".encode()
    return [pid for pid in _all_pids() if entry in _read(pid, "environ").split(b"\0")]


def name_role(pid: int) -> str:
    """Return what a process is for, by its command line."""
    words = _read(pid, "cmdline").decode(errors="replace").split("\0")
    for role in ("worker", "hub", "agent", "record", "--json"):
        if any(word == role or word.endswith((f".{role}", f"/{role}")) for word in words):
            return _SPOKEN.get(role, role)
    return "viewer"


def observe(pids: Iterable[int]) -> dict[int, ProcessCost]:
    """Return what each process that still lives has used and holds."""
    found = {}
    for pid in pids:
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        if not fields:
            continue
        sizes = _sizes(pid)
        cpu_s = _own_cpu_s(pid) + sum(int(field) for field in fields[13:15]) / _TICKS_PER_S
        found[pid] = ProcessCost(name_role(pid), cpu_s, sizes["Rss"], sizes["Pss"], int(fields[17]))
    return found


def measure_cost(mark: str, window_s: float) -> dict[str, Cost]:
    """Return the cost of each role over a window, and of `all` together.

    CPU time is what the scheduler has counted for each thread, in nanoseconds, and `cutime + cstime` of
    proc(5), so children that come and go count too.
    """
    start_s = time.monotonic()
    before = observe(find_marked(mark))
    time.sleep(window_s)
    after = observe(find_marked(mark))
    length_s = time.monotonic() - start_s
    shares: dict[str, list[Cost]] = {}
    for pid, now in after.items():
        used_s = now.cpu_s - (before[pid].cpu_s if pid in before else 0.0)
        cost = Cost(100.0 * used_s / length_s, now.rss_mib, now.pss_mib, now.threads)
        shares.setdefault(now.role, []).append(cost)
        shares.setdefault("all", []).append(cost)
    return {role: _add(costs) for role, costs in shares.items()}


def _add(costs: list[Cost]) -> Cost:
    return Cost(
        sum(cost.cpu_percent for cost in costs),
        sum(cost.rss_mib for cost in costs),
        sum(cost.pss_mib for cost in costs),
        sum(cost.threads for cost in costs),
    )


def _own_cpu_s(pid: int) -> float:
    """Return the CPU time of the threads of a process (`schedstat`: ticks of 10 ms are too coarse here)."""
    threads = [_read(pid, f"task/{path.name}/schedstat") for path in _list_threads(pid)]
    return sum(int(thread.split()[0]) for thread in threads if thread) / 1e9


def _list_threads(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _sizes(pid: int) -> dict[str, float]:
    """Return resident and proportional set size in MiB (`smaps_rollup` of proc(5))."""
    sizes = {"Rss": 0.0, "Pss": 0.0}
    for line in _read(pid, "smaps_rollup").decode(errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name in sizes:
            sizes[name] = int(rest.split()[0]) / _KIB_PER_MIB
    return sizes


def _all_pids() -> list[int]:
    return sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        # It ended meanwhile, or belongs to somebody else: either way not ours to count.
        return b""
