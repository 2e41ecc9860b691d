"""Whether the sizes that a job asks for can still be served: the fragmentation that a person can act on."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from ...engine.model import SegmentMap
from ...engine.model.segments import ALLOCATED
from ...engine.units import MIB
from .segment_maps import PoolKey, list_free, pool_key

MOST_SIZES = 8
SMALL_BYTES = MIB
"""Requests up to this are served from segments of the small pool (`kSmallSize` of PyTorch's allocator)."""


class UsableSize(msgspec.Struct, frozen=True):
    """One size that the job asks for."""

    size_bytes: int
    """Rounded up to 512 B."""
    count: int
    """Live blocks of this size, or how often it was asked for."""
    stream: int
    servable: int
    """How many more of it the free blocks of its pool and stream hold."""
    segment_bytes: int
    """What the device must give for one that no free block holds."""
    is_servable: bool | None
    """Whether one more can be had, from a free block or a new segment; None where what is free on the device
    is unknown and no free block holds it."""


def judge_usability(
    segment_map: SegmentMap,
    device_free_bytes: int | None,
    requests: Sequence[tuple[int, int, int]] | None = None,
) -> tuple[UsableSize, ...]:
    """Return the sizes that matter most by bytes times count, and whether one more of each can be served.

    Args:
        segment_map: Segments of the process.
        device_free_bytes: What the device has free, None where unknown.
        requests: Size in bytes, stream and count of what the job asks for; sizes of the live blocks if None.
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
    """Return the bytes that the device must give for a request that no free block holds.

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
