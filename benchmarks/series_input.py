"""A long series from its file to the report: samples a second of one core, and memory, of a fresh process.

A sample is one device at one moment, a line of the file. The runs are made up: devices that train on batches
of varying length over a steady floor, and one of eight that leaks.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from .budgets import Budget
from .measure.tables import format_number, format_table

SAMPLES = 200_000
LEAST_PER_S = 10_000.0
MOST_MIB = 128.0
GIB = 1 << 30
TOTAL = 80 * GIB
_HEADER = "time_s,device,allocated_bytes,reserved_bytes,used_bytes,total_bytes,step"


@dataclass(frozen=True)
class SeriesRun:
    """What one report about a file cost, in a process of its own."""

    content: str
    samples: int
    file_mib: float
    wall_s: float
    cpu_s: float
    peak_mib: float
    """Most resident memory, imports included."""

    @property
    def per_cpu_s(self) -> float:
        """Samples in a second of CPU time, start-up included."""
        return self.samples / self.cpu_s


def measure_series(samples: int, runs: int) -> list[SeriesRun]:
    """Return what `vramscope leak --input` costs for each kind of file.

    Args:
        samples: Lines of each file.
        runs: Fresh processes; the one with the least CPU time counts: others disturb, nothing helps.
    """
    found = []
    with tempfile.TemporaryDirectory(prefix="series-") as folder:
        for content, lines in _FILES.items():
            path = Path(folder) / "series"
            with path.open("w", encoding="utf-8") as file:
                file.writelines(lines(samples))
            found.append(min((_report_on(content, path, samples) for _ in range(runs)), key=_cpu_of))
            path.unlink()
    return found


def judge_series(runs: Sequence[SeriesRun]) -> list[Budget]:
    """Return the budgets of the slowest and of the largest."""
    slowest, largest = min(run.per_cpu_s for run in runs), max(run.peak_mib for run in runs)
    return [
        Budget("series to report: CPU of a sample", 1e6 / slowest, 1e6 / LEAST_PER_S, "µs"),
        Budget("series to report: RSS", largest, MOST_MIB, "MiB"),
    ]


def format_series(runs: Sequence[SeriesRun]) -> str:
    """Return the table of what reports cost."""
    head = ["", "samples", "file MiB", "wall s", "CPU s", "samples/s of a core", "RSS MiB"]
    rows = [
        [
            run.content,
            f"{run.samples:,}",
            format_number(run.file_mib, 0),
            format_number(run.wall_s, 1),
            format_number(run.cpu_s, 1),
            format_number(run.per_cpu_s, 0),
            format_number(run.peak_mib, 0),
        ]
        for run in runs
    ]
    return format_table("vramscope leak --input FILE, from the file to the report", head, rows)


def as_series_figures(runs: Sequence[SeriesRun]) -> list[Mapping[str, object]]:
    """Return the runs as they stand in the JSON."""
    return [asdict(run) | {"samples_per_cpu_s": round(run.per_cpu_s)} for run in runs]


def _report_on(content: str, path: Path, samples: int) -> SeriesRun:
    report = path.with_suffix(".json")
    command = [sys.executable, "-m", "vramscope", "leak", "--input", str(path), "--output", str(report)]
    started_s = time.perf_counter()
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nowhere, stderr=nowhere) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return SeriesRun(
        content,
        samples,
        path.stat().st_size / 1024**2,
        time.perf_counter() - started_s,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
    )


def _cpu_of(run: SeriesRun) -> float:
    return run.cpu_s


def _write_rows(samples: int, devices: int) -> Iterator[str]:
    """Yield a series CSV; of several devices the last leaks a quarter of a MiB a second."""
    chance = random.Random(5)
    yield f"{_HEADER}\n"
    for at in range(samples):
        tick, device = divmod(at, devices)
        grown = tick * GIB // 4096 if devices > 1 and device == devices - 1 else 0
        allocated = 10 * GIB + grown % (40 * GIB) + chance.randrange(20 * GIB)
        yield f"{tick},{device},{allocated},{72 * GIB},{73 * GIB},{TOTAL},{tick // 2}\n"


def _write_log(samples: int, devices: int = 8) -> Iterator[str]:
    """Yield a log of nvidia-smi from the first of January on."""
    start_s = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    yield "timestamp, index, memory.used [MiB], memory.total [MiB]\n"
    for at in range(samples):
        tick, device = divmod(at, devices)
        moment = datetime.fromtimestamp(start_s + tick, UTC)
        yield f"{moment:%Y/%m/%d %H:%M:%S}.{device:03}, {device}, {70000 + tick % 7} MiB, 81920 MiB\n"


_FILES: dict[str, Callable[[int], Iterator[str]]] = {
    "series CSV, 1 device": lambda samples: _write_rows(samples, 1),
    "series CSV, 8 devices": lambda samples: _write_rows(samples, 8),
    "nvidia-smi log, 8 devices": _write_log,
}
