"""Memory snapshots as PyTorch pickles them: segments, blocks, events and frames made by hand."""

import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

MIB = 1024**2
BASE = 0x7F1000000000
"""Where the first segment starts."""

Row = dict[str, Any]


def frame(name: str, filename: str = "train.py", line: int = 1) -> Row:
    """Return one frame."""
    return {"filename": filename, "line": line, "name": name}


TORCH = "/usr/lib/python3/site-packages/torch/nn/modules/linear.py"
LINEAR = [
    frame("forward", TORCH, 125),
    frame("block", "/job/model.py", 40),
    frame("<module>", "/job/train.py", 9),
]
EMBED = [frame("forward", "/job/model.py", 12), frame("<module>", "/job/train.py", 9)]


def block(
    size: int, state: str = "active_allocated", requested: int | None = None, frames: list[Row] | None = None
) -> Row:
    """Return a block; its address is set by the segment that holds it."""
    asked = size if requested is None else requested
    return {
        "address": 0,
        "size": size,
        "requested_size": asked if state != "inactive" else 0,
        "state": state,
        "frames": frames or [],
    }


def free(size: int) -> Row:
    """Return an inactive block."""
    return block(size, "inactive")


def segment(blocks: list[Row], address: int = BASE, **fields: Any) -> Row:
    """Return a segment around some blocks, which it lays one after another."""
    at = address
    for each in blocks:
        each["address"] = at
        at += each["size"]
    live = [each for each in blocks if each["state"] != "inactive"]
    return {
        "device": 0,
        "address": address,
        "total_size": at - address,
        "allocated_size": sum(each["size"] for each in live if each["state"] == "active_allocated"),
        "active_size": sum(each["size"] for each in live),
        "requested_size": sum(each.get("requested_size", 0) for each in live),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
        **fields,
    }


def event(action: str, address: int, size: int, time_us: int, **fields: Any) -> Row:
    """Return an event; without the key `frames`, as one that was recorded without context."""
    key = "device_free" if action == "oom" else "addr"
    return {"action": action, key: address, "size": size, "stream": 0, "time_us": time_us, **fields}


def snapshot(segments: Sequence[Row], *traces: Iterable[Row], **fields: Any) -> Row:
    """Return the root of a file of today."""
    return {
        "segments": list(segments),
        "device_traces": [list(trace) for trace in traces] or [[]],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
            "roundup_power2_divisions": {"1": 0, "2": 0},
        },
        "external_annotations": [],
        **fields,
    }


def write_snapshot(folder: Path, root: object, *, protocol: int = 4, name: str = "snapshot.pickle") -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_bytes(pickle.dumps(root, protocol=protocol))
    return path


def small_snapshot() -> Row:
    """Return two segments, one of them half empty, whose blocks come from two stacks."""
    return snapshot(
        [
            segment([block(6 * MIB, frames=LINEAR), free(2 * MIB), block(12 * MIB, frames=list(EMBED))]),
            segment([free(20 * MIB)], BASE + 64 * MIB),
        ]
    )
