"""Reading a memory snapshot of a million blocks: seconds and resident memory of a fresh process.

The file is made up, but pickled as PyTorch does: every block has a list of frames of its own, the lists share
their frames, and pickle writes a shared frame once.
"""

import gc
import json
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .budgets import Budget
from .measure.tables import format_number, format_table

BLOCKS = 1_000_000
EVENTS = 200_000
BLOCKS_OF_SEGMENT = 400
STACKS = 1500
LIMIT_S = 3.0
LIMIT_MIB = 1024.0
_PICK = (
    "import json, resource, sys, time\n"
    "from pathlib import Path\n"
    "from vramscope.engine.files.memory_snapshot import read_memory_snapshot\n"
    "def peak():\n"
    "    status = Path('/proc/self/status').read_text()\n"
    "    return int(status.split('VmHWM:')[1].split()[0]) / 1024\n"
    "start, cpu = time.perf_counter(), time.process_time()\n"
    "snapshot = read_memory_snapshot(Path(sys.argv[1]))\n"
    "read_s = time.perf_counter() - start\n"
    "child = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    "cpu_s = time.process_time() - cpu + child.ru_utime + child.ru_stime\n"
    "decoder = child.ru_maxrss / 1024\n"
    "reader = peak()\n"
    "from vramscope.exporters.inspect.text import describe_snapshot\n"
    "start = time.perf_counter()\n"
    "describe_snapshot(snapshot)\n"
    "described_s = time.perf_counter() - start\n"
    "print(json.dumps([len(snapshot.blocks), read_s, cpu_s, decoder, reader, described_s, peak()]))\n"
)


@dataclass(frozen=True)
class SnapshotReading:
    """What reading one file cost: medians of some fresh processes."""

    content: str
    file_mib: float
    read_s: float
    cpu_s: float
    """CPU time of both processes while reading."""
    decoder_mib: float
    """Most resident memory of the process that unpickles; it is gone when reading has ended."""
    reader_mib: float
    """Most resident memory of the process that reads."""
    describe_s: float
    """Seconds for the summary and its text, numpy's import included."""
    describe_mib: float

    @property
    def together_mib(self) -> float:
        """Most of both processes, as if they had it at one time."""
        return self.decoder_mib + self.reader_mib


def measure_snapshot_reader(runs: int) -> list[SnapshotReading]:
    """Return what reading costs with blocks alone, and with blocks and events.

    Args:
        runs: Fresh processes; the median counts.
    """
    readings = []
    with tempfile.TemporaryDirectory(prefix="snapshots-") as folder:
        for events in (0, EVENTS):
            path = Path(folder) / f"{events}.pickle"
            # In a process of its own, so that this one stays small.
            subprocess.run([sys.executable, "-m", __name__, str(path), str(events)], check=True)
            content = f"{BLOCKS:,} blocks" + (f", {events:,} events" if events else "")
            readings.append(_measure_file(content, path, runs))
            path.unlink()
    return readings


def _measure_file(content: str, path: Path, runs: int) -> SnapshotReading:
    command = [sys.executable, "-c", _PICK, str(path)]
    rows = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(runs)
    ]
    if any(row[0] != BLOCKS for row in rows):
        raise RuntimeError(f"{rows[0][0]} blocks were read, {BLOCKS} written")
    medians = [median(row[at] for row in rows) for at in range(1, 7)]
    return SnapshotReading(content, path.stat().st_size / 1024**2, *medians)


def judge_snapshot_reader(readings: Sequence[SnapshotReading]) -> list[Budget]:
    """Return the budgets of reading a million blocks."""
    blocks = readings[0]
    return [
        Budget("snapshot of 1,000,000 blocks: read", blocks.read_s, LIMIT_S, "s"),
        Budget("snapshot of 1,000,000 blocks: RSS, both processes", blocks.together_mib, LIMIT_MIB, "MiB"),
    ]


