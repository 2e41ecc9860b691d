"""The part of the allocator that runs at every malloc and free: best fit, split, merge.

`take` and `give` hold the common case, in which a cached block serves the request and nothing but the default
rules apply. Everything else goes through the methods `take_by_rules` and `give_by_rules` of a subclass, which
hold every rule and come to the same answers. What is here is written out in straight lines on purpose: in
Python a call costs as much as a good part of the work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left

from .blocks import ADDRESS_BITS, Arena, Block, Pool
from .rules import LEAST_BLOCK_BYTES, SMALL_LIMIT_BYTES
from .tally import Peaks, Tally

_UP = LEAST_BLOCK_BYTES - 1
_MASK = -LEAST_BLOCK_BYTES


class Heap(ABC):
    """Pools, what was counted in them, and the common case of malloc and free."""

    def __init__(self) -> None:
        self.small_tally = Tally()
        self.large_tally = Tally()
        self.peaks = Peaks(self.small_tally, self.large_tally)
        self.small = Pool(is_small=True, tally=self.small_tally)
        self.large = Pool(is_small=False, tally=self.large_tally)
        self._small_arenas = self.small.arenas
        self._large_arenas = self.large.arenas
        self._spare: list[Block] = []
        self._is_rising = False
        """Whether blocks were allocated since the peaks of allocated memory were last looked at."""
        self._is_sinking = False
        """Whether pieces became free since the peaks of inactive memory were last looked at."""
        self.is_plain = True
        """Whether the default rules are all there is: no settings, captures, events or recording."""

    @abstractmethod
    def take_by_rules(self, requested: int, stream: int) -> Block:
        """Do what `take` does, by all rules."""

    @abstractmethod
    def give_by_rules(self, block: Block) -> None:
        """Do what `give` does, by all rules."""

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
        """Let the free block before take in a freed one."""
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
        """Let the free block behind take in a freed one."""
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
        """Make one free block of a freed one and the free ones before and behind."""
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
        """Give the free block at an index the larger key it has got."""
        del arena.keys[at], arena.blocks[at]
        at = bisect_left(arena.keys, key, at)
        arena.keys.insert(at, key)
        arena.blocks.insert(at, block)

    def _count_merge_to_whole(self, tally: Tally, size: int, merged: int, pieces: int) -> None:
        """Count that the last allocated piece of a segment went; what was inactive in it no longer is."""
        if self._is_sinking:
            self._note_inactive()
        tally.whole_down += size
        tally.merged_down += merged
        tally.pieces_down += pieces

    def _note_allocated(self) -> None:
        """Look at the peaks before allocated memory falls, unless none can have been passed."""
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
        """Look at the peaks before inactive memory falls, unless none can have been passed."""
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
