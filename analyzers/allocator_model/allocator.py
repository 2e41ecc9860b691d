"""The allocator as a process sees it: addresses in, addresses out, from any thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Callable, TypeVar

from .blocks import COUNTED, Block, DeviceCounters, Peaks, Tally
from .heap import RuledHeap
from .memory import DeviceMemory, read_clock_us
from .settings import AllocatorSettings, UnknownAddressError

PoolId = tuple[int, int]
_Read = TypeVar("_Read")


class CachingAllocator:
    """A model of PyTorch's CUDA caching allocator for one device.

    It may be called from any thread, and from callbacks that run at any time: a weak reference may die, and
    its callback free a block, while this very thread is inside `malloc`, because Python collects garbage
    there. So an operation holds a lock and marks itself as under way. A caller that may not wait, or that is
    inside an operation, puts its own operation into a queue; it runs, in order, when the present one has
    ended. A malloc from inside a malloc cannot wait for its address: it gets a new segment of its own.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        settings: AllocatorSettings | None = None,
        *,
        device: int = 0,
        clock_us: Callable[[], int] = read_clock_us,
    ) -> None:
        self.memory = memory
        self.settings = AllocatorSettings() if settings is None else settings
        self.device = device
        heap = self._heap = RuledHeap(memory, self.settings, clock_us)
        self._statistics = Statistics(
            self.settings,
            heap.small_tally,
            heap.large_tally,
            peaks=heap.peaks,
            counters=heap.supply.counters,
        )
        self._live: dict[int, Block] = {}
        self._lock = threading.RLock()
        self._is_busy = False
        self._queue: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()

    def malloc(self, size_bytes: int, stream: int = 0) -> int:
        """Allocate memory and return its address; 0 bytes are at address 0 and need nothing.

        Raises:
            AllocatorOutOfMemoryError: The card, or the allowed share of it, has no room.
            ValueError: The size is negative.
        """
        if size_bytes <= 0:
            if size_bytes < 0:
                raise ValueError(f"cannot allocate {size_bytes} bytes")
            return 0
        heap = self._heap
        frames = None if heap.history.frames is None else heap.history.frames()
        with self._lock:
            if self._is_busy:
                return self._malloc_inside(size_bytes, stream)
            self._is_busy = True
            try:
                if self._queue:
                    self._drain()
                heap.history.frames_at_hand = frames
                block = heap.take(size_bytes, stream)
                address = block.address
                self._live[address] = block
            finally:
                self._is_busy = False
        if self._queue:
            self._settle_queue()
        return address

    def free(self, address: int) -> None:
        """Free what `malloc` returned; never waits, so that it may be called from any callback.

        Raises:
            UnknownAddressError: Nothing is allocated there.
        """
        block = self._live.pop(address, None)
        if block is None:
            _refuse_unknown(address)
        elif not self._lock.acquire(blocking=False):
            self._queue.append((self._heap.give, (block,)))
        else:
            try:
                if self._is_busy:
                    self._queue.append((self._heap.give, (block,)))
                    return
                self._is_busy = True
                try:
                    if self._queue:
                        self._drain()
                    self._heap.give(block)
                finally:
                    self._is_busy = False
            finally:
                self._lock.release()
        if self._queue:
            self._settle_queue()

    def record_stream(self, address: int, stream: int) -> None:
        """Note that another stream uses a block: once freed, it waits for what that stream was given so far.

        Raises:
            UnknownAddressError: Nothing is allocated there.
        """
        block = self._live.get(address)
        if block is None:
            _refuse_unknown(address)
        else:
            self._run(self._heap.record_use, block, stream)

    def synchronize(self, stream: int | None = None) -> None:
        """Treat a stream, or every one, as done; as in PyTorch, the next malloc frees what waited."""
        self._run(self._heap.events.finish, stream)

    def process_events(self) -> None:
        """Free at once the blocks whose streams are done, as every malloc does first."""
        self._run(self._heap.process_events)

    def empty_cache(self) -> None:
        self._run(self._heap.supply.release_cached)

    def set_memory_fraction(self, fraction: float) -> None:
        """Limit this process to a share of the card; 1 lifts the limit.

        Raises:
            ValueError: The share is not from 0 to 1.
        """
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"memory fraction is {fraction}, expected a number from 0 to 1")
        self._run(self._heap.set_fraction, fraction)

    def begin_pool(self, pool_id: PoolId, stream: int | None = None) -> None:
        """Let allocations of a stream, or of all, go to a private pool, as during a graph capture.

        Raises:
            PoolError: The pool is being allocated to already, or was released.
        """
        self._run(self._heap.begin_pool, pool_id, stream)

    def end_pool(self, pool_id: PoolId) -> None:
        """Let allocations go where they went before.

        Raises:
            PoolError: The pool is not being allocated to.
        """
        self._run(self._heap.end_pool, pool_id)

    def release_pool(self, pool_id: PoolId) -> None:
        """Release one use of a private pool; after the last its memory may go back to the card.

        Raises:
            PoolError: The pool has no use left.
        """
        self._run(self._heap.private_pools.release, pool_id)

    def record_history(
        self, max_entries: int | None, frames: Callable[[], list[dict[str, Any]]] | None = None
    ) -> None:
        """Record what happens in a ring of at most `max_entries`, the newest; None switches recording off.

        `frames` returns the caller's stack as dicts of filename, line and name; it is called at each malloc.
        """
        if max_entries is None:
            self._run(self._heap.history.stop)
        else:
            self._run(self._heap.start_recording, max_entries, frames)

    @property
    def allocated_bytes(self) -> int:
        """Bytes in live blocks."""
        small = self._heap.small_tally
        large = self._heap.large_tally
        return small.up_bytes - small.down_bytes + large.up_bytes - large.down_bytes

    @property
    def active_bytes(self) -> int:
        """Bytes in live blocks and in blocks that wait for other streams."""
        small = self._heap.small_tally
        large = self._heap.large_tally
        return self.allocated_bytes + small.awaiting_bytes + large.awaiting_bytes

    @property
    def reserved_bytes(self) -> int:
        """Bytes held from the card."""
        return self._heap.supply.counters.reserved.all.current

    def memory_stats(self) -> dict[str, int]:
        """Return what `torch.cuda.memory_stats()` would, with its keys."""
        return self._read(self._statistics.as_flat_dict)

    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        return self._read(self._statistics.as_nested_dict)

    def reset_peak_memory_stats(self) -> None:
        self._run(self._statistics.reset_peaks)

    def reset_accumulated_memory_stats(self) -> None:
        self._run(self._statistics.reset_accumulated)

    def memory_snapshot(self, include_traces: bool = False) -> list[dict[str, Any]]:
        """Return the segments with their blocks, as `torch.cuda.memory_snapshot()` does.

        As in PyTorch, `include_traces` is accepted, but traces are only in `snapshot()`.
        """
        del include_traces
        return self._read(lambda: describe_segments(self._heap, self._blocks_in_use(), self.device))

    def snapshot(self) -> dict[str, Any]:
        """Return segments, traces and settings, as `torch.cuda.memory._snapshot()` does."""
        return self._read(lambda: describe_heap(self._heap, self._blocks_in_use(), self.device))

    def _blocks_in_use(self) -> list[Block]:
        """Return the live blocks, and those whose free is queued."""
        queued = [argument for _, arguments in list(self._queue) for argument in arguments]
        return [*list(self._live.values()), *(block for block in queued if isinstance(block, Block))]

    def _read(self, read: Callable[[], _Read]) -> _Read:
        """Run an operation that only reads; inside an operation of this thread, on the state so far."""
        with self._lock:
            if not self._is_busy:
                self._drain()
                self._heap.peaks.note()
            return read()

    def _run(self, operation: Callable[..., object], *arguments: object) -> None:
        """Run an operation; inside another one of this thread, after it."""
        with self._lock:
            if self._is_busy:
                self._queue.append((operation, arguments))
                return
            self._is_busy = True
            try:
                self._drain()
                self._heap.history.frames_at_hand = None
                operation(*arguments)
            finally:
                self._is_busy = False
        if self._queue:
            self._settle_queue()

    def _drain(self) -> None:
        queue = self._queue
        while queue:
            operation, arguments = queue.popleft()
            operation(*arguments)

    def _settle_queue(self) -> None:
        """Run what was queued meanwhile, unless another thread is at it, which will look once more."""
        while self._queue and not self._is_busy and self._lock.acquire(blocking=False):
            try:
                self._is_busy = True
                self._drain()
            finally:
                self._is_busy = False
                self._lock.release()

    def _malloc_inside(self, size_bytes: int, stream: int) -> int:
        """Serve a malloc from inside another operation of this thread with a separate segment."""
        block = self._heap.reserve_apart(size_bytes, stream)
        self._live[block.address] = block
        self._queue.append((self._heap.adopt, (block,)))
        return block.address