def format_snapshot_reader(readings: Sequence[SnapshotReading]) -> str:
    """Return the table of what reading costs."""
    head = ["", "file MiB", "read s", "CPU s", "decoder MiB", "reader MiB", "text s", "text MiB"]
    rows = [
        [
            reading.content,
            format_number(reading.file_mib, 0),
            format_number(reading.read_s, 2),
            format_number(reading.cpu_s, 2),
            format_number(reading.decoder_mib, 0),
            format_number(reading.reader_mib, 0),
            format_number(reading.describe_s, 2),
            format_number(reading.describe_mib, 0),
        ]
        for reading in readings
    ]
    return format_table("Reading a memory snapshot (medians of fresh processes; RSS at its most)", head, rows)


def as_figures(readings: Sequence[SnapshotReading]) -> list[Mapping[str, object]]:
    """Return the readings as they stand in the JSON."""
    return [asdict(reading) for reading in readings]


def write_snapshot(path: Path, blocks: int, events: int) -> None:
    """Write a snapshot as PyTorch does.

    Args:
        path: Where to.
        blocks: How many blocks it has.
        events: How many events its trace has.
    """
    gc.disable()
    chance = random.Random(20240101)
    stacks = grow_stacks(chance)
    segments, address = [], 0x7F10_0000_0000
    for _ in range(blocks // BLOCKS_OF_SEGMENT):
        segments.append(_make_segment(chance, address, stacks))
        address += segments[-1]["total_size"] + (2 << 20)
    trace = [_make_event(chance, number, stacks) for number in range(events)]
    root = {"segments": segments, "device_traces": [trace], "allocator_settings": {}}
    with path.open("wb") as file:
        pickle.dump(root, file)


def grow_stacks(chance: random.Random) -> list[list[dict[str, Any]]]:
    """Return stacks as programs have them: outer frames in common, 20 to 40 deep, innermost first."""
    operators = [_make_frame(chance) for _ in range(40)]
    stacks = [[_make_frame(chance)]]
    while len(stacks) < STACKS:
        parent = chance.choice(stacks[-40:])
        depth = chance.randint(20, 40)
        kept = parent[-chance.randint(1, len(parent)) :]
        own = [_make_frame(chance) for _ in range(depth - len(kept))]
        # Many lines of a program end in the same few operators.
        stacks.append([chance.choice(operators), *own, *kept])
    return stacks


def _make_frame(chance: random.Random) -> dict[str, Any]:
    module = chance.randrange(300)
    filename = f"/opt/conda/lib/python3.11/site-packages/package_{module % 30}/layers/module_{module}.py"
    return {"filename": filename, "line": chance.randrange(2000), "name": f"forward_{module}"}


def _make_segment(chance: random.Random, address: int, stacks: list[list[dict[str, Any]]]) -> dict[str, Any]:
    blocks, at = [], address
    for _ in range(BLOCKS_OF_SEGMENT):
        size = 512 * chance.randint(1, 8000)
        is_live = chance.random() < 0.9
        blocks.append(
            {
                "address": at,
                "size": size,
                "requested_size": size - chance.randint(0, 511) if is_live else 0,
                "state": "active_allocated" if is_live else "inactive",
                "frames": list(chance.choice(stacks)),
            }
        )
        at += size
    return {
        "device": 0,
        "address": address,
        "total_size": at - address,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def _make_event(chance: random.Random, number: int, stacks: list[list[dict[str, Any]]]) -> dict[str, Any]:
    return {
        "action": ("alloc", "free_requested", "free_completed")[number % 3],
        "addr": 0x7E00_0000_0000 + 512 * (number // 3),
        "size": 512 * (1 + number // 3 % 1000),
        "stream": 0,
        "time_us": 1_700_000_000_000_000 + 10 * number,
        "frames": list(chance.choice(stacks)),
    }


if __name__ == "__main__":
    write_snapshot(Path(sys.argv[1]), BLOCKS, int(sys.argv[2]))
