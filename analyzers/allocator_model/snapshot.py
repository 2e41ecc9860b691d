"""Segments and blocks as `torch.cuda.memory_snapshot()` gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .blocks import Block
from .settings import AllocatorSettings
from .statistics import UNLIMITED

if TYPE_CHECKING:
    from .ruled_heap import RuledHeap


def describe_heap(heap: RuledHeap, allocated: Iterable[Block], device: int) -> dict[str, Any]:
    """Return segments, traces and settings; one list of traces for each device up to this one."""
    segments = describe_segments(heap, allocated, device)
    active = sum(segment["active_size"] for segment in segments)
    heap.history.add("snapshot", 0, active, 0)
    return {
        "segments": segments,
        "device_traces": [[] for _ in range(device)] + [heap.history.as_dicts()],
        "allocator_settings": describe_settings(heap.settings),
        "external_annotations": [],
    }


def describe_segments(heap: RuledHeap, allocated: Iterable[Block], device: int) -> list[dict[str, Any]]:
    """Return the segments in order of address; of expandable ones each contiguous mapped range is one.

    Args:
        heap: All pools, private ones too, and the blocks that wait for events.
        allocated: The blocks in use.
        device: Index of the card.
    """
    heads = {
        block.address: block
        for block in _walk(heap, allocated)
        if block.prev is None or block.prev.is_unmapped
    }
    return [_describe_segment(heads[address], device) for address in sorted(heads)]


def _walk(heap: RuledHeap, allocated: Iterable[Block]) -> Iterator[Block]:
    private = [pool for both in heap.private_pools.live.values() for pool in (both.small, both.large)]
    for pool in (heap.small, heap.large, *private):
        yield from pool.free_blocks()
    yield from heap.events.waiting()
    yield from allocated


def _describe_segment(head: Block, device: int) -> dict[str, Any]:
    blocks = []
    block: Block | None = head
    while block is not None and not block.is_unmapped:
        blocks.append(_describe_block(block))
        block = block.next
    active = [described for described in blocks if described["state"] != "inactive"]
    pool = head.arena.pool
    return {
        "device": device,
        "address": head.address,
        "total_size": sum(described["size"] for described in blocks),
        "allocated_size": sum(d["size"] for d in blocks if d["state"] == "active_allocated"),
        "active_size": sum(described["size"] for described in active),
        "requested_size": sum(described["requested_size"] for described in active),
        "stream": head.arena.stream,
        "segment_type": "small" if pool.is_small else "large",
        "segment_pool_id": (0, 0) if pool.private is None else pool.private.pool_id,
        "is_expandable": head.region is not None,
        "frames": head.segment_frames or [],
        "blocks": blocks,
    }


def _describe_block(block: Block) -> dict[str, Any]:
    if block.is_allocated:
        state = "active_allocated"
    elif block.is_free:
        state = "inactive"
    else:
        state = "active_pending_free"
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": 0 if block.is_free else block.requested,
        "state": state,
        "frames": block.frames or [],
    }


def describe_settings(settings: AllocatorSettings) -> dict[str, Any]:
    """Return the settings as a snapshot holds them."""
    limit = settings.max_split_bytes
    return {
        "PYTORCH_CUDA_ALLOC_CONF": settings.text,
        "max_split_size": UNLIMITED if limit is None else limit,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": settings.expandable_segments,
        "pinned_num_register_threads": int(_read(settings, "pinned_num_register_threads", "1")),
        "release_lock_on_cudamalloc": _read(settings, "release_lock_on_cudamalloc", "False") == "True",
        "pinned_use_cuda_host_register": _read(settings, "pinned_use_cuda_host_register", "False") == "True",
        "graph_capture_record_stream_reuse": (
            _read(settings, "graph_capture_record_stream_reuse", "False") == "True"
        ),
        "roundup_power2_divisions": {
            str(1 << interval): parts for interval, parts in enumerate(settings.roundup_power2_divisions)
        },
    }


def _read(settings: AllocatorSettings, key: str, default: str) -> str:
    return dict(settings.unmodelled).get(key, default)
