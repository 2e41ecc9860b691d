"""Expandable segments: address ranges that get memory behind them page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .blocks import Arena, Block
from .rules import SMALL_SEGMENT_BYTES

if TYPE_CHECKING:
    from .supply import Supply


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
        self.count = 0
        """Regions that exist."""

    def allocate(self, arena: Arena, size: int) -> Block | None:
        """Return a block of at least this size, not free any more; None when the card has no pages left."""
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
        """Return the first of the lowest run of free and unmapped blocks that has room; else a new region."""
        for unmapped in arena.unmapped:
            before = unmapped.prev
            first = before if before is not None and before.is_free else unmapped
            if _measure_run(first, size) >= size:
                return first
        return self._open_region(arena)

    def _open_region(self, arena: Arena) -> Block:
        """Take an address range of 9/8 of the card."""
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
        """Give back the pages that lie wholly within a free block; what is left of it at both ends stays."""
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
            self._close_region(arena, block, region)

    def _cut_ends(self, arena: Arena, block: Block, start: int, end: int) -> None:
        """Narrow a block to a range, and keep what lies before and behind as free blocks."""
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

    def _close_region(self, arena: Arena, block: Block, region: ExpandableRegion) -> None:
        arena.remove_unmapped(block)
        self._supply.addresses.give_back(region.address, region.size)
        self.count -= 1
        if arena.pool.private is not None:
            arena.pool.private.segment_count -= 1


def _measure_run(block: Block | None, enough: int) -> int:
    """Return the bytes of free and unmapped blocks in a row, up to what is enough."""
    size = 0
    while block is not None and size < enough and (block.is_free or block.is_unmapped):
        size += block.size
        block = block.next
    return size


def link_behind(block: Block, added: Block) -> None:
    """Put a new block behind another in their segment."""
    added.prev = block
    added.next = block.next
    if block.next is not None:
        block.next.prev = added
    block.next = added


def link_before(block: Block, added: Block) -> None:
    """Put a new block before another in their segment."""
    added.prev = block.prev
    added.next = block
    if block.prev is not None:
        block.prev.next = added
    block.prev = added


def absorb(block: Block, neighbour: Block) -> None:
    """Make a block and its neighbour one; the neighbour is in no list any more and is dropped."""
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
