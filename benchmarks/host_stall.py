"""Real thrash: processes that use up the memory of a control group, and when `host_stall` says so.

Needs root, a control group with a memory limit, and swap: `python -m benchmarks.host_stall --limit 1GiB`.
The group is made to look like a host with a unified GPU: its limit is MemTotal, its pressure is
/proc/pressure/memory. It stalls when a process in it that touches its own memory once a second, as a shell
does, takes longer than a second for that, or when all its processes waited for half of a second.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from vramscope.analyzers.host_stall import HostStallAnalyzer
from vramscope.engine.model import DeviceSample, Finding, HostSample, Sample
from vramscope.engine.sources.host import HostReader, find_memory_stat
from vramscope.engine.units import GIB, MIB, parse_bytes

TURN_S = 1.0
COPY_S = 0.2
STALL_AFTER_S = 1.0
STALL_PERCENT = 50.0
ASKED_LEAD_S = 30.0

# A share of the limit is held at first, then grows by so many MiB a second; all of it is used over and over.
_GROW = """
import os, random, sys, time
start_bytes, rate_bytes, most_bytes = (float(word) for word in sys.argv[1:4])
held, began_s, piece = [], time.monotonic(), 1 << 20
while True:
    grown_s = max(0.0, time.monotonic() - began_s - 45.0)
    while len(held) * piece < min(most_bytes, start_bytes + rate_bytes * grown_s):
        held.append(bytearray(os.urandom(4096) * (piece // 4096)))
    for block in random.sample(held, min(len(held), 200)):
        for place in range(0, piece, 4096):
            block[place] = (block[place] + 1) & 255
    time.sleep(0.02)
"""
# Memory goes up and down by training steps of eight seconds.
_STEPS = """
import os, sys, time
low_bytes, high_bytes = (float(word) for word in sys.argv[1:3])
piece = 1 << 20
held = [bytearray(os.urandom(4096) * (piece // 4096)) for _ in range(int(low_bytes) // piece)]
while True:
    more = []
    while (len(held) + len(more)) * piece < high_bytes:
        more.append(bytearray(os.urandom(4096) * (piece // 4096)))
        time.sleep(0.008)
    time.sleep(2.0)
    del more
    time.sleep(2.0)
"""
_FILL = """
import sys
path, size_bytes = sys.argv[1], int(float(sys.argv[2]))
block = b"x" * (1 << 20)
while True:
    with open(path, "wb") as file:
        for _ in range(size_bytes >> 20):
            file.write(block)
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass
"""
_MAP = """
import mmap, random, sys
path, size_bytes = sys.argv[1], int(float(sys.argv[2]))
with open(path, "wb") as file:
    for _ in range(size_bytes >> 20):
        file.write(b"x" * (1 << 20))
with open(path, "rb") as file:
    view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    while True:
        for place in range(0, size_bytes, 4096):
            view[place]
        for _ in range(50_000):
            view[random.randrange(size_bytes)]
"""
_SHELL = """
import sys, time
held = bytearray(32 << 20)
for place in range(0, len(held), 4096):
    held[place] = 1
while True:
    began_s = time.monotonic()
    for place in range(0, len(held), 4096):
        held[place] = (held[place] + 1) & 255
    print(time.monotonic() - began_s, flush=True)
    time.sleep(1.0)
"""


class Case(NamedTuple):
    name: str
    program: str
    words: tuple[float | str, ...]
    longest_s: float
    stalls: bool
    """Whether the host is to stall; else nothing may be said, and at most low while memory grows."""


class Outcome(NamedTuple):
    case: Case
    low_s: float | None
    """Seconds from the start to the finding, to its being high, and to the stall; None for never."""
    high_s: float | None
    stall_s: float | None
    most_stall_percent: float
    severities: tuple[str, ...]
    samples: list[tuple[float, int, float | None, float | None]]


class Group:
    """A control group with a limit: of version 2, else of version 1 with the pressure of version 2."""

    def __init__(self, limit_bytes: int) -> None:
        name = f"vramscope-stall-{os.getpid()}"
        root = Path("/sys/fs/cgroup")
        self.is_v2 = "memory" in _read(root / "cgroup.controllers").split()
        unified = root if self.is_v2 else root / "unified"
        self._folders = [unified / name] if self.is_v2 else [root / "memory" / name, unified / name]
        self.limit_bytes = limit_bytes
        for folder in self._folders:
            folder.mkdir()
        limit = "memory.max" if self.is_v2 else "memory.limit_in_bytes"
        (self._folders[0] / limit).write_text(str(limit_bytes))

    def enter(self, pid: int) -> None:
        for folder in self._folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def read(self) -> tuple[int, str]:
        """Return what the kernel could give out, as it computes MemAvailable, and the pressure."""
        usage = int(_read(self._folders[0] / ("memory.current" if self.is_v2 else "memory.usage_in_bytes")))
        stat = (self._folders[0] / "memory.stat").read_bytes()
        prefix = b"" if self.is_v2 else b"total_"
        cache = sum(find_memory_stat(stat, prefix + name) for name in (b"active_file", b"inactive_file"))
        pressure = _read(self._folders[-1] / "memory.pressure")
        return max(0, min(self.limit_bytes, self.limit_bytes - usage + cache)), pressure

    def remove(self) -> None:
        for folder in self._folders:
            for _ in range(100):
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)


class Root:
    """A folder that shows the group as the host; files are written in place, as their readers keep them."""

    def __init__(self, folder: Path, group: Group) -> None:
        (folder / "proc/pressure").mkdir(parents=True)
        self.path = folder
        self._group = group
        self._files = {name: (folder / "proc" / name).open("wb", buffering=0) for name in _NAMES}
        self.copy()

    def copy(self) -> None:
        available, pressure = self._group.read()
        total_kib = self._group.limit_bytes >> 10
        meminfo = f"MemTotal: {total_kib} kB\nMemFree: 0 kB\nMemAvailable: {available >> 10} kB\n"
        # Nothing else swaps on this machine meanwhile, which the caller sees to.
        texts = (meminfo, pressure, _read(Path("/proc/vmstat")), _read(Path("/proc/stat"))[:1000])
        for file, text in zip(self._files.values(), texts, strict=True):
            data = text.encode()
            os.pwrite(file.fileno(), data, 0)
            os.ftruncate(file.fileno(), len(data))

    def close(self) -> None:
        for file in self._files.values():
            file.close()


_NAMES = ("meminfo", "pressure/memory", "vmstat", "stat")


def list_cases(limit_bytes: int, folder: Path) -> list[Case]:
    file = str(folder / "large")
    grown = [
        Case(
            f"grows {rate} MiB/s from 50 %",
            _GROW,
            (0.5 * limit_bytes, rate * MIB * limit_bytes / GIB, 1.6 * limit_bytes),
            45.0 + 0.5 * 1024 / rate + 60.0,
            stalls=True,
        )
        for rate in (2, 4, 8)
    ]
    return [
        *grown,
        Case("page cache: a file of 3x is written and read", _FILL, (file, 3.0 * limit_bytes), 90.0, False),
        Case("a file of 3x is mapped and read", _MAP, (file, 3.0 * limit_bytes), 90.0, False),
        Case("steps between 40 % and 80 %", _STEPS, (0.4 * limit_bytes, 0.8 * limit_bytes), 120.0, False),
        Case(
            "a model of 70 % is loaded and stays",
            _GROW,
            (0.1 * limit_bytes, 16 * MIB * limit_bytes / GIB, 0.7 * limit_bytes),
            140.0,
            False,
        ),
    ]


def measure(case: Case, limit_bytes: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="vramscope-") as folder:
        group = Group(limit_bytes)
        root = Root(Path(folder), group)
        delays: list[tuple[float, float]] = []
        try:
            with _inside(group, _SHELL) as shell, _inside(group, case.program, *case.words) as worker:
                threading.Thread(target=_note_delays, args=(shell, delays), daemon=True).start()
                return _watch(case, root, worker, delays)
        finally:
            root.close()
            group.remove()


def _watch(
    case: Case, root: Root, worker: "subprocess.Popen[str]", delays: list[tuple[float, float]]
) -> Outcome:
    reader = HostReader(root.path)
    reader.watch_stalls()
    analyzer = HostStallAnalyzer()
    began_s = time.monotonic()
    findings: list[tuple[float, Finding]] = []
    samples: list[tuple[float, int, float | None, float | None]] = []
    device = DeviceSample(uuid="GPU-unified", index=0, name="unified", kind="unified")
    stall_s = None
    number = 0
    while worker.poll() is None:
        passed_s = time.monotonic() - began_s
        if passed_s > case.longest_s or (stall_s is not None and passed_s > stall_s + 10.0):
            break
        root.copy()
        if passed_s >= number * TURN_S:
            host = reader.read()
            sample = Sample(
                node="stall",
                seq=number,
                time_s=time.time(),
                interval_s=TURN_S,
                devices=(device,),
                host=HostSample(
                    total_bytes=host.total_bytes,
                    available_bytes=host.available_bytes,
                    stall_percent=host.stall_percent,
                    swap_in_bytes_per_s=host.swap_in_bytes_per_s,
                ),
            )
            samples.append(
                (
                    round(passed_s, 2),
                    host.available_bytes or 0,
                    host.stall_percent,
                    host.swap_in_bytes_per_s,
                )
            )
            findings += [(passed_s, it) for it in analyzer.observe(sample)]
            if stall_s is None and (host.stall_percent or 0.0) >= STALL_PERCENT:
                stall_s = passed_s
            number += 1
        if stall_s is None:
            stall_s = next((at - began_s for at, delay_s in delays if delay_s > STALL_AFTER_S), None)
        time.sleep(COPY_S)
    return Outcome(
        case,
        next((at for at, _ in findings), None),
        next((at for at, it in findings if it.severity in ("high", "critical")), None),
        stall_s,
        max((it[2] or 0.0 for it in samples), default=0.0),
        tuple(dict.fromkeys(it.severity for _, it in findings)),
        samples,
    )


@contextmanager
def _inside(group: Group, program: str, *words: float | str) -> "Iterator[subprocess.Popen[str]]":
    """Run a program in the group; it waits until it is there."""
    gate = "import sys; sys.stdin.read(1)\n"
    process = subprocess.Popen(
        [sys.executable, "-c", gate + program, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        group.enter(process.pid)
        assert process.stdin is not None  # noqa: S101  (a pipe was asked for)
        process.stdin.write("x")
        process.stdin.flush()
        yield process
    finally:
        process.kill()
        process.wait()


def _note_delays(shell: "subprocess.Popen[str]", delays: list[tuple[float, float]]) -> None:
    """Note when each touch began and how long it took."""
    assert shell.stdout is not None  # noqa: S101  (a pipe was asked for)
    for line in shell.stdout:
        delays.append((time.monotonic() - float(line), float(line)))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def _describe(outcome: Outcome) -> str:
    case = outcome.case

    def word(value: float | None) -> str:
        return "-" if value is None else f"{value:.0f} s"

    lead = None if outcome.stall_s is None or outcome.low_s is None else outcome.stall_s - outcome.low_s
    high = None if outcome.stall_s is None or outcome.high_s is None else outcome.stall_s - outcome.high_s
    return (
        f"{case.name:46} stall {word(outcome.stall_s):>6}  "
        f"low {word(lead):>6} ahead  high {word(high):>6} ahead  "
        f"most stalled {outcome.most_stall_percent:5.1f} %  said {', '.join(outcome.severities) or 'nothing'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.host_stall", description=__doc__)
    parser.add_argument("--limit", type=parse_bytes, default=GIB, help="memory of the group (default 1GiB)")
    parser.add_argument("--only", default="", help="run cases whose name has this text")
    parser.add_argument("--samples", type=Path, help="write every sample as JSON here")
    arguments = parser.parse_args()
    kept: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="vramscope-", dir="/var/tmp") as folder:
        for case in list_cases(arguments.limit, Path(folder)):
            if arguments.only in case.name:
                outcome = measure(case, arguments.limit)
                kept[case.name] = outcome.samples
                print(_describe(outcome), flush=True)
    if arguments.samples is not None:
        arguments.samples.write_text(json.dumps(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
