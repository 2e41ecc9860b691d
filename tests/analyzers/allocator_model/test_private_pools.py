"""Memory set aside for CUDA graphs and MemPools."""

import pytest

from vramscope.analyzers.allocator_model import AllocatorOutOfMemoryError, PoolError

from .cards import MIB, list_segments, make_allocator

GRAPH, OTHER = (0, 1), (0, 2)


def test_a_pool_and_the_rest_share_nothing() -> None:
    allocator = make_allocator()
    allocator.free(allocator.malloc(30 * MIB))
    allocator.begin_pool(GRAPH)
    captured = allocator.malloc(30 * MIB)
    allocator.end_pool(GRAPH)
    allocator.free(captured)
    pools = [(s["segment_pool_id"], s["total_size"]) for s in allocator.memory_snapshot()]
    assert pools == [((0, 0), 30 * MIB), (GRAPH, 30 * MIB)]
    assert allocator.malloc(30 * MIB) != captured
    assert allocator.memory_stats()["reserved_bytes_by_private_pools.0_1.all.current"] == 30 * MIB


def test_a_pool_keeps_its_memory_until_it_is_released() -> None:
    allocator = make_allocator()
    allocator.begin_pool(GRAPH)
    allocator.free(allocator.malloc(30 * MIB))
    allocator.end_pool(GRAPH)
    allocator.empty_cache()
    assert list_segments(allocator) == [30 * MIB]
    allocator.release_pool(GRAPH)
    assert list_segments(allocator) == [30 * MIB]
    allocator.empty_cache()
    assert list_segments(allocator) == []
    counted = allocator.memory_stats()
    assert counted["reserved_bytes_by_private_pools.0_1.all.current"] == 0
    assert counted["reserved_bytes_by_private_pools.0_1.large_pool.peak"] == 30 * MIB


def test_two_users_of_a_pool_both_have_to_release_it() -> None:
    allocator = make_allocator()
    for _ in range(2):
        allocator.begin_pool(GRAPH)
        allocator.free(allocator.malloc(30 * MIB))
        allocator.end_pool(GRAPH)
    allocator.release_pool(GRAPH)
    allocator.empty_cache()
    assert list_segments(allocator) == [30 * MIB]
    allocator.release_pool(GRAPH)
    allocator.empty_cache()
    assert list_segments(allocator) == []


def test_only_the_captured_stream_goes_to_the_pool_and_the_latest_pool_wins() -> None:
    allocator = make_allocator()
    allocator.begin_pool(GRAPH)
    allocator.begin_pool(OTHER, stream=3)
    allocator.malloc(10 * MIB, stream=0)
    allocator.malloc(12 * MIB, stream=3)
    allocator.end_pool(GRAPH)
    allocator.malloc(14 * MIB, stream=0)
    owners = {s["total_size"]: s["segment_pool_id"] for s in allocator.memory_snapshot()}
    assert owners == {10 * MIB: GRAPH, 12 * MIB: OTHER, 14 * MIB: (0, 0)}


def test_during_a_capture_nothing_is_flushed() -> None:
    allocator = make_allocator(capacity=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.begin_pool(GRAPH)
    with pytest.raises(AllocatorOutOfMemoryError):
        allocator.malloc(60 * MIB)
    assert allocator.memory_stats()["num_alloc_retries"] == 0
    allocator.end_pool(GRAPH)
    assert allocator.malloc(80 * MIB)


def test_a_full_card_takes_back_what_a_released_pool_caches() -> None:
    allocator = make_allocator(capacity=100 * MIB)
    allocator.begin_pool(GRAPH)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.end_pool(GRAPH)
    with pytest.raises(AllocatorOutOfMemoryError):
        allocator.malloc(60 * MIB)
    allocator.release_pool(GRAPH)
    assert allocator.malloc(60 * MIB)


def test_uses_by_streams_within_a_capture_end_with_it() -> None:
    allocator = make_allocator()
    allocator.begin_pool(GRAPH)
    address = allocator.malloc(30 * MIB)
    allocator.record_stream(address, 7)
    allocator.free(address)
    assert allocator.active_bytes == 30 * MIB
    allocator.end_pool(GRAPH)
    allocator.process_events()
    assert allocator.active_bytes == 0


def test_pools_work_with_expandable_segments() -> None:
    allocator = make_allocator("expandable_segments:True")
    allocator.begin_pool(GRAPH)
    allocator.free(allocator.malloc(30 * MIB))
    allocator.end_pool(GRAPH)
    assert [s["segment_pool_id"] for s in allocator.memory_snapshot()] == [GRAPH]
    allocator.release_pool(GRAPH)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0


def test_pools_are_begun_ended_and_released_in_order() -> None:
    allocator = make_allocator()
    with pytest.raises(PoolError, match="begin it first"):
        allocator.end_pool(GRAPH)
    with pytest.raises(PoolError, match="no use left"):
        allocator.release_pool(GRAPH)
    allocator.begin_pool(GRAPH)
    with pytest.raises(PoolError, match="already"):
        allocator.begin_pool(GRAPH)
    allocator.malloc(MIB)
    allocator.end_pool(GRAPH)
    allocator.release_pool(GRAPH)
    with pytest.raises(PoolError, match="was released"):
        allocator.begin_pool(GRAPH)
