"""Recordings from real cards that the model must meet: allocated to the byte, reserved within 1 %.

A recording is a file `tests/analyzers/allocator_model/data/*.json.gz`. To make one, on a GPU and in a fresh
process:

    torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    ...                                      # train some steps
    snapshot = torch.cuda.memory._snapshot()
    vector = make_vector(snapshot, torch.cuda.memory_stats(), source="GPU, PyTorch version, what was trained",
                         capacity_bytes=torch.cuda.mem_get_info()[1])
    write_vector(Path("tests/analyzers/allocator_model/data/name.json.gz"), vector)
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vramscope.analyzers.allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
)

FOLDER = Path(__file__).with_name("data")
RESERVED_TOLERANCE = 0.01


@dataclass(frozen=True)
class Vector:
    """What was asked of a real allocator, and what it then held."""

    source: str
    """Which card, which PyTorch, who measured."""
    settings: str
    capacity_bytes: int
    """What the card had for this process."""
    events: list[tuple[int, int, int]]
    """Block, bytes (0 frees it) and stream."""
    checks: list[tuple[int, int | None, int | None]]
    """After how many events which allocated and which reserved bytes were read; None for what was not."""


def read_vector(path: Path) -> Vector:
    """Read a recording."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        content = json.load(file)
    content["events"] = [tuple(event) for event in content["events"]]
    content["checks"] = [tuple(check) for check in content["checks"]]
    return Vector(**content)


def write_vector(path: Path, vector: Vector) -> None:
    """Write a recording, to the same bytes each time."""
    text = json.dumps(asdict(vector), separators=(",", ":"))
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def make_vector(
    snapshot: Mapping[str, Any], stats: Mapping[str, int], *, source: str, capacity_bytes: int
) -> Vector:
    """Make a recording of a snapshot that holds everything since the process began.

    Args:
        snapshot: What `torch.cuda.memory._snapshot()` returned.
        stats: What `torch.cuda.memory_stats()` returned right after it.
        source: Which card, which PyTorch, what ran.
        capacity_bytes: What the card had for this process.
    """
    events: list[tuple[int, int, int]] = []
    checks: list[tuple[int, int | None, int | None]] = []
    names: dict[int, int] = {}
    reserved = 0
    for entry in next(trace for trace in snapshot["device_traces"] if trace):
        action, size = entry["action"], entry["size"]
        if action in {"segment_alloc", "segment_map"}:
            reserved += size
        elif action in {"segment_free", "segment_unmap"}:
            reserved -= size
        elif action == "alloc":
            names[entry["addr"]] = len(events)
            events.append((len(events), size, entry["stream"]))
            checks.append((len(events), None, reserved))
        elif action == "free_requested":
            events.append((names.pop(entry["addr"]), 0, 0))
    checks.append((len(events), stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"]))
    settings = snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"]
    return Vector(source, settings, capacity_bytes, events, checks)


def find_deviations(vector: Vector) -> list[str]:
    """Return where the model holds something else than the card did, in words."""
    card = PrivateDeviceMemory(vector.capacity_bytes)
    allocator = CachingAllocator(card, AllocatorSettings.parse(vector.settings))
    checks = {count: (allocated, reserved) for count, allocated, reserved in vector.checks}
    live: dict[int, int] = {}
    found: list[str] = []
    for count, (block, size, stream) in enumerate(vector.events, 1):
        try:
            if size:
                live[block] = allocator.malloc(size, stream)
            else:
                allocator.free(live.pop(block))
        except AllocatorOutOfMemoryError as error:
            return [*found, f"event {count}: {error}"]
        allocated, reserved = checks.get(count, (None, None))
        if allocated is not None and allocator.allocated_bytes != allocated:
            found.append(f"event {count}: {allocator.allocated_bytes} allocated, the card had {allocated}")
        if reserved is not None and abs(allocator.reserved_bytes - reserved) > RESERVED_TOLERANCE * reserved:
            found.append(f"event {count}: {allocator.reserved_bytes} reserved, the card had {reserved}")
    return found
