"""Contiguous partitions of a model's layers into pipeline stages."""

from .exact import Split, split_exactly, split_in_flight, split_over_devices
from .graph_analyzer import MICRO_BATCHES, Device, GraphAnalyzer, Rule
from .plan import PLAN_SCHEMA, Plan, make_plan
from .result import (
    METRICS,
    STRATEGIES,
    Bottleneck,
    Distribution,
    GraphAnalysis,
    Metric,
    PartitionResult,
    PartitionStage,
    StageCount,
    StageMemory,
    StageSearch,
    Strategy,
)

__all__ = [
    "METRICS",
    "MICRO_BATCHES",
    "PLAN_SCHEMA",
    "STRATEGIES",
    "Bottleneck",
    "Device",
    "Distribution",
    "GraphAnalysis",
    "GraphAnalyzer",
    "Metric",
    "PartitionResult",
    "PartitionStage",
    "Plan",
    "Rule",
    "Split",
    "StageCount",
    "StageMemory",
    "StageSearch",
    "Strategy",
    "make_plan",
    "split_exactly",
    "split_in_flight",
    "split_over_devices",
]
