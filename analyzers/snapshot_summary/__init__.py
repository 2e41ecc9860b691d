"""What a PyTorch memory snapshot says: pure functions from columns to figures and sentences."""

from .model import (
    DeviceSummary,
    FailedRequest,
    FullnessBand,
    MemoryLevels,
    PoolFragmentation,
    RequestFit,
    SnapshotSummary,
    StackGroup,
    TraceSpan,
)
from .segment_map import SegmentOrder, SegmentRow, map_segments
from .summary import summarize_snapshot, trace_levels
from .timeline import Timeline

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
