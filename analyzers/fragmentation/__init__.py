"""Fragmentation: memory that the allocator holds and the job cannot have, weighed against what is left."""

from .analyzer import FragmentationAnalyzer
from .segment_maps import (
    AllocationPattern,
    MapFragmentation,
    PoolFree,
    UsableSize,
    describe_pattern,
    describe_trace_pattern,
    judge_usability,
    measure_map,
)
from .track import KIND, FragmentationReading, FragmentationTrend, Level, Measure, level_of

__all__ = [
    "KIND",
    "AllocationPattern",
    "FragmentationAnalyzer",
    "FragmentationReading",
    "FragmentationTrend",
    "Level",
    "MapFragmentation",
    "Measure",
    "PoolFree",
    "UsableSize",
    "describe_pattern",
    "describe_trace_pattern",
    "judge_usability",
    "level_of",
    "measure_map",
]
