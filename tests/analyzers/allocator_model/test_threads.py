"""Calls that arrive while the allocator is inside an operation: from other threads, and from callbacks."""

import gc
import random
import threading
import weakref
from collections.abc import Callable
from itertools import pairwise

import pytest

from vramscope.analyzers.allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
    UnknownAddressError,
)

from .cards import GIB, MIB, list_segments


class InterruptingCard(PrivateDeviceMemory):
    """Calls back in the middle of an operation, as a garbage collection may."""

    def __init__(self, total_bytes: int) -> None:
        super().__init__(total_bytes)
        self.interruptions: list[Callable[[], object]] = []

    def reserve(self, size_bytes: int) -> bool:
        while self.interruptions:
            self.interruptions.pop()()
        return super().reserve(size_bytes)


def make_interrupted(total_bytes: int = GIB) -> tuple[CachingAllocator, InterruptingCard]:
    card = InterruptingCard(total_bytes)
    return CachingAllocator(card, AllocatorSettings()), card


def test_a_free_inside_a_malloc_is_done_after_it() -> None:
    allocator, card = make_interrupted()
    address = allocator.malloc(30 * MIB)
    card.interruptions.append(lambda: allocator.free(address))
    other = allocator.malloc(30 * MIB)
    # The malloc could not use what was freed in its middle; the next one can.
    assert other != address
    assert allocator.allocated_bytes == 30 * MIB
    assert allocator.malloc(30 * MIB) == address


def test_a_free_inside_a_malloc_that_finds_no_room_is_done_too() -> None:
    allocator, card = make_interrupted(100 * MIB)
    address = allocator.malloc(60 * MIB)
    card.interruptions.append(lambda: allocator.free(address))
    with pytest.raises(AllocatorOutOfMemoryError):
        allocator.malloc(60 * MIB)
    assert allocator.malloc(60 * MIB) == address


def test_a_malloc_inside_a_malloc_gets_a_segment_of_its_own() -> None:
    allocator, card = make_interrupted()
    inner: list[int] = []
    card.interruptions.append(lambda: inner.append(allocator.malloc(1000)))
    outer = allocator.malloc(1000)
    stats = allocator.memory_stats()
    assert sorted(list_segments(allocator)) == [2 * MIB, 2 * MIB]
    assert stats["requested_bytes.all.current"] == 2000
    assert stats["reserved_bytes.all.current"] == 4 * MIB
    for address in (*inner, outer):
        allocator.free(address)
    stats = allocator.memory_stats()
    assert stats["active_bytes.all.current"] == stats["inactive_split_bytes.all.current"] == 0
    assert allocator.malloc(1000) in {*inner, outer}


def test_a_malloc_inside_a_malloc_may_be_freed_there() -> None:
    allocator, card = make_interrupted()
    card.interruptions.append(lambda: allocator.free(allocator.malloc(5 * MIB)))
    allocator.malloc(1000)
    stats = allocator.memory_stats()
    assert stats["allocation.large_pool.allocated"] == stats["allocation.large_pool.freed"] == 1
    assert stats["allocation.all.current"] == 1


def test_a_malloc_inside_a_malloc_may_find_no_room() -> None:
    allocator, card = make_interrupted(4 * MIB)
    refused: list[AllocatorOutOfMemoryError] = []

    def ask() -> None:
        with pytest.raises(AllocatorOutOfMemoryError) as caught:
            allocator.malloc(5 * MIB)
        refused.append(caught.value)

    card.interruptions.append(ask)
    allocator.malloc(1000)
    assert refused[0].requested_bytes == 5 * MIB
    assert allocator.memory_stats()["num_ooms"] == 1


def test_other_calls_inside_a_malloc_are_done_after_it_in_order() -> None:
    allocator, card = make_interrupted()
    kept, cached = allocator.malloc(40 * MIB), allocator.malloc(50 * MIB)
    allocator.free(cached)

    def interrupt() -> None:
        allocator.record_stream(kept, 9)
        allocator.free(kept)
        allocator.empty_cache()
        assert allocator.memory_stats()["allocation.all.allocated"] == 2
        assert len(allocator.memory_snapshot()) == 2

    card.interruptions.append(interrupt)
    allocator.malloc(60 * MIB)
    # First the use by stream 9 and the free, then the cache was emptied, which waits for streams.
    assert sorted(list_segments(allocator)) == [60 * MIB]


def test_a_block_freed_twice_is_refused_at_once_wherever() -> None:
    allocator, card = make_interrupted()
    address = allocator.malloc(30 * MIB)

    def free_twice() -> None:
        allocator.free(address)
        with pytest.raises(UnknownAddressError, match="freed twice"):
            allocator.free(address)

    card.interruptions.append(free_twice)
    allocator.malloc(40 * MIB)
    with pytest.raises(UnknownAddressError):
        allocator.free(address)


class Node:
    """Something in a cycle, which only the garbage collector finds."""

    def __init__(self) -> None:
        self.itself = self


def test_frees_from_the_garbage_collector_at_any_moment_leave_the_books_in_order() -> None:
    allocator, _ = make_interrupted(64 * GIB)
    threshold = gc.get_threshold()
    rng = random.Random(5)
    expected = 0
    finalizers = []
    gc.set_threshold(7)
    try:
        for _ in range(3000):
            size = rng.randrange(1, 3 * MIB)
            node = Node()
            finalizers.append(weakref.finalize(node, allocator.free, allocator.malloc(size)))
            expected += size
    finally:
        gc.set_threshold(*threshold)
    del node
    gc.collect()
    assert not any(finalizer.alive for finalizer in finalizers)
    stats = allocator.memory_stats()
    assert stats["requested_bytes.all.allocated"] == stats["requested_bytes.all.freed"] == expected
    assert stats["allocated_bytes.all.current"] == stats["inactive_split_bytes.all.current"] == 0
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0


def test_threads_that_malloc_and_free_each_others_blocks_lose_none() -> None:
    allocator = CachingAllocator(PrivateDeviceMemory(64 * GIB), AllocatorSettings())
    shared: list[int] = []
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(3000):
                if rng.random() < 0.55:
                    shared.append(allocator.malloc(rng.randrange(1, 4 * MIB)))
                elif shared:
                    allocator.free(shared.pop())
        except IndexError:
            return work(seed + 100)  # another thread took the last one
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)
        return None

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    stats = allocator.memory_stats()
    assert stats["allocation.all.current"] == len(shared)
    ranges = sorted(
        (block["address"], block["address"] + block["size"])
        for segment in allocator.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    )
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
    for address in shared:
        allocator.free(address)
    allocator.empty_cache()
    assert allocator.reserved_bytes == allocator.allocated_bytes == 0
