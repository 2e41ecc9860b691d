"""Where blocks come from when the cache has none: the device, and cache that is freed to make room."""

from __future__ import annotations

from collections import deque
from typing import Callable

from .blocks import Arena, Block, DeviceCounters, Pool, PrivatePool, Tally
from .memory import AddressSpace, DeviceMemory, History
from .settings import (
    SMALL_LIMIT_BYTES,
    SMALL_SEGMENT_BYTES,
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    PoolError,
    choose_segment_size,
)

# Private pools: memory that CUDA graphs and MemPools keep apart from the rest.

PoolId = tuple[int, int]


class PrivatePools:
    """The private pools, and which of them allocations use now."""

    def __init__(self, small: Tally, large: Tally) -> None:
        self._small = small
        self._large = large
        self.live: dict[PoolId, PrivatePool] = {}
        # Released by all users; whatever they cache may go back to the device.
        self.freeable: dict[PoolId, PrivatePool] = {}
        # Pools being allocated to, each with its stream; None for every stream.
        self.captures: list[tuple[PoolId, int | None]] = []

    def begin(self, pool_id: PoolId, stream: int | None) -> None:
        """Let allocations of a stream, or of all, go to a pool; a new one if it does not exist."""
        if any(captured == pool_id for captured, _ in self.captures):
            raise PoolError(f"private pool {pool_id} is already in use for allocations; end it first")
        pool = self.live.get(pool_id)
        if pool is None:
            self.live[pool_id] = PrivatePool(pool_id, self._small, self._large)
        elif pool.use_count == 0:
            raise PoolError(f"private pool {pool_id} was released; use another id")
        else:
            pool.use_count += 1
        self.captures.append((pool_id, stream))

    def end(self, pool_id: PoolId) -> None:
        for capture in self.captures:
            if capture[0] == pool_id:
                self.captures.remove(capture)
                return
        raise PoolError(f"private pool {pool_id} is not in use for allocations; begin it first")

    def release(self, pool_id: PoolId) -> None:
        """Release one use; after the last the pool's cached memory may go back to the device."""
        pool = self.live.get(pool_id)
        if pool is None or pool.use_count == 0:
            raise PoolError(f"private pool {pool_id} has no use left to release")
        pool.use_count -= 1
        if pool.use_count == 0:
            self.freeable[pool_id] = pool

    def choose(self, size: int, stream: int) -> Pool | None:
        """Return the private pool that a request goes to, the latest begun; None for the default ones."""
        for pool_id, captured in reversed(self.captures):
            if captured is None or captured == stream:
                pool = self.live[pool_id]
                return pool.small if size <= SMALL_LIMIT_BYTES else pool.large
        return None

    def forget_empty(self) -> None:
        """Drop released pools that hold no memory any more."""
        for pool_id, pool in list(self.freeable.items()):
            if pool.segment_count == 0:
                del self.freeable[pool_id], self.live[pool_id]


# Blocks that were freed while another stream may still use them.

# `record_stream` marks such a use. When the block is freed, an event is put into each stream that used it,
# and the block waits until all of them are done. No kernels run here, so a stream is done when `synchronize`
# says so.


