"""Fragmentation in a segment map: free blocks by pool and stream, as requests are served."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ...engine.model import Segment, SegmentMap
from ...engine.model.memory_snapshot import UNMEASURED, TraceAction, TraceColumns
from ...engine.model.sample import ALLOCATED, FREE
from ...engine.units import GIB, MIB
from ..segments import find_stranded

# Private, kind and stream: a request is served only from the free blocks of its own.
PoolKey = tuple[bool, Literal["small", "large"], int]


class PoolFree(msgspec.Struct, frozen=True):
    """The free blocks of one pool and stream."""

    pool: Literal["small", "large"]
    stream: int
    # Whether it stands for private pools, whose free blocks serve nobody else; several of one stream are one.
    is_private: bool
    reserved_bytes: int
    free_bytes: int
    largest_free_bytes: int
    stranded_bytes: int
    free_blocks: int
    # 1 - largest free block / free bytes; None without free bytes.
    external: float | None


class MapFragmentation(msgspec.Struct, frozen=True):
    time_s: float
    # Most free bytes first.
    pools: tuple[PoolFree, ...]
    # In the shared pool with the most free bytes; None where nothing is free.
    external: float | None
    free_bytes: int
    free_blocks: int
    # Outside private pools.
    largest_free_bytes: int
    # Free and not to be given back; in expandable segments only what is free besides whole pages.
    stranded_bytes: int
    # Segments missing in the map, because it grew too large.
    segments_left_out: int


def measure_map(segment_map: SegmentMap) -> MapFragmentation:
    grouped: dict[PoolKey, list[Segment]] = defaultdict(list)
    for segment in segment_map.segments:
        grouped[pool_key(segment)].append(segment)
    pools = sorted(
        (_measure_pool(key, segments) for key, segments in grouped.items()),
        key=lambda pool: (-pool.free_bytes, pool.pool, pool.stream, pool.is_private),
    )
    shared = [pool for pool in pools if not pool.is_private]
    return MapFragmentation(
        time_s=segment_map.time_s,
        pools=tuple(pools),
        external=shared[0].external if shared else None,
        free_bytes=sum(pool.free_bytes for pool in pools),
        free_blocks=sum(pool.free_blocks for pool in pools),
        largest_free_bytes=max((pool.largest_free_bytes for pool in shared), default=0),
        stranded_bytes=sum(pool.stranded_bytes for pool in pools),
        segments_left_out=segment_map.segments_left_out,
    )


def pool_key(segment: Segment) -> PoolKey:
    """Return the pool and stream whose requests a segment serves."""
    return segment.is_private, segment.pool, segment.stream


def list_free(segments: Iterable[Segment]) -> list[int]:
    return [size_bytes for segment in segments for size_bytes, state in segment.blocks if state == FREE]


def _measure_pool(key: PoolKey, segments: list[Segment]) -> PoolFree:
    free = list_free(segments)
    total = sum(free)
    largest = max(free, default=0)
    return PoolFree(
        pool=key[1],
        stream=key[2],
        is_private=key[0],
        reserved_bytes=sum(segment.total_bytes for segment in segments),
        free_bytes=total,
        largest_free_bytes=largest,
        stranded_bytes=sum(find_stranded(segment) for segment in segments),
        free_blocks=len(free),
        external=1 - largest / total if total else None,
    )


# How a job allocates: sizes, and how often where that is recorded.

SIZE_CLASSES = ("small (<64MB)", "medium (64MB-256MB)", "large (256MB-1GB)", "huge (>1GB)")
_BOUNDS = (64 * MIB, 256 * MIB, GIB)
# Most by which the busiest of equal parts of the time may exceed the mean where allocation is even.
_EVEN = 1.5
_PARTS = 16


# Whether allocations come evenly over the time, or in a few parts of it.
TemporalPattern = Literal["steady", "bursts"]


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
    """Return the sizes of the live blocks in a segment map, which does not record how often they come."""
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
    counts = Counter(SIZE_CLASSES[sum(size >= bound for bound in _BOUNDS)] for size in sizes)
    return AllocationPattern(
        count=len(sizes),
        average_bytes=sum(sizes) / len(sizes) if sizes else None,
        sizes={name: counts[name] for name in SIZE_CLASSES},
    )


def find_pattern(counts: Sequence[tuple[float, int]]) -> TemporalPattern | None:
    """Return whether allocations (times in any unit, counts) come evenly; None where too few are known."""
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


# Whether the sizes that a job asks for can still be served: the fragmentation that a person can act on.

MOST_SIZES = 8
# Requests up to this are served from segments of the small pool (`kSmallSize` of PyTorch's allocator).
SMALL_BYTES = MIB


class UsableSize(msgspec.Struct, frozen=True):
    """One size that the job asks for."""

    # Rounded up to 512 B.
    size_bytes: int
    # Live blocks of this size, or how often it was asked for.
    count: int
    stream: int
    # How many more of it the free blocks of its pool and stream hold.
    servable: int
    # What the device must give for one that no free block holds.
    segment_bytes: int
    # Whether one more can be served, from a free block or a new segment; None where free device memory is
    # unknown and no free block holds it.
    is_servable: bool | None


def judge_usability(
    segment_map: SegmentMap,
    device_free_bytes: int | None,
    requests: Sequence[tuple[int, int, int]] | None = None,
) -> tuple[UsableSize, ...]:
    """Return the sizes that matter most by bytes times count, and whether one more of each can be served.

    `requests` are size in bytes, stream and count of the job's requests; None uses the sizes of the live
    blocks.
    """
    wanted = requests if requests is not None else _list_live(segment_map)
    free: dict[PoolKey, list[int]] = defaultdict(list)
    expandable = set()
    for segment in segment_map.segments:
        free[pool_key(segment)].extend(list_free([segment]))
        if segment.is_expandable:
            expandable.add(pool_key(segment))
    chosen = sorted(wanted, key=lambda request: (-request[0] * request[2], request))[:MOST_SIZES]
    found = []
    for size_bytes, stream, count in chosen:
        key: PoolKey = (False, "small" if size_bytes <= SMALL_BYTES else "large", stream)
        found.append(_judge(size_bytes, stream, count, free[key], key in expandable, device_free_bytes))
    return tuple(found)


def _judge(
    size_bytes: int, stream: int, count: int, free: list[int], is_expandable: bool, device_free: int | None
) -> UsableSize:
    servable = sum(block // size_bytes for block in free)
    segment = find_segment_size(size_bytes, is_expandable=is_expandable)
    can_grow = None if device_free is None else device_free >= segment
    return UsableSize(
        size_bytes=size_bytes,
        count=count,
        stream=stream,
        servable=servable,
        segment_bytes=segment,
        is_servable=True if servable else can_grow,
    )


def find_segment_size(size_bytes: int, *, is_expandable: bool = False) -> int:
    """Return the bytes of device memory needed for a request that no free block holds.

    Expandable segments grow by pages of 2 MiB (small pool) or 20 MiB; what is free at their end would be used
    too, so that the answer is the most that is needed.
    """
    if is_expandable:
        page = 2 * MIB if size_bytes <= SMALL_BYTES else 20 * MIB
        return -(-size_bytes // page) * page
    if size_bytes <= SMALL_BYTES:
        return 2 * MIB
    if size_bytes < 10 * MIB:
        return 20 * MIB
    return -(-size_bytes // (2 * MIB)) * 2 * MIB


def _list_live(segment_map: SegmentMap) -> list[tuple[int, int, int]]:
    """Return size, stream and count of the live blocks outside private pools."""
    counts = Counter(
        (size_bytes, segment.stream)
        for segment in segment_map.segments
        if not segment.is_private
        for size_bytes, state in segment.blocks
        if state == ALLOCATED and size_bytes > 0
    )
    return [(size_bytes, stream, count) for (size_bytes, stream), count in counts.items()]
