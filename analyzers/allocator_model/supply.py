"""Where blocks come from when the cache has none: the device, and what is given back to make room."""

from __future__ import annotations

from .blocks import Arena, Block, Pool
from .counters import DeviceCounters
from .errors import AllocatorOutOfMemoryError
from .expandable import ExpandableRegions
from .history import History
from .memory import AddressSpace, DeviceMemory
from .private_pools import PrivatePools
from .rules import choose_segment_size
from .settings import AllocatorSettings
from .stream_events import StreamEvents


class Supply:
    """Takes segments from the device and gives them back."""

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
        self.limit_bytes: int | None = None
        """What the memory fraction allows; None without one."""
        self._events = events
        self._private_pools = private_pools
        self._small, self._large = pools
        self.set_fraction(settings.memory_fraction)

    def set_fraction(self, fraction: float) -> None:
        """Limit this process to a share of the card; 1 lifts the limit."""
        self.limit_bytes = int(fraction * self.memory.total_bytes) if fraction < 1.0 else None

    @property
    def collects_garbage(self) -> bool:
        """Whether old cached blocks are given back early; needs a threshold and a memory fraction."""
        return self.settings.garbage_collection_threshold > 0.0 and self.limit_bytes is not None

    def obtain(self, arena: Arena, size: int, requested: int) -> Block:
        """Return a block that is in no list, at least as large as asked for.

        Raises:
            AllocatorOutOfMemoryError: The device has no room, even after everything cached went back.
        """
        if self.collects_garbage:
            self._collect_garbage()
        block = self._grow(arena, size)
        if block is None and self._release_oversize(arena, size):
            block = self._grow(arena, size)
        if block is None and not self._private_pools.captures:
            self.release_cached()
            self.counters.num_alloc_retries += 1
            block = self._grow(arena, size)
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
        """Record what passed between allocator and device."""
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
        """Give everything back that is cached and whole, of released private pools too."""
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
        """Give back the free blocks that are whole segments, and the whole pages of expandable ones."""
        to_unmap = []
        for block in pool.free_blocks():
            if block.region is not None:
                to_unmap.append(block)
            elif block.is_whole:
                self._release(block)
        for block in to_unmap:
            self.regions.unmap(block.arena, block)

    def _release(self, block: Block) -> None:
        """Give a segment back to the device."""
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
        """Give back unsplittable blocks, as many as the request needs; tell whether that was enough."""
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
        """Give back whole cached blocks of the large pool that were not used for longer than others."""
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