class StreamEvents:
    """The events that freed blocks wait for, in order for each stream."""

    def __init__(self, complete: Callable[[Block], None]) -> None:
        self._complete = complete
        self._queues: dict[int, deque[Block]] = {}
        self._done: dict[int, int] = {}
        self._deferred: list[Block] = []
        self._captured_uses: dict[Block, set[int]] = {}

    @property
    def is_idle(self) -> bool:
        return not self._queues and not self._deferred

    def waiting(self) -> set[Block]:
        return {block for queue in self._queues.values() for block in queue} | set(self._deferred)

    def record_use(self, block: Block, stream: int, *, is_capturing: bool) -> None:
        """Note that a stream uses a block; its own stream needs no note."""
        if stream == block.arena.stream:
            return
        block.stream_uses = (block.stream_uses or set()) | {stream}
        if is_capturing:
            self._captured_uses.setdefault(block, set()).add(stream)

    def defer(self, block: Block, *, is_capturing: bool) -> None:
        """Let a freed block wait for the streams that used it; during a capture, for its end first."""
        if is_capturing:
            self._deferred.append(block)
        else:
            self._insert(block)

    def _insert(self, block: Block) -> None:
        uses = block.stream_uses or set()
        block.stream_uses = None
        for stream in sorted(uses):
            block.event_count += 1
            self._queues.setdefault(stream, deque()).append(block)

    def finish(self, stream: int | None) -> None:
        """Treat a stream, or every stream, as done with all the work it was given so far."""
        for queued in list(self._queues) if stream is None else [stream]:
            if queued in self._queues:
                self._done[queued] = len(self._queues[queued])

    def process(self) -> None:
        self._insert_deferred()
        for stream, count in self._done.items():
            queue = self._queues[stream]
            for _ in range(count):
                self._complete_event(queue.popleft())
            if not queue:
                del self._queues[stream]
        self._done.clear()

    def synchronize(self, private: PrivatePool | None = None) -> None:
        """Wait for all events, or those of the blocks of one private pool, and complete the blocks."""
        self._insert_deferred()
        for stream in list(self._queues):
            waiting = self._queues[stream]
            stays = deque(block for block in waiting if private not in {None, block.arena.pool.private})
            for block in waiting:
                if private is None or block.arena.pool.private is private:
                    self._complete_event(block)
            self._done.pop(stream, None)
            if stays:
                self._queues[stream] = stays
            else:
                del self._queues[stream]

    def _insert_deferred(self) -> None:
        """Put in the events that waited for the end of a capture; uses within the capture need none."""
        deferred = self._deferred
        self._deferred = []
        for block in deferred:
            captured = self._captured_uses.pop(block, None)
            if captured and block.stream_uses:
                block.stream_uses -= captured
            self._insert(block)
            if block.event_count == 0:
                self._complete(block)

    def _complete_event(self, block: Block) -> None:
        block.event_count -= 1
        if block.event_count == 0:
            self._complete(block)


