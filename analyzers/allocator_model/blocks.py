"""Blocks, and the arenas that hold the free ones in order of size and address."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .settings import LEAST_BLOCK_BYTES, SMALL_LIMIT_BYTES

if TYPE_CHECKING:
    from .supply import ExpandableRegion


# What happened in a pool, counted so that a malloc or a free touches three numbers.

# PyTorch updates nine statistics, each for its pool and for all, at every call. Here a call adds to totals
# that only grow; the statistics are differences between them, computed when somebody asks. Their peaks need a
# look at each state that could be the highest: allocated memory is highest where a free follows a malloc,
# inactive memory where a malloc follows a free. Even there nothing has to be computed while less was added
# since the last look than was missing to the peak then.

# The statistics that are kept as differences of totals, by PyTorch's names.
COUNTED = (
    "allocation",
    "active",
    "inactive_split",
    "allocated_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)


class Tally:
    __slots__ = (
        "awaiting_bytes",
        "awaiting_count",
        "awaiting_requested",
        "down_bytes",
        "down_count",
        "down_limit",
        "down_requested",
        "merged_down",
        "pieces_down",
        "pieces_limit",
        "pieces_up",
        "split_up",
        "up_bytes",
        "up_count",
        "up_count_limit",
        "up_limit",
        "up_requested",
        "whole_down",
        "whole_up",
    )

    def __init__(self) -> None:
        # Allocated so far: block bytes, requested bytes, blocks.
        self.up_bytes = self.up_requested = self.up_count = 0
        # Freed so far, as the caller sees it.
        self.down_bytes = self.down_requested = self.down_count = 0
        # Freed by the caller, still used by another stream.
        self.awaiting_bytes = self.awaiting_requested = self.awaiting_count = 0
        # Part of `up_bytes` from blocks that filled their segment or expandable region.
        self.whole_up = 0
        # Freed bytes that made their segment or expandable region whole.
        self.whole_down = 0
        # Bytes that were left over when whole segments were split.
        self.split_up = 0
        # Bytes of free neighbours that went into a segment becoming whole.
        self.merged_down = 0
        # Free pieces of split segments: come and gone.
        self.pieces_up = self.pieces_down = 0
        # Values of `up_bytes`, `up_count`, `down_bytes` and `pieces_up` up to which no peak was passed.
        self.up_limit = self.up_count_limit = self.down_limit = self.pieces_limit = -1

    def read_totals(self) -> tuple[tuple[int, int], ...]:
        """Return by how much each statistic of `COUNTED` rose and fell so far."""
        returned = self.down_bytes - self.awaiting_bytes
        return (
            (self.up_count, self.down_count),
            (self.up_count, self.down_count - self.awaiting_count),
            (self.pieces_up, self.pieces_down),
            (self.up_bytes, self.down_bytes),
            (self.up_bytes, returned),
            (returned - self.whole_down + self.split_up, self.up_bytes - self.whole_up + self.merged_down),
            (self.up_requested, self.down_requested - self.awaiting_requested),
        )


class Peaks:
    """The highest values of the counted statistics: of both pools together, the small and the large one."""

    def __init__(self, small: Tally, large: Tally) -> None:
        self._small = small
        self._large = large
        # For each of `COUNTED`: of both, of the small and of the large pool.
        self.values = tuple([0, 0, 0] for _ in COUNTED)

    def note(self) -> None:
        self.note_allocated()
        self.note_inactive()

    def note_allocated(self) -> None:
        """Update the peaks of allocated memory, and compute until when no further look is needed."""
        small = self._small
        large = self._large
        count, active_count, _, size, active_size, _, requested = self.values
        blocks = small.up_count - small.down_count
        bytes_ = small.up_bytes - small.down_bytes
        large_blocks = large.up_count - large.down_count
        large_bytes = large.up_bytes - large.down_bytes
        small_more, large_more = _raise(count, blocks, large_blocks)
        small_room, large_room = _raise(size, bytes_, large_bytes)
        asked = small.up_requested - small.down_requested + small.awaiting_requested
        large_asked = large.up_requested - large.down_requested + large.awaiting_requested
        rooms = [_raise(requested, asked, large_asked)]
        blocks = blocks + small.awaiting_count
        bytes_ = bytes_ + small.awaiting_bytes
        large_blocks = large_blocks + large.awaiting_count
        large_bytes = large_bytes + large.awaiting_bytes
        rooms.append(_raise(active_size, bytes_, large_bytes))
        more = _raise(active_count, blocks, large_blocks)
        small.up_limit = small.up_bytes + min(small_room, rooms[0][0], rooms[1][0])
        large.up_limit = large.up_bytes + min(large_room, rooms[0][1], rooms[1][1])
        small.up_count_limit = small.up_count + min(small_more, more[0])
        large.up_count_limit = large.up_count + min(large_more, more[1])

    def note_inactive(self) -> None:
        """Update the peaks of memory stranded in split segments, and compute until when no further look is
        needed.
        """
        small = self._small
        large = self._large
        small_more, large_more = _raise(
            self.values[2], small.pieces_up - small.pieces_down, large.pieces_up - large.pieces_down
        )
        small_room, large_room = _raise(self.values[5], _measure_inactive(small), _measure_inactive(large))
        small.pieces_limit = small.pieces_up + small_more
        large.pieces_limit = large.pieces_up + large_more
        small.down_limit = small.down_bytes + small_room
        large.down_limit = large.down_bytes + large_room

    def reset(self) -> None:
        for peaks in self.values:
            peaks[:] = [0, 0, 0]
        self.note()


def _raise(peaks: list[int], small: int, large: int) -> tuple[int, int]:
    """Raise peaks to the present values; return how much either pool may gain before one could be passed."""
    both = small + large
    peaks[0] = max(peaks[0], both)
    peaks[1] = max(peaks[1], small)
    peaks[2] = max(peaks[2], large)
    half = (peaks[0] - both) // 2
    own = peaks[1] - small
    own_large = peaks[2] - large
    return own if own < half else half, own_large if own_large < half else half


def _measure_inactive(tally: Tally) -> int:
    """Return the bytes of free pieces in split segments."""
    returned = tally.down_bytes - tally.awaiting_bytes - tally.whole_down + tally.split_up
    return returned - (tally.up_bytes - tally.whole_up + tally.merged_down)


class Counter:
    """One statistic that changes seldom: current value, peak, and the sums of its rises and falls."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def rise(self, amount: int) -> None:
        self.current += amount
        self.allocated += amount
        self.peak = max(self.peak, self.current)

    def fall(self, amount: int) -> None:
        self.current -= amount
        self.freed += amount

    def as_dict(self) -> dict[str, int]:
        return {
            "current": self.current,
            "peak": self.peak,
            "allocated": self.allocated,
            "freed": self.freed,
        }


