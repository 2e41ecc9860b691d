"""Allocators on cards of known size, for tests that work out by hand what must happen."""

from vramscope.analyzers.allocator_model import AllocatorSettings, CachingAllocator, PrivateDeviceMemory

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def make_allocator(settings: str = "", capacity: int = 10 * GIB) -> CachingAllocator:
    """Return an allocator that has a card to itself."""
    return CachingAllocator(PrivateDeviceMemory(capacity), AllocatorSettings.parse(settings))


def list_blocks(allocator: CachingAllocator) -> list[tuple[int, str]]:
    """Return size and state of all blocks, in order of address."""
    return [
        (block["size"], block["state"])
        for segment in allocator.memory_snapshot()
        for block in segment["blocks"]
    ]


def list_segments(allocator: CachingAllocator) -> list[int]:
    """Return the sizes of the segments, in order of address."""
    return [segment["total_size"] for segment in allocator.memory_snapshot()]
