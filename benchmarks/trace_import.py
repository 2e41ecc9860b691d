"""Memory traces into a recording: megabytes a second of one core, and memory, of a fresh process.

The files are generated in the shape of real ones: a rank each, indented by four, a long first iteration and
then many short ones, sampled about every 6 ms with a pause after each. The peers read the same files and do
nothing with them: `json.load` of the standard library, and msgspec without a type.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .budgets import Budget
from .measure.tables import format_number, format_table

RANKS = 8
MEGABYTES = 1000.0
LEAST_MB_PER_S = 50.0
MOST_MIB = 128.0
FIRST_SAMPLES = 1747
"""Of the first iteration; each further one has 38 to 74."""
_SAMPLE = """            {
                "timestamp_s": %r,
                "reserved_memory_MB": %r,
                "allocated_memory_MB": %r
            }"""
_JSON = "import json, sys\nfor path in sys.argv[1:]:\n    with open(path) as file: json.load(file)"
_MSGSPEC = (
    "import msgspec, sys\nfor path in sys.argv[1:]:\n"
    "    with open(path, 'rb') as file: msgspec.json.decode(file.read())"
)


@dataclass(frozen=True)
class ImportRun:
    """What one program cost, in a process of its own."""

    program: str
    file_mb: float
    """Megabytes of all files (10^6 bytes)."""
    wall_s: float
    cpu_s: float
    peak_mib: float
    """Most resident memory, imports included."""

    @property
    def mb_per_cpu_s(self) -> float:
        """Megabytes in a second of CPU time, start-up included."""
        return self.file_mb / self.cpu_s


def measure_import(megabytes: float, runs: int) -> list[ImportRun]:
    """Return what `vramscope import` of traces costs, and what its peers do.

    Args:
        megabytes: Of all files together.
        runs: Fresh processes of each in turn; the one with the least CPU time counts.
    """
    with tempfile.TemporaryDirectory(prefix="traces-") as name:
        folder, output = Path(name) / "run", Path(name) / "run.vscope"
        folder.mkdir()
        for rank in range(RANKS):
            write_trace(folder / f"memory_trace_rank{rank}_wd8_tp2_pp4_l40_bs1.json", megabytes / RANKS, rank)
        paths = sorted(map(str, folder.iterdir()))
        size_mb = sum(Path(path).stat().st_size for path in paths) / 1e6
        programs: dict[str, tuple[Sequence[str], Callable[[], None]]] = {
            "vramscope import": (
                ["-m", "vramscope", "import", str(folder), "-o", str(output)],
                lambda: output.unlink(missing_ok=True),
            ),
            "json.load": (["-c", _JSON, *paths], lambda: None),
            "msgspec.json.decode": (["-c", _MSGSPEC, *paths], lambda: None),
        }
        found: dict[str, list[ImportRun]] = {program: [] for program in programs}
        for _ in range(runs):
            for program, (command, tidy) in programs.items():
                found[program].append(_run(program, command, size_mb))
                tidy()
        return [min(each, key=_cpu_of) for each in found.values()]


def judge_import(runs: Sequence[ImportRun]) -> list[Budget]:
    """Return the budgets of the import; the peer is `json.load` alone."""
    ours, peer = runs[0], runs[1]
    limit_s, kilo = 1000.0 / LEAST_MB_PER_S, 1000.0
    return [
        Budget(
            "import of traces: CPU of 1 GB",
            kilo / ours.mb_per_cpu_s,
            limit_s,
            "s",
            kilo / peer.mb_per_cpu_s,
        ),
        Budget("import of traces: RSS", ours.peak_mib, MOST_MIB, "MiB", peer.peak_mib),
    ]


def format_import(runs: Sequence[ImportRun]) -> str:
    """Return the table of what imports cost."""
    head = ["", "files MB", "wall s", "CPU s", "MB/s of a core", "ratio to json.load", "RSS MiB"]
    peer = next(run for run in runs if run.program == "json.load")
    rows = [
        [
            run.program,
            format_number(run.file_mb, 0),
            format_number(run.wall_s, 1),
            format_number(run.cpu_s, 1),
            format_number(run.mb_per_cpu_s, 0),
            format_number(run.mb_per_cpu_s / peer.mb_per_cpu_s, 2),
            format_number(run.peak_mib, 0),
        ]
        for run in runs
    ]
    return format_table(f"Memory traces of {RANKS} ranks into a recording", head, rows)


def write_trace(path: Path, megabytes: float, seed: int) -> None:
    """Write the trace of one rank, made up and always the same.

    Args:
        path: The file.
        megabytes: About how large (10^6 bytes).
        seed: Of what is left to chance.
    """
    chance, time_s, written, number = random.Random(seed), 0.0, 0, 0
    with path.open("w", encoding="utf-8") as file:
        file.write("{\n")
        while written < megabytes * 1e6:
            text, time_s = _make_iteration(chance, number, time_s)
            file.write(",\n" * (number > 0) + text)
            written += len(text)
            number += 1
        file.write("\n}")


def _make_iteration(chance: random.Random, number: int, time_s: float) -> tuple[str, float]:
    """Return the text of one iteration, and when the next begins."""
    count = FIRST_SAMPLES if number == 0 else chance.randrange(38, 75)
    low, used = (28_500, 31_309.1875) if number == 0 else (57_100, 76_079.1875)
    samples = []
    for _ in range(count):
        time_s = round(time_s + 0.0052 + chance.randrange(35) / 10_000, 4)
        samples.append(_SAMPLE % (time_s, used, low + chance.randrange(14_000 << 10) / 1024))
    text = ",\n".join(samples)
    logged = '        ],\n        "peak_allocated_MB": 71408.03\n    }'
    return f'    "{number}": {{\n        "samples": [\n{text}\n{logged}', time_s + 0.3


def _run(program: str, command: Sequence[str], size_mb: float) -> ImportRun:
    started_s = time.perf_counter()
    nowhere = subprocess.DEVNULL
    with subprocess.Popen([sys.executable, *command], stdout=nowhere, stderr=nowhere) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{program} ended with {process.returncode}")
    return ImportRun(
        program,
        size_mb,
        time.perf_counter() - started_s,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
    )


def _cpu_of(run: ImportRun) -> float:
    return run.cpu_s
