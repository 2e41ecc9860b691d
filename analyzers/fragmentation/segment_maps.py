"""What a segment map says of fragmentation: free blocks by pool and stream, as requests are served."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal

import msgspec

from ...engine.model import Segment, SegmentMap
from ...engine.model.segments import FREE
from ..segment_summary import find_stranded

PoolKey = tuple[bool, Literal["small", "large"], int]
"""Private, kind and stream: a request is served from the free blocks of its own only."""


class PoolFree(msgspec.Struct, frozen=True):
    """The free blocks of one pool and stream."""

    pool: Literal["small", "large"]
    stream: int
    is_private: bool
    """Of private pools, whose free blocks serve nobody else; several of one stream are told as one."""
    reserved_bytes: int
    free_bytes: int
    largest_free_bytes: int
    stranded_bytes: int
    free_blocks: int
    external: float | None
    """1 - largest free block / free bytes; None without free bytes."""


class MapFragmentation(msgspec.Struct, frozen=True):
    """One segment map."""

    time_s: float
    pools: tuple[PoolFree, ...]
    """Most free bytes first."""
    external: float | None
    """Of the shared pool with the most free bytes; None where nothing is free."""
    free_bytes: int
    free_blocks: int
    largest_free_bytes: int
    """Outside private pools."""
    stranded_bytes: int
    """Free and not to be given back; in expandable segments only what is free beside whole pages."""
    segments_left_out: int
    """Segments that the map does not tell of, because it grew too large."""


def measure_map(segment_map: SegmentMap) -> MapFragmentation:
    """Return the fragmentation that a segment map shows."""
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
    """Return the sizes of free blocks in bytes."""
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