class Supply:
    """Allocates segments on the device and frees them."""

    def __init__(
        self,
        memory: DeviceMemory,
        settings: AllocatorSettings,
        *,
        history: History,
        events: StreamEvents,
        private_pools: PrivatePools,
        pools: tuple[Pool, Pool],
    ) -> None:
        self.memory = memory
        self.settings = settings
        self.history = history
        self.addresses = AddressSpace()
        self.counters = DeviceCounters()
        self.regions = ExpandableRegions(self)
        # What the memory fraction allows; None without one.
        self.limit_bytes: int | None = None
        self._events = events
        self._private_pools = private_pools
        self._small, self._large = pools
        self.set_fraction(settings.memory_fraction)

    def set_fraction(self, fraction: float) -> None:
        self.limit_bytes = int(fraction * self.memory.total_bytes) if fraction < 1.0 else None

    @property
    def collects_garbage(self) -> bool:
        """Whether old cached blocks are freed early; needs a threshold and a memory fraction."""
        return self.settings.garbage_collection_threshold > 0.0 and self.limit_bytes is not None

    def obtain(self, arena: Arena, size: int, requested: int) -> Block:
        """Return a block that is in no list, at least as large as asked for.

        Raises:
            AllocatorOutOfMemoryError: The device has no room, even after everything cached went back.
        """
        frees_before = self.counters.num_device_free
        if self.collects_garbage:
            self._collect_garbage()
        block = self._grow(arena, size)
        if block is None and self._release_oversize(arena, size):
            block = self._grow(arena, size)
        if block is None and not self._private_pools.captures:
            self.release_cached()
            self.counters.num_alloc_retries += 1
            block = self._grow(arena, size)
        if self.counters.num_device_free > frees_before:
            self.counters.times_given_back += 1
        if block is None:
            raise self._refuse(arena, size, requested)
        return block

    def _grow(self, arena: Arena, size: int) -> Block | None:
        """Return a new segment as one block, or None when the limit or the device does not allow it."""
        segment = choose_segment_size(size, self.settings.large_segment_bytes)
        reserved = self.counters.reserved.all.current
        if self.limit_bytes is not None and reserved + segment > self.limit_bytes:
            return None
        if self.settings.expandable_segments:
            return self.regions.allocate(arena, size)
        if not self.memory.reserve(segment):
            return None
        block = Block(arena, self.addresses.take(segment), segment)
        self.count_segment(block)
        return block

    def reserve_apart(self, arena: Arena, size: int, requested: int) -> Block:
        """Return a new segment as one block, reserved but not counted.

        Raises:
            AllocatorOutOfMemoryError: The limit or the device does not allow it.
        """
        segment = choose_segment_size(size, self.settings.large_segment_bytes)
        reserved = self.counters.reserved.all.current
        is_allowed = self.limit_bytes is None or reserved + segment <= self.limit_bytes
        if not is_allowed or not self.memory.reserve(segment):
            raise self._refuse(arena, size, requested)
        return Block(arena, self.addresses.take_new(segment), segment)

    def count_segment(self, block: Block) -> None:
        """Count a segment that came from the device as one block."""
        block.segment_frames = self.history.frames_at_hand
        pool = block.arena.pool
        if pool.private is not None:
            pool.private.segment_count += 1
        self.counters.segment.rise(1, is_small=pool.is_small)
        self.count_reserved(block.size, pool)
        if self._is_oversize(block.size):
            self.counters.oversize_segments.rise(1)
        self.record("segment_alloc", block.address, block.size, block.arena)

    def count_reserved(self, size: int, pool: Pool) -> None:
        """Count memory that came from the device, or went back (less than 0)."""
        pool_id = None if pool.private is None else pool.private.pool_id
        self.counters.count_reserved(size, is_small=pool.is_small, pool_id=pool_id)

    def record(self, action: str, address: int, size: int, arena: Arena) -> None:
        private = arena.pool.private
        pool_id = (0, 0) if private is None else private.pool_id
        self.history.add(action, address, size, arena.stream, pool_id, self.history.frames_at_hand)

    def _is_oversize(self, size: int) -> bool:
        return self.settings.max_split_bytes is not None and size >= self.settings.max_split_bytes

    def _refuse(self, arena: Arena, size: int, requested: int) -> AllocatorOutOfMemoryError:
        free = self.memory.free_bytes()
        self.record("oom", free, size, arena)
        self.counters.num_ooms += 1
        small = self._small.tally
        large = self._large.tally
        return AllocatorOutOfMemoryError(
            requested,
            size,
            choose_segment_size(size, self.settings.large_segment_bytes),
            device_free_bytes=free,
            device_total_bytes=self.memory.total_bytes,
            allocated_bytes=small.up_bytes - small.down_bytes + large.up_bytes - large.down_bytes,
            reserved_bytes=self.counters.reserved.all.current,
            limit_bytes=self.limit_bytes,
        )

    def release_cached(self) -> None:
        """Free everything that is cached and whole, of released private pools too."""
        if not self._private_pools.captures:
            self.counters.num_sync_all_streams += 1
            self._events.synchronize()
            self._release_blocks(self._large)
            self._release_blocks(self._small)
        for private in list(self._private_pools.freeable.values()):
            self._release_blocks(private.small)
            self._release_blocks(private.large)
        self._private_pools.forget_empty()

    def _release_blocks(self, pool: Pool) -> None:
        """Free the free blocks that are whole segments, and the whole pages of expandable ones."""
        to_unmap = []
        for block in pool.free_blocks():
            if block.region is not None:
                to_unmap.append(block)
            elif block.is_whole:
                self._release(block)
        for block in to_unmap:
            self.regions.unmap(block.arena, block)

    def _release(self, block: Block) -> None:
        arena = block.arena
        arena.remove(block)
        self.addresses.give_back(block.address, block.size)
        self.memory.release(block.size)
        pool = arena.pool
        if pool.private is not None:
            pool.private.segment_count -= 1
        self.counters.segment.fall(1, is_small=pool.is_small)
        self.count_reserved(-block.size, pool)
        if self._is_oversize(block.size):
            self.counters.oversize_segments.fall(1)
        self.record("segment_free", block.address, block.size, arena)

    def _release_oversize(self, arena: Arena, size: int) -> bool:
        """Free unsplittable blocks, as many as the request needs; return whether that was enough."""
        limit = self.settings.max_split_bytes
        if limit is None:
            return False
        least = max(size, limit)
        at = arena.find_first(least)
        if at < len(arena.blocks) and arena.blocks[at].region is None:
            self._release(arena.blocks[at])
            return True
        released = 0
        for block in reversed(arena.blocks[:at]):
            if released >= least or block.size < limit:
                break
            if block.region is None:
                released += block.size
                self._release(block)
        return released >= least

    def _collect_garbage(self) -> None:
        """Free whole cached blocks of the large pool that were not used for longer than others."""
        threshold = int(self.settings.garbage_collection_threshold * (self.limit_bytes or 0))
        reserved = self.counters.reserved.all.current
        if reserved <= threshold:
            return
        target = reserved - threshold
        now = self._large.search_count
        cached = [block for block in self._large.free_blocks() if block.is_whole and block.region is None]
        ages = {block: now - block.age_base for block in cached}
        reclaimed = 0
        has_freed = True
        while reclaimed < target and has_freed and ages:
            mean = sum(ages.values()) / len(ages)
            old = [block for block, age in ages.items() if age >= mean]
            has_freed = bool(old)
            for block in old:
                reclaimed += block.size
                del ages[block]
                self._release(block)


