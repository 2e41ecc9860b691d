"""Summary of a PyTorch memory snapshot: pure functions from columns to numbers and sentences."""

from .model import (
    DeviceSummary,
    FailedRequest,
    FullnessBand,
    MemoryLevels,
    PoolFragmentation,
    RequestFit,
    SnapshotSummary,
    StackGroup,
    Timeline,
    TraceSpan,
)
from .summary import summarize_snapshot, trace_levels
from .view import SegmentOrder, SegmentRow, map_segments

__all__ = [
    "DeviceSummary",
    "FailedRequest",
    "FullnessBand",
    "MemoryLevels",
    "PoolFragmentation",
    "RequestFit",
    "SegmentOrder",
    "SegmentRow",
    "SnapshotSummary",
    "StackGroup",
    "Timeline",
    "TraceSpan",
    "map_segments",
    "summarize_snapshot",
    "trace_levels",
]
