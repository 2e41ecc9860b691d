"""How a job allocates: sizes, and how often where that is recorded."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ...engine.model import SegmentMap
from ...engine.model.memory_snapshot import UNMEASURED, TraceAction, TraceColumns
from ...engine.model.segments import ALLOCATED
from ...engine.units import GIB, MIB

SIZE_CLASSES = ("small (<64MB)", "medium (64MB-256MB)", "large (256MB-1GB)", "huge (>1GB)")
_BOUNDS = (64 * MIB, 256 * MIB, GIB)
_EVEN = 1.5
"""Most by which the busiest of equal parts of the time may exceed the mean where allocation is even."""
_PARTS = 16


TemporalPattern = Literal["steady", "bursts"]
"""Whether allocations come evenly over the time, or in a few parts of it."""


class AllocationPattern(msgspec.Struct, frozen=True):
    """Sizes of allocations, and how often they come; None where that is not recorded."""

    count: int
    average_bytes: float | None
    sizes: dict[str, int]
    """Number by class of size."""
    allocations_per_s: float | None = None
    frees_per_s: float | None = None
    temporal_pattern: TemporalPattern | None = None


def describe_pattern(segment_map: SegmentMap) -> AllocationPattern:
    """Return the sizes of the blocks that live in a segment map; how often they come it does not tell."""
    live = [
        size_bytes
        for segment in segment_map.segments
        for size_bytes, state in segment.blocks
        if state == ALLOCATED
    ]
    return _count(live)


def describe_trace_pattern(trace: TraceColumns) -> AllocationPattern:
    """Return sizes and rates of the allocations of a recorded trace."""
    sizes = []
    times_us = []
    frees = 0
    for action, size_bytes, time_us in zip(trace.action, trace.size_bytes, trace.time_us, strict=True):
        if action == TraceAction.ALLOC:
            sizes.append(size_bytes)
            times_us.append(time_us)
        elif action == TraceAction.FREE_REQUESTED:
            frees += 1
    known = [time_us for time_us in trace.time_us if time_us != UNMEASURED]
    span_s = (max(known) - min(known)) / 1e6 if len(known) == len(trace.time_us) and known else 0.0
    found = _count(sizes)
    if span_s <= 0:
        return found
    return msgspec.structs.replace(
        found,
        allocations_per_s=len(sizes) / span_s,
        frees_per_s=frees / span_s,
        temporal_pattern=find_pattern([(time_us, 1) for time_us in times_us]),
    )


def _count(sizes: list[int]) -> AllocationPattern:
    counts = Counter(_classify(sizes))
    return AllocationPattern(
        count=len(sizes),
        average_bytes=sum(sizes) / len(sizes) if sizes else None,
        sizes={name: counts[name] for name in SIZE_CLASSES},
    )


def _classify(sizes: Iterable[int]) -> Iterable[str]:
    for size_bytes in sizes:
        yield SIZE_CLASSES[sum(size_bytes >= bound for bound in _BOUNDS)]


def find_pattern(counts: Sequence[tuple[float, int]]) -> TemporalPattern | None:
    """Return whether allocations come evenly over equal parts of the time; None where too few are known.

    Args:
        counts: Times, in any unit, and how many allocations came at each.
    """
    total = sum(count for _, count in counts)
    if len(counts) < 2 * _PARTS or not total:
        return None
    first = min(time for time, _ in counts)
    last = max(time for time, _ in counts)
    if last == first:
        return None
    parts: Counter[int] = Counter()
    for time, count in counts:
        parts[min(_PARTS - 1, int((time - first) * _PARTS / (last - first)))] += count
    return "steady" if max(parts.values()) <= _EVEN * total / _PARTS else "bursts"
