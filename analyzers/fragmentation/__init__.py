"""Fragmentation: memory that the allocator holds and the job cannot have, weighed against what is left."""

from .analyzer import FragmentationAnalyzer
from .model import FragmentationReading, FragmentationTrend, Level, Measure, level_of
from .patterns import AllocationPattern, describe_pattern, describe_trace_pattern
from .segment_maps import MapFragmentation, PoolFree, measure_map
from .track import KIND
from .usability import UsableSize, judge_usability

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
