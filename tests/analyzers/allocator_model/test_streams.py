"""Blocks that other streams use: freed by the caller, they wait for those streams."""

import pytest

from vramscope.analyzers.allocator_model import CachingAllocator, UnknownAddressError

from .cards import MIB, list_blocks, make_allocator

SIDE = 7


def free_while_used(allocator: CachingAllocator, size: int = 30 * MIB) -> int:
    address = allocator.malloc(size)
    allocator.record_stream(address, SIDE)
    allocator.free(address)
    return address


def test_a_block_waits_until_the_stream_is_done_and_the_next_malloc_looks() -> None:
    allocator = make_allocator()
    address = free_while_used(allocator)
    assert allocator.malloc(30 * MIB) != address
    assert (allocator.allocated_bytes, allocator.active_bytes) == (30 * MIB, 60 * MIB)
    assert (30 * MIB, "active_pending_free") in list_blocks(allocator)
    allocator.synchronize(SIDE)
    assert allocator.active_bytes == 60 * MIB
    assert allocator.malloc(30 * MIB) == address
    assert allocator.active_bytes == 60 * MIB == allocator.allocated_bytes


def test_asking_frees_it_without_a_malloc() -> None:
    allocator = make_allocator()
    free_while_used(allocator)
    allocator.process_events()
    assert allocator.active_bytes == 30 * MIB
    allocator.synchronize()
    allocator.process_events()
    assert allocator.active_bytes == 0


def test_another_stream_being_done_is_not_enough() -> None:
    allocator = make_allocator()
    address = allocator.malloc(30 * MIB)
    allocator.record_stream(address, SIDE)
    allocator.record_stream(address, SIDE + 1)
    allocator.free(address)
    allocator.synchronize(SIDE)
    allocator.process_events()
    assert allocator.active_bytes == 30 * MIB
    allocator.synchronize(SIDE + 1)
    allocator.process_events()
    assert allocator.active_bytes == 0


def test_what_is_freed_after_the_synchronization_waits_for_the_next() -> None:
    allocator = make_allocator()
    free_while_used(allocator)
    allocator.synchronize(SIDE)
    free_while_used(allocator, 40 * MIB)
    allocator.process_events()
    assert allocator.active_bytes == 40 * MIB


def test_its_own_stream_needs_no_waiting() -> None:
    allocator = make_allocator()
    address = allocator.malloc(30 * MIB, stream=SIDE)
    allocator.record_stream(address, SIDE)
    allocator.free(address)
    assert allocator.active_bytes == 0


def test_a_full_card_waits_for_the_streams() -> None:
    allocator = make_allocator(capacity=40 * MIB)
    free_while_used(allocator)
    allocator.malloc(40 * MIB)
    stats = allocator.memory_stats()
    assert (stats["num_sync_all_streams"], stats["active_bytes.all.current"]) == (1, 40 * MIB)


def test_neighbours_of_a_waiting_block_stay_apart() -> None:
    allocator = make_allocator()
    first, second, third = (allocator.malloc(4 * MIB) for _ in range(3))
    allocator.record_stream(second, SIDE)
    for address in (first, second, third):
        allocator.free(address)
    assert list_blocks(allocator) == [
        (4 * MIB, "inactive"),
        (4 * MIB, "active_pending_free"),
        (12 * MIB, "inactive"),
    ]
    allocator.synchronize(SIDE)
    allocator.process_events()
    assert list_blocks(allocator) == [(20 * MIB, "inactive")]


def test_a_stream_of_nothing_is_refused() -> None:
    with pytest.raises(UnknownAddressError, match="0x1234"):
        make_allocator().record_stream(0x1234, SIDE)
