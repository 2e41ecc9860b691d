"""Where blocks go: worked out by hand from the rules of c10/cuda/CUDACachingAllocator.cpp."""

from itertools import pairwise

import pytest

from .cards import KIB, MIB, list_blocks, list_segments, make_allocator


@pytest.mark.parametrize(
    ("requested", "block", "segment"),
    [
        pytest.param(1, 512, 2 * MIB, id="the least block"),
        pytest.param(512, 512, 2 * MIB, id="exactly one"),
        pytest.param(513, 1024, 2 * MIB, id="one byte more"),
        pytest.param(MIB, MIB, 2 * MIB, id="the largest small one"),
        # More than 1 MiB is left of 20: it is split off.
        pytest.param(MIB + 1, MIB + 512, 20 * MIB, id="the smallest large one"),
        pytest.param(10 * MIB - 512, 10 * MIB - 512, 20 * MIB, id="the largest in a shared segment"),
        pytest.param(10 * MIB, 10 * MIB, 10 * MIB, id="the smallest with its own segment"),
        # What is left of a segment, up to 1 MiB, cannot be split off and belongs to the block.
        pytest.param(11 * MIB, 12 * MIB, 12 * MIB, id="its own segment, 1 MiB left over"),
        pytest.param(11 * MIB - 512, 11 * MIB - 512, 12 * MIB, id="its own segment, a little more left over"),
        pytest.param(100 * MIB + 1, 100 * MIB + 512, 102 * MIB, id="2 MiB less a little left over"),
        pytest.param(101 * MIB, 102 * MIB, 102 * MIB, id="1 MiB left over"),
    ],
)
def test_a_first_request_gets_this_block_of_this_segment(requested: int, block: int, segment: int) -> None:
    allocator = make_allocator()
    allocator.malloc(requested)
    assert (allocator.allocated_bytes, list_segments(allocator)) == (block, [segment])


@pytest.mark.parametrize(
    ("setting", "requested", "block"),
    [
        # The example of PyTorch's source, in MiB: 1200 lies between 1024 and 2048; four steps of 256.
        pytest.param("4", 1200 * MIB, 1280 * MIB, id="1200 MiB to 1280"),
        pytest.param("4", 1024 * MIB, 1024 * MIB, id="a power of two stays"),
        pytest.param("4", 1281 * MIB, 1536 * MIB, id="just above a step"),
        pytest.param("4", 2000, 2048, id="below four least blocks the ordinary rule holds"),
        pytest.param("4", 2600, 3072, id="above, steps hold for small blocks too"),
        pytest.param("1", 1200 * MIB + 1, 1200 * MIB + 512, id="one step means none"),
        pytest.param("[64:8,128:2,>:1]", 33 * MIB, 36 * MIB, id="below the first interval its number holds"),
        pytest.param("[64:8,128:2,>:1]", 130 * MIB, 192 * MIB, id="an interval of its own"),
        pytest.param("[64:8,128:2,>:1]", 300 * MIB + 1, 300 * MIB + 512, id="the rest is not rounded"),
    ],
)
def test_sizes_are_rounded_to_parts_of_a_power_of_two(setting: str, requested: int, block: int) -> None:
    allocator = make_allocator(f"roundup_power2_divisions:{setting}")
    allocator.malloc(requested)
    # A large block takes in what its segment leaves over below 1 MiB; these sizes leave nothing or more.
    assert allocator.allocated_bytes == block


def test_small_blocks_share_a_segment_and_large_ones_another() -> None:
    allocator = make_allocator()
    small = [allocator.malloc(100 * KIB) for _ in range(3)]
    large = [allocator.malloc(5 * MIB) for _ in range(3)]
    assert list_segments(allocator) == [2 * MIB, 20 * MIB]
    assert [b - a for a, b in pairwise(small)] == [100 * KIB] * 2
    assert [b - a for a, b in pairwise(large)] == [5 * MIB] * 2


