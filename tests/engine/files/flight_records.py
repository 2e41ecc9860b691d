"""Flight records as the probe writes them."""

import gzip
import json
from pathlib import Path
from typing import Any

GIB = 1024**3
MIB = 1024**2
COLUMNS = [
    "time_s",
    "allocated_bytes",
    "requested_bytes",
    "active_bytes",
    "reserved_bytes",
    "inactive_split_bytes",
    "retries",
    "ooms",
    "step",
]
STACK = [
    ["/usr/lib/python3/site-packages/torch/nn/modules/linear.py", 125, "forward"],
    ["/job/model.py", 40, "block"],
    ["/job/train.py", 9, "<module>"],
]


PROCESS = {
    "pid": 4242,
    "started_s": 1_760_000_000.0,
    "argv": ["train.py", "--batch-size", "8"],
    "python": "3.11.7",
    "torch": "2.13.0",
    "backend": "cuda",
    "is_simulated": True,
    "rank": {"rank": 1, "world_size": 2, "tp": 0},
}
FAILURE = {
    "size_bytes": 2 * GIB,
    "device_free_bytes": 512 * MIB,
    "device_used_bytes": 24 * GIB - 512 * MIB,
    "message": "CUDA out of memory. Tried to allocate 2.00 GiB.",
    "stack": STACK,
}
SAMPLES = [
    [1_760_000_000.0 + second, (10 + second // 10) * GIB, None, None, 22 * GIB, None, 0, 0, second]
    for second in range(100)
]
STEPS = [
    [step, 1_760_000_000.0 + step, 1.0, (10 * GIB) + step * 64 * MIB, 19 * GIB, True] for step in range(1, 41)
]
MODEL = {
    "parameters_bytes": 2 * GIB,
    "gradients_bytes": 2 * GIB,
    "optimizer_bytes": 4 * GIB,
    "grad_sample_bytes": None,
}
STATS = {
    "allocated_bytes.all.current": 19 * GIB,
    "active_bytes.all.current": 19 * GIB,
    "reserved_bytes.all.current": 22 * GIB,
    "requested_bytes.all.current": 18 * GIB,
    "inactive_split_bytes.all.current": 2 * GIB,
    "num_alloc_retries": 3,
}
SEGMENT = {
    "device": 1,
    "address": 4096,
    "total_size": 20 * MIB,
    "stream": 0,
    "segment_type": "large",
    "segment_pool_id": [0, 0],
    "is_expandable": False,
    "blocks": [
        {"address": 4096, "size": 12 * MIB, "state": "active_allocated"},
        {"address": 12 * MIB + 4096, "size": 8 * MIB, "state": "inactive"},
    ],
}


def record(**fields: Any) -> dict[str, Any]:
    """Return the content of a record in which everything is told."""
    return {
        "schema": "vramscope.flight/1",
        "written_s": 1_760_000_100.0,
        "reason": "oom",
        "process": dict(PROCESS),
        "device": {"uuid": "GPU-1", "index": 1, "name": "Simulated", "total_bytes": 24 * GIB},
        "failure": dict(FAILURE),
        "columns": COLUMNS,
        "samples": SAMPLES,
        "steps": STEPS,
        "model": dict(MODEL),
        "stats": dict(STATS),
        "segments": [dict(SEGMENT)],
        "live_blocks": [
            {"size_bytes": 9 * GIB, "count": 48, "stack": STACK},
            {"size_bytes": 4 * GIB, "count": 300, "stack": []},
        ],
        "truncated": {"samples": 0, "segments": 7, "blocks": 0},
        "notes": ["stacks of blocks that were allocated before the record began are unknown"],
        **fields,
    }


def write_record(folder: Path, content: object, name: str = "flight.json.gz") -> Path:
    """Write a file as the probe does and return its path."""
    path = folder / name
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path
