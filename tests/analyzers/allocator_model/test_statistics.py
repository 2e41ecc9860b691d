"""The statistics: PyTorch's keys, and what they count."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from .cards import KIB, MIB, make_allocator

POOLED = (
    *("allocation", "segment", "active", "inactive_split"),
    *("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"),
)
"""The statistics that torch/csrc/cuda/Module.cpp gives for each pool."""
PARTS = ("current", "peak", "allocated", "freed")
SINGLE = {
    *("max_split_size", "num_alloc_retries", "num_device_alloc", "num_device_free"),
    *("num_oom_rejections", "num_ooms", "num_sync_all_streams"),
}


def test_the_keys_are_those_of_pytorch() -> None:
    expected = {".".join(key) for key in product(POOLED, ("all", "large_pool", "small_pool"), PARTS)}
    expected |= {f"oversize_{what}.{part}" for what in ("allocations", "segments") for part in PARTS}
    stats = make_allocator().memory_stats()
    assert set(stats) == expected | SINGLE
    assert list(stats) == sorted(stats)
    assert stats["max_split_size"] == -1
    assert make_allocator("max_split_size_mb:30").memory_stats()["max_split_size"] == 30 * MIB


def test_flat_and_nested_say_the_same() -> None:
    allocator = make_allocator()
    allocator.begin_pool((0, 5))
    allocator.malloc(30 * MIB)
    nested, flat = allocator.memory_stats_as_nested_dict(), allocator.memory_stats()
    assert (
        nested["reserved_bytes"]["large_pool"]["peak"] == flat["reserved_bytes.large_pool.peak"] == 30 * MIB
    )
    assert nested["reserved_bytes_by_private_pools"][0, 5]["all"]["current"] == 30 * MIB
    assert flat["reserved_bytes_by_private_pools.0_5.all.current"] == 30 * MIB


def test_requested_bytes_are_what_was_asked_for() -> None:
    allocator = make_allocator()
    address = allocator.malloc(1000)
    allocator.malloc(11 * MIB)
    stats = allocator.memory_stats()
    assert stats["requested_bytes.all.current"] == 1000 + 11 * MIB
    assert stats["allocated_bytes.all.current"] == 1024 + 12 * MIB
    allocator.free(address)
    assert allocator.memory_stats()["requested_bytes.small_pool.freed"] == 1000


def test_memory_that_a_live_neighbour_strands_is_inactive_split() -> None:
    allocator = make_allocator()
    allocator.malloc(4 * MIB)
    stats = allocator.memory_stats()
    assert stats["inactive_split_bytes.all.current"] == 16 * MIB
    assert stats["inactive_split.large_pool.current"] == 1
    whole = allocator.malloc(30 * MIB)
    allocator.free(whole)
    assert allocator.memory_stats()["inactive_split_bytes.all.current"] == 16 * MIB


def test_expandable_segments_strand_nothing_that_is_counted() -> None:
    # pytorch/pytorch#159564: the statistic is not kept for them.
    allocator = make_allocator("expandable_segments:True")
    allocator.malloc(4 * MIB)
    assert allocator.memory_stats()["inactive_split_bytes.all.peak"] == 0


def test_peaks_start_anew_from_the_present() -> None:
    allocator = make_allocator()
    large = allocator.malloc(100 * MIB)
    small = allocator.malloc(100)
    allocator.free(large)
    assert allocator.memory_stats()["allocated_bytes.all.peak"] == 100 * MIB + 512
    allocator.reset_peak_memory_stats()
    stats = allocator.memory_stats()
    assert stats["allocated_bytes.all.peak"] == 512
    assert stats["reserved_bytes.all.peak"] == 102 * MIB
    allocator.empty_cache()
    allocator.reset_peak_memory_stats()
    allocator.free(small)
    assert allocator.memory_stats()["reserved_bytes.all.peak"] == 2 * MIB


def test_sums_start_anew_from_nothing() -> None:
    allocator = make_allocator(capacity=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    keep = allocator.malloc(80 * MIB)
    allocator.reset_accumulated_memory_stats()
    stats = allocator.memory_stats()
    assert stats["num_alloc_retries"] == stats["num_device_alloc"] == 0
    assert stats["allocated_bytes.all.allocated"] == stats["reserved_bytes.all.freed"] == 0
    assert stats["allocated_bytes.all.current"] == 80 * MIB
    allocator.free(keep)
    assert allocator.memory_stats()["allocated_bytes.all.freed"] == 80 * MIB


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([1, 600, 1000 * KIB, 2 * MIB, 9 * MIB]), st.integers(0, 99)),
        max_size=200,
    )
)
def test_no_peak_is_missed_between_readings(calls: list[tuple[bool, int, int]]) -> None:
    """Peaks are looked at seldom; here blocks of very different sizes make counts and bytes peak apart."""
    allocator = make_allocator()
    live: list[tuple[int, int]] = []
    most_bytes = most_blocks = most_small = 0
    for is_malloc, size, which in calls:
        if is_malloc:
            live.append((allocator.malloc(size), size))
        elif live:
            allocator.free(live.pop(which % len(live))[0])
        most_bytes = max(most_bytes, sum(size for _, size in live))
        most_blocks = max(most_blocks, len(live))
        most_small = max(most_small, sum(size <= MIB for _, size in live))
    stats = allocator.memory_stats()
    assert stats["requested_bytes.all.peak"] == most_bytes
    assert stats["allocation.all.peak"] == stats["active.all.peak"] == most_blocks
    assert stats["allocation.small_pool.peak"] == most_small