def _refuse_unknown(address: int) -> None:
    if address != 0:
        raise UnknownAddressError(f"nothing is allocated at {address:#x}; was it freed twice?")


# Segments and blocks as `torch.cuda.memory_snapshot()` gives them.


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
    """Return the segments in order of address; each contiguous mapped range of an expandable one is a
    segment.
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
    """Return the settings as a snapshot has them."""
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


# The statistics as `torch.cuda.memory_stats()` gives them.

# PyTorch's number for a `max_split_size` without a limit.

UNLIMITED = -1


class Statistics:
    def __init__(
        self,
        settings: AllocatorSettings,
        small: Tally,
        large: Tally,
        *,
        peaks: Peaks,
        counters: DeviceCounters,
    ) -> None:
        self._settings = settings
        self._small = small
        self._large = large
        self._peaks = peaks
        self._counters = counters
        self._small_base = self._large_base = ((0, 0),) * len(COUNTED)

    def as_nested_dict(self) -> dict[str, Any]:
        counters = self._counters
        nested: dict[str, Any] = self._describe_counted()
        nested["segment"] = counters.segment.as_dict()
        nested["reserved_bytes"] = counters.reserved.as_dict()
        nested["reserved_bytes_by_private_pools"] = {
            pool_id: counter.as_dict() for pool_id, counter in counters.reserved_by_private_pool.items()
        }
        nested["oversize_allocations"] = counters.oversize_allocations.as_dict()
        nested["oversize_segments"] = counters.oversize_segments.as_dict()
        limit = self._settings.max_split_bytes
        nested["max_split_size"] = UNLIMITED if limit is None else limit
        nested["num_alloc_retries"] = counters.num_alloc_retries
        nested["num_ooms"] = counters.num_ooms
        nested["num_sync_all_streams"] = counters.num_sync_all_streams
        nested["num_device_alloc"] = counters.num_device_alloc
        nested["num_device_free"] = counters.num_device_free
        nested["num_oom_rejections"] = 0
        return nested

    def _describe_counted(self) -> dict[str, dict[str, dict[str, int]]]:
        described = {}
        small = self._small.read_totals()
        large = self._large.read_totals()
        for at, name in enumerate(COUNTED):
            pools = (
                ("small_pool", small[at], self._small_base[at], self._peaks.values[at][1]),
                ("large_pool", large[at], self._large_base[at], self._peaks.values[at][2]),
            )
            parts = {
                pool: {
                    "current": rose - fell,
                    "peak": peak,
                    "allocated": rose - base_rose,
                    "freed": fell - base_fell,
                }
                for pool, (rose, fell), (base_rose, base_fell), peak in pools
            }
            both = {key: parts["small_pool"][key] + parts["large_pool"][key] for key in parts["small_pool"]}
            both["peak"] = self._peaks.values[at][0]
            described[name] = {"all": both, **parts}
        return described

    def as_flat_dict(self) -> dict[str, int]:
        """Return the statistics as `torch.cuda.memory_stats()` does: dotted keys in order."""
        flat: dict[str, int] = {}
        _flatten("", self.as_nested_dict(), flat)
        return dict(sorted(flat.items()))

    def reset_peaks(self) -> None:
        self._peaks.reset()
        self._counters.reset_peaks()

    def reset_accumulated(self) -> None:
        """Reset sums and event counts; the tallies themselves only grow, so that a base is subtracted."""
        self._small_base = self._small.read_totals()
        self._large_base = self._large.read_totals()
        self._counters.reset_accumulated()


def _flatten(prefix: str, nested: dict[Any, Any], flat: dict[str, int]) -> None:
    for key, value in nested.items():
        name = key if isinstance(key, str) else "_".join(str(part) for part in key)
        if isinstance(value, dict):
            _flatten(f"{prefix}{name}.", value, flat)
        else:
            flat[prefix + name] = value
