"""The cursor in time over a trace of a million events: opening the file, and asking what lived at a moment.

The file is made up, but pickled as PyTorch does: an allocation and its free share their list of frames.
"""

import gc
import json
import pickle
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .budgets import Budget
from .measure.tables import format_number, format_table
from .snapshot_reader import grow_stacks

EVENTS = 1_000_000
MOST_LIVE = 20_000
SLOT_BYTES = 1 << 21
OPEN_LIMIT_S = 2.0
ANSWER_LIMIT_MS = 50.0
_ASK = (
    "import json, random, sys, time\n"
    "from pathlib import Path\n"
    "import numpy\n"
    "from vramscope.engine.files.memory_snapshot import read_memory_snapshot\n"
    "from vramscope.analyzers.snapshot_summary.cursor import TimeCursor\n"
    "clock = time.perf_counter\n"
    "start = clock(); snapshot = read_memory_snapshot(Path(sys.argv[1])); read_s = clock() - start\n"
    "start = clock(); cursor = TimeCursor(snapshot, 0); cursor.moment(cursor.peak, 20)\n"
    "follow_s = clock() - start\n"
    "chance = random.Random(7)\n"
    "answers, differences = [], []\n"
    "for _ in range(40):\n"
    "    first, second = (chance.randrange(cursor.newest + 1) for _ in range(2))\n"
    "    start = clock(); cursor.moment(first, 20); answers.append(clock() - start)\n"
    "    start = clock(); cursor.changes(first, second, 20); differences.append(clock() - start)\n"
    "print(json.dumps([cursor.newest + 1, read_s, follow_s, answers, differences]))\n"
)


@dataclass(frozen=True)
class CursorCost:
    """Medians of some fresh processes."""

    file_mib: float
    read_s: float
    """Unpickling the file into columns."""
    follow_s: float
    """Lifetimes of all blocks, and the first moment."""
    answer_ms: float
    """The slowest of 40 random moments, median of the processes."""
    difference_ms: float
    """The slowest of 40 pairs of moments."""


def measure_time_cursor(runs: int) -> CursorCost:
    """Return what opening a trace costs, and each question about it.

    Args:
        runs: Fresh processes; the median counts.
    """
    with tempfile.TemporaryDirectory(prefix="cursor-") as folder:
        path = Path(folder) / "trace.pickle"
        # In a process of its own, so that this one stays small.
        subprocess.run([sys.executable, "-m", __name__, str(path)], check=True)
        rows = []
        for _ in range(runs):
            done = subprocess.run(
                [sys.executable, "-c", _ASK, str(path)], capture_output=True, text=True, check=True
            )
            rows.append(json.loads(done.stdout))
        size = path.stat().st_size / 1024**2
    if any(row[0] != EVENTS for row in rows):
        raise RuntimeError(f"{rows[0][0]} events were read, {EVENTS} written")
    return CursorCost(
        file_mib=size,
        read_s=median(row[1] for row in rows),
        follow_s=median(row[2] for row in rows),
        answer_ms=1000 * median(max(row[3]) for row in rows),
        difference_ms=1000 * median(max(row[4]) for row in rows),
    )


def judge_time_cursor(cost: CursorCost) -> list[Budget]:
    """Return the budgets of a million events."""
    answer_ms = max(cost.answer_ms, cost.difference_ms)
    return [
        Budget("trace of 1,000,000 events: read and opened", cost.read_s + cost.follow_s, OPEN_LIMIT_S, "s"),
        Budget("trace of 1,000,000 events: slowest of 40 moments", answer_ms, ANSWER_LIMIT_MS, "ms"),
    ]


def format_time_cursor(cost: CursorCost) -> str:
    """Return the table."""
    head = ["file MiB", "read s", "follow s", "moment ms", "difference ms"]
    row = [
        format_number(cost.file_mib, 0),
        format_number(cost.read_s, 2),
        format_number(cost.follow_s, 2),
        format_number(cost.answer_ms, 1),
        format_number(cost.difference_ms, 1),
    ]
    return format_table(f"What lived at a moment, {EVENTS:,} events (slowest of 40 moments)", head, [row])


def as_cursor_figures(cost: CursorCost) -> Mapping[str, object]:
    """Return the cost as it stands in the JSON."""
    return asdict(cost)


def write_trace(path: Path, events: int) -> None:
    """Write a snapshot whose trace allocates and frees at random, at most `MOST_LIVE` blocks at a time."""
    gc.disable()
    chance = random.Random(20251128)
    stacks = grow_stacks(chance)
    free = list(range(2 * MOST_LIVE))
    live: list[tuple[int, int, list[dict[str, Any]]]] = []
    trace: list[dict[str, Any]] = []
    for number in range(events):
        if not live or (len(live) < MOST_LIVE and chance.random() < 0.55):
            slot, size, frames = free.pop(), 512 * chance.randint(1, 4000), list(chance.choice(stacks))
            live.append((slot, size, frames))
            action = "alloc"
        else:
            place = chance.randrange(len(live))
            live[place], live[-1] = live[-1], live[place]
            slot, size, frames = live.pop()
            free.append(slot)
            action = "free_requested"
        trace.append(_make_event(action, slot, size, number, frames))
    segments = [_make_segment(*each) for each in live]
    root = {"segments": segments, "device_traces": [trace], "allocator_settings": {}}
    with path.open("wb") as file:
        pickle.dump(root, file)


def _make_event(action: str, slot: int, size: int, number: int, frames: object) -> dict[str, Any]:
    return {
        "action": action,
        "addr": 0x7F00_0000_0000 + slot * SLOT_BYTES,
        "size": size,
        "stream": 0,
        "time_us": 1_700_000_000_000_000 + 10 * number,
        "frames": frames,
    }


def _make_segment(slot: int, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    address = 0x7F00_0000_0000 + slot * SLOT_BYTES
    block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated"}
    rest = {"address": address + size, "size": SLOT_BYTES - size, "requested_size": 0, "state": "inactive"}
    return {
        "device": 0,
        "address": address,
        "total_size": SLOT_BYTES,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [{**block, "frames": list(frames)}, {**rest, "frames": []}],
    }


if __name__ == "__main__":
    write_trace(Path(sys.argv[1]), EVENTS)
