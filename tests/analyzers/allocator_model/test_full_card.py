"""What happens when the card has no room: give back, try again, give up."""

import pytest

from vramscope.analyzers.allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
)

from .cards import GIB, MIB, list_segments, make_allocator


def test_everything_cached_is_given_back_before_giving_up() -> None:
    allocator = make_allocator(capacity=100 * MIB)
    for size in (30, 40):
        allocator.free(allocator.malloc(size * MIB))
    allocator.malloc(60 * MIB)
    stats = allocator.memory_stats()
    assert list_segments(allocator) == [60 * MIB]
    assert (stats["num_alloc_retries"], stats["num_ooms"], stats["num_sync_all_streams"]) == (1, 0, 1)
    assert (stats["num_device_alloc"], stats["num_device_free"]) == (3, 2)


def test_an_error_says_what_was_asked_and_what_there_was() -> None:
    allocator = make_allocator(capacity=100 * MIB)
    keep = allocator.malloc(5 * MIB)
    allocator.malloc(41 * MIB)
    with pytest.raises(AllocatorOutOfMemoryError, match=r"no room for 50\.00 MiB") as caught:
        allocator.malloc(49 * MIB)
    error = caught.value
    assert (error.requested_bytes, error.rounded_bytes, error.segment_bytes) == (49 * MIB, 49 * MIB, 50 * MIB)
    # 5 MiB of a 20 MiB segment, and 42 MiB for 41 that left too little to split.
    assert (error.allocated_bytes, error.reserved_bytes) == (47 * MIB, 62 * MIB)
    assert (error.device_free_bytes, error.device_total_bytes) == (38 * MIB, 100 * MIB)
    assert error.limit_bytes is None
    assert allocator.memory_stats()["num_ooms"] == 1
    allocator.free(keep)
    assert allocator.malloc(49 * MIB)


def test_split_segments_cannot_be_given_back() -> None:
    allocator = make_allocator(capacity=100 * MIB)
    large = allocator.malloc(80 * MIB)
    allocator.free(large)
    allocator.malloc(2 * MIB)  # sits in the 80 MiB
    with pytest.raises(AllocatorOutOfMemoryError):
        allocator.malloc(79 * MIB)
    assert allocator.memory_stats()["inactive_split_bytes.all.current"] == 78 * MIB


def test_expandable_pages_can_be_given_back_around_what_is_live() -> None:
    allocator = make_allocator("expandable_segments:True", capacity=120 * MIB)
    first = allocator.malloc(80 * MIB)
    allocator.malloc(2 * MIB)
    allocator.free(first)
    second = allocator.malloc(5 * MIB, stream=1)
    # The second stream needs a page; its region and the first's share the card.
    assert allocator.reserved_bytes == 120 * MIB
    assert allocator.malloc(90 * MIB, stream=1)
    assert allocator.memory_stats()["num_alloc_retries"] == 1
    allocator.free(second)


def test_a_share_of_the_card_is_not_exceeded() -> None:
    allocator = make_allocator(capacity=GIB)
    allocator.set_memory_fraction(0.5)
    allocator.malloc(500 * MIB)
    with pytest.raises(AllocatorOutOfMemoryError) as caught:
        allocator.malloc(50 * MIB)
    assert caught.value.limit_bytes == 512 * MIB
    assert caught.value.device_free_bytes == 524 * MIB
    allocator.set_memory_fraction(1.0)
    assert allocator.malloc(50 * MIB)
    with pytest.raises(ValueError, match="from 0 to 1"):
        allocator.set_memory_fraction(1.5)


def test_the_share_may_be_set_in_the_configuration() -> None:
    allocator = make_allocator("per_process_memory_fraction:0.25", capacity=GIB)
    with pytest.raises(AllocatorOutOfMemoryError):
        allocator.malloc(257 * MIB)


def test_what_others_hold_of_the_card_is_not_there() -> None:
    card = PrivateDeviceMemory(100 * MIB)
    mine = CachingAllocator(card, AllocatorSettings())
    other = CachingAllocator(card, AllocatorSettings())
    other.malloc(70 * MIB)
    with pytest.raises(AllocatorOutOfMemoryError) as caught:
        mine.malloc(40 * MIB)
    assert (caught.value.device_free_bytes, caught.value.reserved_bytes) == (30 * MIB, 0)
    other.empty_cache()
    assert mine.malloc(30 * MIB)


def test_unsplittable_blocks_go_first_and_alone_where_that_is_enough() -> None:
    allocator = make_allocator("max_split_size_mb:20", capacity=100 * MIB)
    small = allocator.malloc(10 * MIB)
    for address in [allocator.malloc(size * MIB) for size in (30, 40)]:
        allocator.free(address)
    allocator.free(small)
    # 10 + 30 + 40 are cached; 60 need both large ones, not the small one, and no flush.
    allocator.malloc(60 * MIB)
    stats = allocator.memory_stats()
    assert sorted(list_segments(allocator)) == [10 * MIB, 60 * MIB]
    assert (stats["num_alloc_retries"], stats["num_sync_all_streams"]) == (0, 0)


def test_one_unsplittable_block_of_enough_size_is_enough() -> None:
    allocator = make_allocator("max_split_size_mb:20", capacity=150 * MIB)
    for address in [allocator.malloc(size * MIB) for size in (30, 90)]:
        allocator.free(address)
    allocator.malloc(50 * MIB)
    assert sorted(list_segments(allocator)) == [30 * MIB, 50 * MIB]


def test_a_small_request_also_makes_room_by_unsplittable_blocks() -> None:
    allocator = make_allocator("max_split_size_mb:20", capacity=100 * MIB)
    for address in [allocator.malloc(size * MIB) for size in (22, 30, 48)]:
        allocator.free(address)
    allocator.malloc(12 * MIB)
    # The smallest that is unsplittable, 22 MiB, made room.
    assert sorted(list_segments(allocator)) == [12 * MIB, 30 * MIB, 48 * MIB]


def test_old_cached_blocks_go_when_the_threshold_is_passed() -> None:
    allocator = make_allocator("garbage_collection_threshold:0.5,per_process_memory_fraction:0.9", GIB)
    old, busy, young = (allocator.malloc(size * MIB) for size in (300, 20, 200))
    allocator.free(old)
    for _ in range(5):
        allocator.free(busy)
        busy = allocator.malloc(20 * MIB)
    allocator.free(busy)
    allocator.free(young)
    # Half of the allowed 921 MiB is passed: what was not used for longest goes, without a retry.
    allocator.malloc(400 * MIB)
    assert sorted(list_segments(allocator)) == [20 * MIB, 200 * MIB, 400 * MIB]
    assert allocator.memory_stats()["num_alloc_retries"] == 0


def test_the_threshold_does_nothing_without_a_share() -> None:
    allocator = make_allocator("garbage_collection_threshold:0.1", capacity=GIB)
    allocator.free(allocator.malloc(300 * MIB))
    allocator.malloc(400 * MIB)
    assert sorted(list_segments(allocator)) == [300 * MIB, 400 * MIB]


def test_emptying_the_cache_leaves_what_is_live() -> None:
    allocator = make_allocator()
    keep = allocator.malloc(30 * MIB)
    allocator.free(allocator.malloc(50 * MIB))
    allocator.free(allocator.malloc(100))
    allocator.empty_cache()
    assert list_segments(allocator) == [30 * MIB]
    allocator.free(keep)
