"""Reader of PyTorch memory snapshots (`torch.cuda.memory._dump_snapshot`, `memory_snapshot()`)."""

from ...model.memory_snapshot import (
    UNMEASURED,
    Annotation,
    BlockColumns,
    BlockState,
    Frame,
    MemorySnapshot,
    SegmentColumns,
    StackTable,
    TraceAction,
    TraceColumns,
)
from .reader import convert_tree, read_memory_snapshot

__all__ = [
    "UNMEASURED",
    "Annotation",
    "BlockColumns",
    "BlockState",
    "Frame",
    "MemorySnapshot",
    "SegmentColumns",
    "StackTable",
    "TraceAction",
    "TraceColumns",
    "convert_tree",
    "read_memory_snapshot",
]
