"""The words of vramscope: frozen structs that cross every boundary."""

from .advice import ADVICE_ACTIONS, AdviceAction
from .analysis import Analyzer, Annotator, Assessor
from .assessment import Assessment, RiskLevel
from .device import (
    SIMULATED_TRACE,
    DeviceKind,
    DeviceSample,
    DeviceState,
    MemoryReading,
    ProcessReading,
)
from .finding import SEVERITIES, Evidence, Finding, Severity, make_finding_id, order_findings
from .headroom import HeadroomEstimate
from .host import HostSample
from .rank import (
    AllocatorReading,
    Backend,
    ModelStateReading,
    PhaseReading,
    RankCoordinates,
    RankSample,
    RankState,
    StepReading,
)
from .sample import Sample
from .segments import LiveStack, Segment, SegmentMap
from .status import STATUS_SCHEMA, HookStatus, HubStatus, NodeStatus, WorkerStatus

__all__ = [
    "ADVICE_ACTIONS",
    "SEVERITIES",
    "SIMULATED_TRACE",
    "STATUS_SCHEMA",
    "AdviceAction",
    "AllocatorReading",
    "Analyzer",
    "Annotator",
    "Assessment",
    "Assessor",
    "Backend",
    "DeviceKind",
    "DeviceSample",
    "DeviceState",
    "Evidence",
    "Finding",
    "HeadroomEstimate",
    "HookStatus",
    "HostSample",
    "HubStatus",
    "LiveStack",
    "MemoryReading",
    "ModelStateReading",
    "NodeStatus",
    "PhaseReading",
    "ProcessReading",
    "RankCoordinates",
    "RankSample",
    "RankState",
    "RiskLevel",
    "Sample",
    "Segment",
    "SegmentMap",
    "Severity",
    "StepReading",
    "WorkerStatus",
    "make_finding_id",
    "order_findings",
]
