"""The part of the allocator that runs at every malloc and free: best fit, split, merge.

`take` and `give` are the common case, in which a cached block serves the request and only the default
rules apply. Everything else goes through the methods `take_by_rules` and `give_by_rules` of a subclass, which
apply every rule and come to the same answers. The code here is written out in straight lines on purpose: in
Python a call costs as much as a good part of the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import Callable

from .blocks import ADDRESS_BITS, Arena, Block, Peaks, Pool, Tally
from .memory import DeviceMemory, History, read_clock_us
from .settings import LEAST_BLOCK_BYTES, SMALL_LIMIT_BYTES, AllocatorSettings, round_request
from .supply import PoolId, PrivatePools, StreamEvents, Supply, absorb, link_before

_UP = LEAST_BLOCK_BYTES - 1
_MASK = -LEAST_BLOCK_BYTES


class Heap(ABC):
    """Pools, their tallies, and the common case of malloc and free."""

    def __init__(self) -> None:
        self.small_tally = Tally()
        self.large_tally = Tally()
        self.peaks = Peaks(self.small_tally, self.large_tally)
        self.small = Pool(is_small=True, tally=self.small_tally)
        self.large = Pool(is_small=False, tally=self.large_tally)
        self._small_arenas = self.small.arenas
        self._large_arenas = self.large.arenas
        self._spare: list[Block] = []
        # Whether blocks were allocated since the peaks of allocated memory were last looked at.
        self._is_rising = False
        # Whether pieces became free since the peaks of inactive memory were last looked at.
        self._is_sinking = False
        # Whether only the default rules apply: no settings, captures, events or recording.
        self.is_plain = True

    @abstractmethod
    def take_by_rules(self, requested: int, stream: int) -> Block: ...

    @abstractmethod
    def give_by_rules(self, block: Block) -> None: ...

    def take(self, requested: int, stream: int) -> Block:
        """Return an allocated block of at least this many bytes, more than 0.

        Raises:
            AllocatorOutOfMemoryError: Neither the cache nor the card has room.
        """
        size = (requested + _UP) & _MASK
        arena = (self._small_arenas if size <= SMALL_LIMIT_BYTES else self._large_arenas).get(stream)
        if arena is None or not self.is_plain:
            return self.take_by_rules(requested, stream)
        at = bisect_left(arena.keys, size << ADDRESS_BITS)
        if at == len(arena.keys):
            return self.take_by_rules(requested, stream)
        if self._is_sinking:
            self._note_inactive()
        tally = arena.tally
        block = arena.blocks[at]
        if block.size - size >= arena.least_remainder:
            block = self._split(arena, at, block, size)
        else:
            size = block.size
            del arena.keys[at], arena.blocks[at]
            block.is_free = False
            if block.prev is None and block.next is None:
                tally.whole_up += size
            else:
                tally.pieces_down += 1
        block.is_allocated = True
        block.requested = requested
        tally.up_bytes += size
        tally.up_requested += requested
        tally.up_count += 1
        self._is_rising = True
        return block

    def _split(self, arena: Arena, at: int, rest: Block, size: int) -> Block:
        """Cut the front off a free block and return it; the rest stays free under a new key."""
        address = rest.address
        if self._spare:
            block = self._spare.pop()
            block.arena = arena
            block.address = address
            block.size = size
        else:
            block = Block(arena, address, size)
        rest.address = address + size
        left = rest.size = rest.size - size
        prev = block.prev = rest.prev
        if prev is not None:
            prev.next = block
        elif rest.next is None:
            self._count_split_of_whole(arena.tally, size, left)
        block.next = rest
        rest.prev = block
        keys = arena.keys
        key = left << ADDRESS_BITS | rest.address
        if at and key < keys[at - 1]:
            del keys[at], arena.blocks[at]
            at = bisect_left(keys, key, 0, at)
            keys.insert(at, key)
            arena.blocks.insert(at, rest)
        else:
            keys[at] = key
        return block

    def _count_split_of_whole(self, tally: Tally, size: int, left: int) -> None:
        """Count that a segment got its first allocated piece, and with it an inactive one."""
        tally.whole_up += size
        tally.split_up += left
        tally.pieces_up += 1
        tally.down_limit -= left
        self._is_sinking = True

    def give(self, block: Block) -> None:
        """Free an allocated block: merge it with free neighbours and keep it for the next request."""
        if block.stream_uses is not None or not self.is_plain:
            self.give_by_rules(block)
            return
        if self._is_rising:
            self._note_allocated()
        arena = block.arena
        size = block.size
        prev = block.prev
        following = block.next
        block.is_allocated = False
        if prev is not None and prev.is_free:
            if following is not None and following.is_free:
                self._merge_three(arena, prev, block, following)
            else:
                self._grow_down(arena, prev, block, following)
        elif following is not None and following.is_free:
            self._grow_up(arena, prev, block, following)
        else:
            arena.put(block)
            if prev is None and following is None:
                arena.tally.whole_down += size
            else:
                arena.tally.pieces_up += 1
        tally = arena.tally
        tally.down_bytes += size
        tally.down_requested += block.requested
        tally.down_count += 1
        self._is_sinking = True

    def _grow_down(self, arena: Arena, prev: Block, block: Block, following: Block | None) -> None:
        """Merge a freed block into the free block before it."""
        keys = arena.keys
        old = prev.size
        at = bisect_left(keys, old << ADDRESS_BITS | prev.address)
        size = prev.size = old + block.size
        prev.next = following
        if following is not None:
            following.prev = prev
        elif prev.prev is None:
            self._count_merge_to_whole(arena.tally, block.size, old, 1)
        self._spare.append(block)
        key = size << ADDRESS_BITS | prev.address
        if at + 1 == len(keys) or key < keys[at + 1]:
            keys[at] = key
        else:
            self._move_up(arena, at, key, prev)

    def _grow_up(self, arena: Arena, prev: Block | None, block: Block, following: Block) -> None:
        """Merge a freed block into the free block behind it."""
        keys = arena.keys
        old = following.size
        at = bisect_left(keys, old << ADDRESS_BITS | following.address)
        size = following.size = old + block.size
        following.address = block.address
        following.prev = prev
        if prev is not None:
            prev.next = following
        elif following.next is None:
            self._count_merge_to_whole(arena.tally, block.size, old, 1)
        self._spare.append(block)
        key = size << ADDRESS_BITS | block.address
        if at + 1 == len(keys) or key < keys[at + 1]:
            keys[at] = key
        else:
            self._move_up(arena, at, key, following)

    def _merge_three(self, arena: Arena, prev: Block, block: Block, following: Block) -> None:
        """Merge a freed block with the free ones before and behind."""
        arena.remove(following)
        arena.remove(prev)
        after = following.next
        merged = prev.size + following.size
        if prev.prev is None and after is None:
            self._count_merge_to_whole(arena.tally, block.size, merged, 2)
        else:
            if self._is_sinking:
                self._note_inactive()
            arena.tally.pieces_down += 1
        prev.size = merged + block.size
        prev.next = after
        if after is not None:
            after.prev = prev
        self._spare.append(block)
        self._spare.append(following)
        arena.put(prev)

    def _move_up(self, arena: Arena, at: int, key: int, block: Block) -> None:
        """Move the free block at an index to the place of its new, larger key."""
        del arena.keys[at], arena.blocks[at]
        at = bisect_left(arena.keys, key, at)
        arena.keys.insert(at, key)
        arena.blocks.insert(at, block)

    def _count_merge_to_whole(self, tally: Tally, size: int, merged: int, pieces: int) -> None:
        """Count that the last allocated piece of a segment went; its free pieces are no longer inactive."""
        if self._is_sinking:
            self._note_inactive()
        tally.whole_down += size
        tally.merged_down += merged
        tally.pieces_down += pieces

    def _note_allocated(self) -> None:
        """Update the peaks before allocated memory falls, unless none can have been passed."""
        self._is_rising = False
        small = self.small_tally
        large = self.large_tally
        if (
            small.up_bytes > small.up_limit
            or large.up_bytes > large.up_limit
            or small.up_count > small.up_count_limit
            or large.up_count > large.up_count_limit
        ):
            self.peaks.note_allocated()

    def _note_inactive(self) -> None:
        """Update the peaks before inactive memory falls, unless none can have been passed."""
        self._is_sinking = False
        small = self.small_tally
        large = self.large_tally
        if (
            small.down_bytes > small.down_limit
            or large.down_bytes > large.down_limit
            or small.pieces_up > small.pieces_limit
            or large.pieces_up > large.pieces_limit
        ):
            self.peaks.note_inactive()


# The heap with every rule of the allocator: settings, streams, private pools, recording.


class RuledHeap(Heap):
    """The common case of `Heap`, and the path on which every rule is looked at."""

    def __init__(
        self,
        memory: DeviceMemory,
        settings: AllocatorSettings,
        clock_us: Callable[[], int] = read_clock_us,
    ) -> None:
        super().__init__()
        self.settings = settings
        self.history = History(clock_us)
        self.events = StreamEvents(self._complete)
        self.private_pools = PrivatePools(self.small_tally, self.large_tally)
        self.supply = Supply(
            memory,
            settings,
            history=self.history,
            events=self.events,
            private_pools=self.private_pools,
            pools=(self.small, self.large),
        )
        self._has_frames = False
        # Whether freed blocks may be waiting for events.
        self._has_waiting = False
        self._max_split = settings.max_split_bytes
        self._divisions = settings.roundup_power2_divisions
        self.choose_path()

    def choose_path(self) -> None:
        """Decide whether only the default rules apply at present."""
        settings = self.settings
        self.is_plain = (
            self._max_split is None
            and max(self._divisions) <= 1
            and not settings.expandable_segments
            and not self.supply.collects_garbage
            and not self.private_pools.captures
            and self.events.is_idle
            and not self._has_frames
        )

    def start_recording(self, max_entries: int, frames: Callable[[], list[dict[str, object]]] | None) -> None:
        self._has_frames = True
        self.history.start(max_entries, frames)
        self.choose_path()

    def process_events(self) -> None:
        """Complete the blocks whose streams are done; not during a capture, as PyTorch may not ask then."""
        if not self.private_pools.captures:
            self.events.process()
            self._has_waiting = not self.events.is_idle
            self.choose_path()

    def begin_pool(self, pool_id: PoolId, stream: int | None) -> None:
        self.private_pools.begin(pool_id, stream)
        self.choose_path()

    def end_pool(self, pool_id: PoolId) -> None:
        self.private_pools.end(pool_id)
        self.choose_path()

    def set_fraction(self, fraction: float) -> None:
        self.supply.set_fraction(fraction)
        self.choose_path()

    def reserve_apart(self, requested: int, stream: int) -> Block:
        """Reserve a segment as one block, not yet counted; touches nothing that may be in change.

        Raises:
            AllocatorOutOfMemoryError: The device has no room; nothing cached is given back for it.
        """
        size = round_request(requested, self._divisions)
        arena = (self.small if size <= SMALL_LIMIT_BYTES else self.large).open_arena(stream)
        block = self.supply.reserve_apart(arena, size, requested)
        block.requested = requested
        block.is_allocated = True
        return block

    def adopt(self, block: Block) -> None:
        """Count a block that was reserved apart."""
        self._note_before_free()
        self.supply.count_segment(block)
        block.arena.tally.whole_up += block.size
        self._count_allocated(block, block.requested)

    def record_use(self, block: Block, stream: int) -> None:
        self.events.record_use(block, stream, is_capturing=bool(self.private_pools.captures))

    def take_by_rules(self, requested: int, stream: int) -> Block:
        if self._has_waiting:
            self.process_events()
        size = round_request(requested, self._divisions)
        pool = self.private_pools.choose(size, stream) if self.private_pools.captures else None
        if pool is None:
            pool = self.small if size <= SMALL_LIMIT_BYTES else self.large
        arena = pool.open_arena(stream)
        if self._is_sinking:
            self._note_inactive()
        block = self._find(arena, size)
        if block is None:
            block = self.supply.obtain(arena, size, requested)
            if self._is_sinking:
                self._note_inactive()
        return self._hand_out(arena, block, size, requested)

    def _find(self, arena: Arena, size: int) -> Block | None:
        """Remove the best fitting block from the free ones; None where none may serve."""
        if self.supply.collects_garbage:
            arena.pool.search_count += 1
        at = self._choose_index(arena, size)
        blocks = arena.blocks
        if at >= len(blocks):
            return None
        block = blocks[at]
        limit = self._max_split
        if limit is not None and (
            size < limit <= block.size
            or (size >= limit and block.size >= size + self.settings.max_non_split_rounding_bytes)
        ):
            return None
        del arena.keys[at], blocks[at]
        block.is_free = False
        return block

    def _choose_index(self, arena: Arena, size: int) -> int:
        """Return the index of the free block that fits best, past the last where none does.

        The end of an expandable region counts with the room it can grow into, and so is chosen late.
        """
        blocks = arena.blocks
        at = arena.find_first(size)
        if at == len(blocks) or blocks[at].region is None:
            return at
        if not self.settings.expandable_segments:
            at += 1
            while at < len(blocks) and blocks[at].region is not None:
                at += 1
            return at
        while (
            at + 1 < len(blocks)
            and blocks[at].region is not None
            and _measure_reach(blocks[at + 1]) < _measure_reach(blocks[at])
        ):
            at += 1
        return at

    def _hand_out(self, arena: Arena, block: Block, size: int, requested: int) -> Block:
        """Split a block that is in no list where the rules say so, and allocate it."""
        tally = arena.tally
        is_counted = block.region is None
        if self._may_split(arena, block, size):
            was_whole = block.is_whole
            rest = block
            block = self._cut_front(arena, block, size)
            arena.put(rest)
            if not is_counted:
                tally.whole_up += size
            elif was_whole:
                self._count_split_of_whole(tally, size, rest.size)
        elif not is_counted or block.is_whole:
            tally.whole_up += block.size
        else:
            tally.pieces_down += 1
        self._count_allocated(block, requested)
        return block

    def _count_allocated(self, block: Block, requested: int) -> None:
        tally = block.arena.tally
        block.is_allocated = True
        block.requested = requested
        tally.up_bytes += block.size
        tally.up_requested += requested
        tally.up_count += 1
        self._is_rising = True
        if self._max_split is not None and block.size >= self._max_split:
            self.supply.counters.oversize_allocations.rise(1)
        if self.history.is_recording:
            block.frames = self.history.frames_at_hand
            self._record("alloc", block)

    def _may_split(self, arena: Arena, block: Block, size: int) -> bool:
        remaining = block.size - size
        if arena.pool.is_small or self.settings.expandable_segments:
            return remaining >= LEAST_BLOCK_BYTES
        return remaining > SMALL_LIMIT_BYTES and (self._max_split is None or size < self._max_split)

    def _cut_front(self, arena: Arena, rest: Block, size: int) -> Block:
        """Return a new block of the first bytes; the rest of the old one is behind it."""
        block = Block(arena, rest.address, size)
        block.region = rest.region
        block.segment_frames = rest.segment_frames
        rest.segment_frames = None
        link_before(rest, block)
        rest.address += size
        rest.size -= size
        return block

    def give_by_rules(self, block: Block) -> None:
        self._note_before_free()
        tally = block.arena.tally
        tally.down_bytes += block.size
        tally.down_requested += block.requested
        tally.down_count += 1
        block.is_allocated = False
        self._record("free_requested", block)
        if self._max_split is not None and block.size >= self._max_split:
            self.supply.counters.oversize_allocations.fall(1)
        if not block.stream_uses:
            self._settle(block)
            return
        tally.awaiting_bytes += block.size
        tally.awaiting_requested += block.requested
        tally.awaiting_count += 1
        self.events.defer(block, is_capturing=bool(self.private_pools.captures))
        self._has_waiting = True
        self.is_plain = False

    def _complete(self, block: Block) -> None:
        """Free a block that waited for its events."""
        self._note_before_free()
        tally = block.arena.tally
        tally.awaiting_bytes -= block.size
        tally.awaiting_requested -= block.requested
        tally.awaiting_count -= 1
        self._settle(block)
        tally.down_limit = -1

    def _note_before_free(self) -> None:
        if self._is_rising:
            self._note_allocated()
        if self._is_sinking:
            self._note_inactive()

    def _settle(self, block: Block) -> None:
        """Merge a freed block with free neighbours and keep it for the next request."""
        self._record("free_completed", block)
        block.frames = None
        arena = block.arena
        size = block.size
        merges = 0
        for neighbour in (block.prev, block.next):
            if neighbour is not None and neighbour.is_free:
                arena.remove(neighbour)
                absorb(block, neighbour)
                merges += 1
        arena.put(block)
        tally = arena.tally
        if block.region is not None:
            tally.whole_down += size
        elif block.is_whole and merges:
            self._count_merge_to_whole(tally, size, block.size - size, merges)
        elif block.is_whole:
            tally.whole_down += size
        elif merges == 0:
            tally.pieces_up += 1
        elif merges == 2:
            tally.pieces_down += 1
        self._is_sinking = True

    def _record(self, action: str, block: Block) -> None:
        """Record an action on a block; PyTorch's sizes are the requested ones here."""
        if self.history.is_recording:
            private = block.arena.pool.private
            pool_id = (0, 0) if private is None else private.pool_id
            self.history.add(
                action, block.address, block.requested, block.arena.stream, pool_id, block.frames
            )


def _measure_reach(block: Block) -> int:
    """Return a block's size with the unmapped room behind it."""
    behind = block.next
    return block.size + (behind.size if behind is not None and behind.is_unmapped else 0)
