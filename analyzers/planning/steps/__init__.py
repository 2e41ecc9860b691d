"""The memory of a training step out of its trace: peak, kinds, modules, lines, and whether it fits."""

from .estimate import EstimateRequest, estimate_traces
from .model import SCHEMA, CapacityCheck, DepthCheck, PhasePeak, Share, StackShare, StepEstimate
from .peaks import StepPeaks
from .replaying import rehearse, take_snapshot
from .trace import StepTrace, TraceResult

__all__ = [
    "SCHEMA",
    "CapacityCheck",
    "DepthCheck",
    "EstimateRequest",
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
