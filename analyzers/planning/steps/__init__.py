"""The memory of a training step out of its trace: peak, kinds, modules, lines, and whether it fits."""

from .estimate import EstimateRequest, StepPeaks, estimate_traces
from .model import (
    SCHEMA,
    CapacityCheck,
    DepthCheck,
    GpuKind,
    OutsidePart,
    PhasePeak,
    Share,
    StackShare,
    StepEstimate,
    StepTrace,
    TraceResult,
    rehearse,
    take_snapshot,
)

__all__ = [
    "SCHEMA",
    "CapacityCheck",
    "DepthCheck",
    "EstimateRequest",
    "GpuKind",
    "OutsidePart",
    "PhasePeak",
    "Share",
    "StackShare",
    "StepEstimate",
    "StepPeaks",
    "StepTrace",
    "TraceResult",
    "estimate_traces",
    "rehearse",
    "take_snapshot",
]