def test_the_smallest_block_that_fits_serves_and_of_equals_the_lowest() -> None:
    allocator = make_allocator()
    sizes = [30, 24, 40, 24, 24]
    addresses = [allocator.malloc(size * MIB) for size in sizes]
    for address in addresses:
        allocator.free(address)
    # 23 MiB leave 1 MiB of 24, which is too little to split.
    assert [allocator.malloc(23 * MIB) for _ in range(3)] == [addresses[1], addresses[3], addresses[4]]
    assert allocator.allocated_bytes == 3 * 24 * MIB
    assert allocator.malloc(23 * MIB) == addresses[0]
    assert list_blocks(allocator)[:2] == [(23 * MIB, "active_allocated"), (7 * MIB, "inactive")]


def test_freed_neighbours_become_one_block() -> None:
    allocator = make_allocator()
    first, second, third = (allocator.malloc(4 * MIB) for _ in range(3))
    allocator.free(first)
    allocator.free(third)
    assert list_blocks(allocator) == [
        (4 * MIB, "inactive"),
        (4 * MIB, "active_allocated"),
        (12 * MIB, "inactive"),
    ]
    allocator.free(second)
    assert list_blocks(allocator) == [(20 * MIB, "inactive")]


def test_a_stream_gets_no_memory_of_another() -> None:
    allocator = make_allocator()
    allocator.free(allocator.malloc(30 * MIB, stream=0))
    allocator.malloc(30 * MIB, stream=3)
    assert [(s["stream"], s["allocated_size"]) for s in allocator.memory_snapshot()] == [
        (0, 0),
        (3, 30 * MIB),
    ]


def test_no_bytes_are_nowhere_and_negative_ones_are_refused() -> None:
    allocator = make_allocator()
    assert allocator.malloc(0) == 0
    allocator.free(0)
    assert allocator.memory_stats()["allocation.all.allocated"] == 0
    with pytest.raises(ValueError, match="-1 bytes"):
        allocator.malloc(-1)


def test_a_limit_of_splitting_keeps_large_blocks_for_large_requests() -> None:
    allocator = make_allocator("max_split_size_mb:100")
    large = allocator.malloc(300 * MIB)
    allocator.free(large)
    assert allocator.malloc(60 * MIB) != large
    # Unsplittable: a request may take a block that is less than 20 MiB larger, and gets all of it.
    assert allocator.malloc(280 * MIB) != large
    assert allocator.malloc(280 * MIB + 512) == large
    assert allocator.memory_stats()["oversize_allocations.current"] == 2
    assert allocator.memory_stats()["oversize_segments.current"] == 2


def test_a_request_of_just_the_limit_is_unsplittable_already() -> None:
    allocator = make_allocator("max_split_size_mb:100")
    cached = allocator.malloc(110 * MIB)
    allocator.free(cached)
    assert allocator.malloc(100 * MIB - 512) != cached
    assert allocator.malloc(100 * MIB) == cached


def test_unsplittable_blocks_may_be_larger_by_what_is_set() -> None:
    allocator = make_allocator("max_split_size_mb:100,max_non_split_rounding_mb:200")
    large = allocator.malloc(300 * MIB)
    allocator.free(large)
    assert allocator.malloc(150 * MIB) == large


@pytest.mark.parametrize(("size_mib", "mapped_mib"), [(5, 20), (20, 20), (21, 40), (500, 500)])
def test_expandable_segments_are_mapped_page_by_page(size_mib: int, mapped_mib: int) -> None:
    allocator = make_allocator("expandable_segments:True")
    allocator.malloc(size_mib * MIB)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (size_mib * MIB, mapped_mib * MIB)


def test_an_expandable_segment_grows_where_whole_ones_would_strand() -> None:
    """The case that the setting is for: every step needs somewhat more than the one before."""
    allocators = [make_allocator(), make_allocator("expandable_segments:True")]
    for allocator in allocators:
        for size in range(100, 200, 3):
            allocator.free(allocator.malloc(size * MIB))
    whole, expandable = (allocator.reserved_bytes // MIB for allocator in allocators)
    assert whole > 2000
    assert expandable == 200


def test_small_pages_of_expandable_segments_are_2_mib() -> None:
    allocator = make_allocator("expandable_segments:True")
    for _ in range(5):
        allocator.malloc(900 * KIB)
    assert list_segments(allocator) == [6 * MIB]
    assert allocator.memory_stats()["segment.all.current"] == 0