class PoolCounter:
    """A counter for both pools together, for the large and for the small one."""

    __slots__ = ("all", "large", "small")

    def __init__(self) -> None:
        self.all = Counter()
        self.large = Counter()
        self.small = Counter()

    def rise(self, amount: int, *, is_small: bool) -> None:
        self.all.rise(amount)
        (self.small if is_small else self.large).rise(amount)

    def fall(self, amount: int, *, is_small: bool) -> None:
        self.all.fall(amount)
        (self.small if is_small else self.large).fall(amount)

    def each(self) -> tuple[Counter, Counter, Counter]:
        return self.all, self.large, self.small

    def as_dict(self) -> dict[str, dict[str, int]]:
        return {
            "all": self.all.as_dict(),
            "small_pool": self.small.as_dict(),
            "large_pool": self.large.as_dict(),
        }


# The key of a free block is `size << ADDRESS_BITS | address`, one number that sorts as the pair does.
ADDRESS_BITS = 60


class Block:
    """A piece of a segment: allocated, awaiting events, free (cached) or not mapped.

    `prev` and `next` are its neighbours in the segment. Objects of blocks that were merged away are
    reused, so that a step of training makes no work for Python's garbage collector.
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
        # Address ranges without memory behind them, in order of address; only in expandable regions.
        self.unmapped: list[Block] = []

    def put(self, block: Block) -> None:
        key = block.size << ADDRESS_BITS | block.address
        at = bisect_left(self.keys, key)
        self.keys.insert(at, key)
        self.blocks.insert(at, block)
        block.is_free = True
        block.age_base = self.pool.search_count

    def remove(self, block: Block) -> None:
        at = bisect_left(self.keys, block.size << ADDRESS_BITS | block.address)
        del self.keys[at]
        del self.blocks[at]
        block.is_free = False

    def find_first(self, size: int) -> int:
        """Return the index of the smallest free block of at least this size; their number if none is."""
        return bisect_left(self.keys, size << ADDRESS_BITS)

    def put_unmapped(self, block: Block) -> None:
        addresses = [other.address for other in self.unmapped]
        self.unmapped.insert(bisect_left(addresses, block.address), block)
        block.is_unmapped = True

    def remove_unmapped(self, block: Block) -> None:
        self.unmapped.remove(block)
        block.is_unmapped = False


class Pool:
    """The small or the large pool, default or private: an arena for each stream."""

    __slots__ = ("arenas", "is_small", "private", "search_count", "tally")

    def __init__(self, *, is_small: bool, tally: Tally, private: PrivatePool | None = None) -> None:
        self.is_small = is_small
        self.tally = tally
        self.private = private
        self.arenas: dict[int, Arena] = {}
        # Searches so far, the unit of a cached block's age. Counted while old blocks are given back.
        self.search_count = 0

    def open_arena(self, stream: int) -> Arena:
        arena = self.arenas.get(stream)
        if arena is None:
            arena = self.arenas[stream] = Arena(self, stream)
        return arena

    def free_blocks(self) -> Iterator[Block]:
        for stream in sorted(self.arenas):
            yield from list(self.arenas[stream].blocks)


class PrivatePool:
    """Memory set aside for a CUDA graph or a MemPool."""

    __slots__ = ("large", "pool_id", "reserved", "segment_count", "small", "use_count")

    def __init__(self, pool_id: tuple[int, int], small: Tally, large: Tally) -> None:
        self.pool_id = pool_id
        self.use_count = 1
        # Segments and expandable regions held; at 0 a released pool vanishes.
        self.segment_count = 0
        self.small = Pool(is_small=True, tally=small, private=self)
        self.large = Pool(is_small=False, tally=large, private=self)


# The statistics that change seldom: segments, retries, what the device was asked for.


class DeviceCounters:
    """What passed between the allocator and the device."""

    def __init__(self) -> None:
        self.segment = PoolCounter()
        self.reserved = PoolCounter()
        self.reserved_by_private_pool: dict[tuple[int, int], PoolCounter] = {}
        self.oversize_allocations = Counter()
        self.oversize_segments = Counter()
        self.num_alloc_retries = 0
        self.num_ooms = 0
        self.num_sync_all_streams = 0
        self.num_device_alloc = 0
        self.num_device_free = 0
        # Requests for which cached memory was given back.
        self.times_given_back = 0

    def each(self) -> list[Counter]:
        pooled = [self.segment, self.reserved, *self.reserved_by_private_pool.values()]
        single = [counter for pool in pooled for counter in pool.each()]
        return [*single, self.oversize_allocations, self.oversize_segments]

    def reset_peaks(self) -> None:
        for counter in self.each():
            counter.peak = counter.current

    def reset_accumulated(self) -> None:
        for counter in self.each():
            counter.allocated = counter.freed = 0
        self.num_alloc_retries = self.num_ooms = self.num_sync_all_streams = 0
        self.num_device_alloc = self.num_device_free = 0

    def count_reserved(self, size: int, *, is_small: bool, pool_id: tuple[int, int] | None) -> None:
        """Count memory that came from the device, or went back (less than 0)."""
        counters = [self.reserved]
        if pool_id is not None:
            counters.append(self.reserved_by_private_pool.setdefault(pool_id, PoolCounter()))
        for counter in counters:
            if size > 0:
                counter.rise(size, is_small=is_small)
            else:
                counter.fall(-size, is_small=is_small)
        if size > 0:
            self.num_device_alloc += 1
        else:
            self.num_device_free += 1