# Expandable segments: address ranges that get memory behind them page by page.


class ExpandableRegion:
    """A range of addresses, somewhat larger than the card, whose pages come and go."""

    __slots__ = ("address", "page_bytes", "size")

    def __init__(self, address: int, size: int, page_bytes: int) -> None:
        self.address = address
        self.size = size
        self.page_bytes = page_bytes


class ExpandableRegions:
    """Maps and unmaps pages of the regions; each belongs to one pool and one stream."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        # Regions that exist.
        self.count = 0

    def allocate(self, arena: Arena, size: int) -> Block | None:
        """Return a block of at least this size, no longer free; None when the card has no pages left."""
        block: Block | None = self._find(arena, size)
        if block is not None and block.is_unmapped:
            block = self._map(arena, block, min(block.size, size))
        while block is not None and block.size < size:
            unmapped = block.next
            if unmapped is None:
                return None
            block = self._map(arena, unmapped, min(size - block.size, unmapped.size))
        if block is not None:
            arena.remove(block)
        return block

    def _find(self, arena: Arena, size: int) -> Block:
        for unmapped in arena.unmapped:
            before = unmapped.prev
            first = before if before is not None and before.is_free else unmapped
            if _measure_run(first, size) >= size:
                return first
        return self._open_region(arena)

    def _open_region(self, arena: Arena) -> Block:
        """Reserve an address range of 9/8 of the card."""
        supply = self._supply
        page = SMALL_SEGMENT_BYTES if arena.pool.is_small else supply.settings.large_segment_bytes
        total = supply.memory.total_bytes
        size = -(-(total + total // 8) // page) * page
        region = ExpandableRegion(supply.addresses.take(size), size, page)
        block = Block(arena, region.address, size)
        block.region = region
        arena.put_unmapped(block)
        self.count += 1
        if arena.pool.private is not None:
            arena.pool.private.segment_count += 1
        return block

    def _map(self, arena: Arena, block: Block, size: int) -> Block | None:
        """Put memory behind the start of an unmapped block; return the free block it becomes part of."""
        region = block.region
        assert region is not None  # noqa: S101 - unmapped blocks exist in regions alone
        mapped = -(-size // region.page_bytes) * region.page_bytes
        supply = self._supply
        if not supply.memory.reserve(mapped):
            return None
        address = block.address
        arena.remove_unmapped(block)
        if mapped < block.size:
            rest = Block(arena, address + mapped, block.size - mapped)
            rest.region = region
            link_behind(block, rest)
            arena.put_unmapped(rest)
            block.size = mapped
        for neighbour in (block.prev, block.next):
            if neighbour is not None and neighbour.is_free:
                arena.remove(neighbour)
                absorb(block, neighbour)
        arena.put(block)
        supply.count_reserved(mapped, arena.pool)
        supply.record("segment_map", address, mapped, arena)
        if block.prev is None and block.segment_frames is None:
            block.segment_frames = supply.history.frames_at_hand
        return block

    def unmap(self, arena: Arena, block: Block) -> None:
        """Free the pages that are wholly within a free block; what is left at both ends stays."""
        region = block.region
        assert region is not None  # noqa: S101 - only called for blocks of regions
        page = region.page_bytes
        start = region.address + -(-(block.address - region.address) // page) * page
        end = region.address + (block.address + block.size - region.address) // page * page
        if start >= end:
            return
        arena.remove(block)
        self._cut_ends(arena, block, start, end)
        for neighbour in (block.prev, block.next):
            if neighbour is not None and neighbour.is_unmapped:
                arena.remove_unmapped(neighbour)
                absorb(block, neighbour)
        arena.put_unmapped(block)
        supply = self._supply
        supply.memory.release(end - start)
        supply.count_reserved(start - end, arena.pool)
        supply.record("segment_unmap", start, end - start, arena)
        if block.is_whole:
            arena.remove_unmapped(block)
            supply.addresses.give_back(region.address, region.size)
            self.count -= 1
            if arena.pool.private is not None:
                arena.pool.private.segment_count -= 1

    def _cut_ends(self, arena: Arena, block: Block, start: int, end: int) -> None:
        """Narrow a block to a range, and keep what is before and behind as free blocks."""
        before = start - block.address
        behind = block.address + block.size - end
        if before:
            head = Block(arena, block.address, before)
            head.region = block.region
            head.segment_frames = block.segment_frames
            link_before(block, head)
            arena.put(head)
        if behind:
            tail = Block(arena, end, behind)
            tail.region = block.region
            link_behind(block, tail)
            arena.put(tail)
        block.segment_frames = None
        block.address = start
        block.size = end - start


def _measure_run(block: Block | None, enough: int) -> int:
    """Return the bytes of free and unmapped blocks in a row, up to what is enough."""
    size = 0
    while block is not None and size < enough and (block.is_free or block.is_unmapped):
        size += block.size
        block = block.next
    return size


def link_behind(block: Block, added: Block) -> None:
    added.prev = block
    added.next = block.next
    if block.next is not None:
        block.next.prev = added
    block.next = added


def link_before(block: Block, added: Block) -> None:
    added.prev = block.prev
    added.next = block
    if block.prev is not None:
        block.prev.next = added
    block.prev = added


def absorb(block: Block, neighbour: Block) -> None:
    """Merge a neighbour into a block; the neighbour must be in no list any more."""
    if block.prev is neighbour:
        block.address = neighbour.address
        block.segment_frames = neighbour.segment_frames
        block.prev = neighbour.prev
        if block.prev is not None:
            block.prev.next = block
    else:
        block.next = neighbour.next
        if block.next is not None:
            block.next.prev = block
    block.size += neighbour.size
