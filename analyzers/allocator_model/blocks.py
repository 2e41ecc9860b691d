"""Blocks, and the arenas that hold the free ones in order of size and address."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .rules import LEAST_BLOCK_BYTES, SMALL_LIMIT_BYTES

if TYPE_CHECKING:
    from .expandable import ExpandableRegion
    from .tally import Tally

ADDRESS_BITS = 60
"""A free block is kept under `size << ADDRESS_BITS | address`, one number that sorts as the pair does."""


class Block:
    """A piece of a segment: allocated, awaiting events, free (cached) or not mapped.

    `prev` and `next` are its neighbours in the segment. Objects of blocks that were merged away are used
    again, so that a step of training makes no work for Python's garbage collector.
    """

    __slots__ = (
        "address",
        "age_base",
        "arena",
        "event_count",
        "frames",
        "is_allocated",
        "is_free",
        "is_unmapped",
        "next",
        "prev",
        "region",
        "requested",
        "segment_frames",
        "size",
        "stream_uses",
    )

    prev: Block | None
    next: Block | None

    def __init__(self, arena: Arena, address: int, size: int) -> None:
        self.arena = arena
        self.address = address
        self.size = size
        self.requested = 0
        self.prev = None
        self.next = None
        self.is_free = False
        self.is_allocated = False
        self.is_unmapped = False
        self.region: ExpandableRegion | None = None
        self.stream_uses: set[int] | None = None
        self.event_count = 0
        self.age_base = 0
        self.frames: list[dict[str, object]] | None = None
        self.segment_frames: list[dict[str, object]] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the block is all of its segment."""
        return self.prev is None and self.next is None


class Arena:
    """The free blocks of one pool and one stream, in order of size, then address."""

    __slots__ = ("blocks", "keys", "least_remainder", "pool", "stream", "tally", "unmapped")

    def __init__(self, pool: Pool, stream: int) -> None:
        self.pool = pool
        self.stream = stream
        self.tally: Tally = pool.tally
        self.keys: list[int] = []
        self.blocks: list[Block] = []
        self.least_remainder = LEAST_BLOCK_BYTES if pool.is_small else SMALL_LIMIT_BYTES + 1
        self.unmapped: list[Block] = []
        """Address ranges without memory behind them, in order of address; of expandable regions alone."""

    def put(self, block: Block) -> None:
        """Take a block among the free ones."""
        key = block.size << ADDRESS_BITS | block.address
        at = bisect_left(self.keys, key)
        self.keys.insert(at, key)
        self.blocks.insert(at, block)
        block.is_free = True
        block.age_base = self.pool.search_count

    def remove(self, block: Block) -> None:
        """Take a block from among the free ones."""
        at = bisect_left(self.keys, block.size << ADDRESS_BITS | block.address)
        del self.keys[at]
        del self.blocks[at]
        block.is_free = False

    def find_first(self, size: int) -> int:
        """Return the index of the smallest free block of at least this size; the count of all without one."""
        return bisect_left(self.keys, size << ADDRESS_BITS)

    def put_unmapped(self, block: Block) -> None:
        """Take a block among the address ranges without memory."""
        addresses = [other.address for other in self.unmapped]
        self.unmapped.insert(bisect_left(addresses, block.address), block)
        block.is_unmapped = True

    def remove_unmapped(self, block: Block) -> None:
        """Take a block from among the address ranges without memory."""
        self.unmapped.remove(block)
        block.is_unmapped = False


class Pool:
    """The small or the large pool, by default or of one private pool: an arena for each stream."""

    __slots__ = ("arenas", "is_small", "private", "search_count", "tally")

    def __init__(self, *, is_small: bool, tally: Tally, private: PrivatePool | None = None) -> None:
        self.is_small = is_small
        self.tally = tally
        self.private = private
        self.arenas: dict[int, Arena] = {}
        self.search_count = 0
        """Searches so far; a cached block's age is counted in them. Kept while old blocks are given back."""

    def open_arena(self, stream: int) -> Arena:
        """Return the arena of a stream, a new one the first time."""
        arena = self.arenas.get(stream)
        if arena is None:
            arena = self.arenas[stream] = Arena(self, stream)
        return arena

    def free_blocks(self) -> Iterator[Block]:
        """Yield the free blocks in order of stream, size and address, as they are when asked for."""
        for stream in sorted(self.arenas):
            yield from list(self.arenas[stream].blocks)


class PrivatePool:
    """Memory set aside for a CUDA graph or a MemPool."""

    __slots__ = ("large", "pool_id", "reserved", "segment_count", "small", "use_count")

    def __init__(self, pool_id: tuple[int, int], small: Tally, large: Tally) -> None:
        self.pool_id = pool_id
        self.use_count = 1
        self.segment_count = 0
        """Segments and expandable regions held; at 0 a released pool vanishes."""
        self.small = Pool(is_small=True, tally=small, private=self)
        self.large = Pool(is_small=False, tally=large, private=self)
