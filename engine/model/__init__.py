"""The words of vramscope: frozen structs that cross every boundary."""

from .analysis import Analyzer
from .device import (
    AllocatorReading,
    DeviceKind,
    DeviceSample,
    DeviceState,
    MemoryReading,
    ProcessReading,
    RankCoordinates,
)
from .finding import SEVERITIES, Evidence, Finding, Severity, make_finding_id
from .host import HostSample
from .sample import Sample
from .status import STATUS_SCHEMA, HubStatus, NodeStatus, WorkerStatus

__all__ = [
    "SEVERITIES",
    "STATUS_SCHEMA",
    "AllocatorReading",
    "Analyzer",
    "DeviceKind",
    "DeviceSample",
    "DeviceState",
    "Evidence",
    "Finding",
    "HostSample",
    "HubStatus",
    "MemoryReading",
    "NodeStatus",
    "ProcessReading",
    "RankCoordinates",
    "Sample",
    "Severity",
    "WorkerStatus",
    "make_finding_id",
]
