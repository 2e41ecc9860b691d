"""Snapshots and traces, in PyTorch's schema."""

import pytest

from vramscope.analyzers.allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
)

from .cards import MIB, make_allocator

FRAME = {"filename": "train.py", "line": 12, "name": "forward"}


def record(settings: str = "", capacity: int = 200 * MIB, entries: int = 1000) -> CachingAllocator:
    """Return an allocator that records, with a clock that counts."""
    times = iter(range(1_000_000))
    card = PrivateDeviceMemory(capacity)
    allocator = CachingAllocator(card, AllocatorSettings.parse(settings), clock_us=lambda: next(times))
    allocator.record_history(entries, lambda: [FRAME])
    return allocator


def list_actions(allocator: CachingAllocator) -> list[tuple[str, int]]:
    return [(entry["action"], entry["size"]) for entry in allocator.snapshot()["device_traces"][0]]


def test_a_segment_has_every_field_of_pytorch() -> None:
    allocator = make_allocator()
    address = allocator.malloc(1000, stream=4)
    allocator.malloc(2000, stream=4)
    allocator.free(address)
    assert allocator.memory_snapshot() == [
        {
            "device": 0,
            "address": address,
            "total_size": 2 * MIB,
            "allocated_size": 2048,
            "active_size": 2048,
            "requested_size": 2000,
            "stream": 4,
            "segment_type": "small",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": [
                {"address": address, "size": 1024, "requested_size": 0, "state": "inactive", "frames": []},
                {
                    "address": address + 1024,
                    "size": 2048,
                    "requested_size": 2000,
                    "state": "active_allocated",
                    "frames": [],
                },
                {
                    "address": address + 3072,
                    "size": 2 * MIB - 3072,
                    "requested_size": 0,
                    "state": "inactive",
                    "frames": [],
                },
            ],
        }
    ]


def test_each_mapped_range_of_an_expandable_segment_is_one_segment() -> None:
    allocator = make_allocator("expandable_segments:True")
    first, middle, last = (allocator.malloc(20 * MIB) for _ in range(3))
    allocator.free(middle)
    allocator.empty_cache()
    segments = allocator.memory_snapshot()
    assert [(s["address"], s["total_size"], s["is_expandable"]) for s in segments] == [
        (first, 20 * MIB, True),
        (last, 20 * MIB, True),
    ]


def test_everything_that_happens_is_recorded() -> None:
    allocator = record()
    address = allocator.malloc(1000)
    allocator.record_stream(address, 9)
    allocator.free(address)
    allocator.free(allocator.malloc(30 * MIB))
    allocator.synchronize()
    allocator.malloc(190 * MIB)
    with pytest.raises(AllocatorOutOfMemoryError):
        allocator.malloc(20 * MIB)
    assert list_actions(allocator) == [
        ("segment_alloc", 2 * MIB),
        ("alloc", 1000),
        ("free_requested", 1000),
        ("segment_alloc", 30 * MIB),
        ("alloc", 30 * MIB),
        ("free_requested", 30 * MIB),
        ("free_completed", 30 * MIB),
        ("free_completed", 1000),
        ("segment_free", 30 * MIB),
        ("segment_free", 2 * MIB),
        ("segment_alloc", 190 * MIB),
        ("alloc", 190 * MIB),
        ("oom", 20 * MIB),
        ("snapshot", 190 * MIB),
    ]


def test_mapping_and_unmapping_are_recorded() -> None:
    allocator = record("expandable_segments:True")
    allocator.free(allocator.malloc(30 * MIB))
    allocator.empty_cache()
    assert list_actions(allocator)[:-1] == [
        ("segment_map", 40 * MIB),
        ("alloc", 30 * MIB),
        ("free_requested", 30 * MIB),
        ("free_completed", 30 * MIB),
        ("segment_unmap", 40 * MIB),
    ]


def test_entries_say_where_when_and_who() -> None:
    allocator = record(capacity=20 * MIB)
    address = allocator.malloc(5 * MIB, stream=2)
    with pytest.raises(AllocatorOutOfMemoryError):
        allocator.malloc(50 * MIB)
    segment, alloc, oom, *_ = allocator.snapshot()["device_traces"][0]
    common = {"stream": 2, "pool_id": (0, 0), "frames": [FRAME]}
    assert segment == {"action": "segment_alloc", "addr": address, "size": 20 * MIB, "time_us": 0, **common}
    assert alloc == {"action": "alloc", "addr": address, "size": 5 * MIB, "time_us": 1, **common}
    assert (oom["device_free"], oom["size"], oom["frames"]) == (0, 50 * MIB, [FRAME])
    block = allocator.memory_snapshot()[0]["blocks"][0]
    assert block["frames"] == [FRAME]


def test_only_the_newest_entries_are_kept() -> None:
    allocator = record(entries=4)
    for _ in range(10):
        allocator.free(allocator.malloc(1000))
    assert [action for action, _ in list_actions(allocator)] == [
        *("alloc", "free_requested", "free_completed", "snapshot")
    ]


def test_switched_off_nothing_more_is_recorded_and_frames_of_freed_blocks_go() -> None:
    allocator = record()
    first, second = allocator.malloc(1000), allocator.malloc(1000)
    allocator.record_history(None)
    allocator.free(first)
    third = allocator.malloc(1000)
    snapshot = allocator.snapshot()
    assert snapshot["device_traces"] == [[]]
    frames = {block["address"]: block["frames"] for block in snapshot["segments"][0]["blocks"]}
    assert (frames[second], frames[third]) == ([FRAME], [])


def test_traces_of_a_later_device_stand_at_its_place() -> None:
    allocator = CachingAllocator(PrivateDeviceMemory(MIB << 10), AllocatorSettings(), device=2)
    allocator.record_history(10, None)
    allocator.malloc(1)
    snapshot = allocator.snapshot()
    assert [len(trace) for trace in snapshot["device_traces"]] == [0, 0, 3]
    assert snapshot["segments"][0]["device"] == 2
    assert "frames" not in snapshot["device_traces"][2][0]


def test_the_settings_are_told_as_pytorch_tells_them() -> None:
    text = "max_split_size_mb:40,roundup_power2_divisions:[1:2,2:4,>:8],pinned_num_register_threads:8"
    told = make_allocator(text).snapshot()["allocator_settings"]
    assert told["PYTORCH_CUDA_ALLOC_CONF"] == text
    assert told["max_split_size"] == 40 * MIB
    assert told["pinned_num_register_threads"] == 8
    assert told["roundup_power2_divisions"]["1"] == 2
    assert told["roundup_power2_divisions"]["32768"] == 8
    assert make_allocator().snapshot()["allocator_settings"]["max_split_size"] == -1


def test_pytorchs_own_tools_read_it() -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz", reason="PyTorch is not installed")
    allocator = record()
    small, *_ = [allocator.malloc(size * MIB) for size in (1, 3, 30)]
    allocator.free(small)
    snapshot = allocator.snapshot()
    assert "total_reserved: 52.0MiB\ntotal_allocated: 33.0MiB\n" in viz.segsum(snapshot)
    assert "b = a[0:1.0MiB]\n" in viz.trace(snapshot)
    assert "# free completed for b 1.0MiB\n" in viz.trace(snapshot)
