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
from .summary import summarize_snapshot

__all__ = [
    "DeviceSummary",
    "FailedRequest",
    "FullnessBand",
    "MemoryLevels",
    "PoolFragmentation",
    "RequestFit",
    "SnapshotSummary",
    "StackGroup",
    "TraceSpan",
    "summarize_snapshot",
]
