"""A traced step, run again through the model of the caching allocator."""

from typing import Any

import msgspec

from ...allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
)
from ...allocator_model.replay import UNLIMITED_BYTES
from .trace import StepTrace

_MOST_ENTRIES = 1_000_000


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """What a step does to an allocator on a card of some size."""

    allocated_peak_bytes: int
    """Of the last step."""
    reserved_peak_bytes: int
    """Of everything, the making of the model included: what the card must have."""
    retries: int
    """How often the cache was given back and the card asked again."""
    failed_block: int | None = None
    """The block that found no room, where it ended."""


def rehearse(trace: StepTrace, settings: AllocatorSettings, capacity_bytes: int | None = None) -> Rehearsal:
    """Return what a trace does to an allocator.

    Args:
        trace: From the making of the model on.
        settings: Of the allocator.
        capacity_bytes: What the card has for it; None for more than any trace needs.
    """
    player = _Player(trace, settings, capacity_bytes or UNLIMITED_BYTES)
    failed = player.play(0, trace.measured_from)
    before = player.allocator.memory_stats()["reserved_bytes.all.peak"]
    if failed is None:
        player.allocator.reset_peak_memory_stats()
        failed = player.play(trace.measured_from, len(trace.events))
    stats = player.allocator.memory_stats()
    return Rehearsal(
        allocated_peak_bytes=stats["allocated_bytes.all.peak"],
        reserved_peak_bytes=max(before, stats["reserved_bytes.all.peak"]),
        retries=stats["num_alloc_retries"],
        failed_block=failed,
    )


def take_snapshot(trace: StepTrace, settings: AllocatorSettings, event: int) -> dict[str, Any]:
    """Return the memory after an event as a snapshot of PyTorch's, with its history and the user's lines."""
    player = _Player(trace, settings, UNLIMITED_BYTES)
    described = [
        [{"filename": file, "line": line, "name": name} for file, line, name in frames]
        for frames in trace.stack_frames
    ]
    player.allocator.record_history(_MOST_ENTRIES, lambda: described[trace.stacks[player.asking]])
    player.play(0, event + 1)
    return player.allocator.snapshot()


class _Player:
    """Runs the events of a trace."""

    def __init__(self, trace: StepTrace, settings: AllocatorSettings, capacity_bytes: int) -> None:
        self._trace = trace
        self.allocator = CachingAllocator(PrivateDeviceMemory(capacity_bytes), settings)
        self.asking = 0
        """The block that is asked for."""
        self._addresses: dict[int, int] = {}

    def play(self, begin: int, end: int) -> int | None:
        """Run some events; return the block that found no room."""
        allocator = self.allocator
        addresses = self._addresses
        sizes = self._trace.sizes
        for event in self._trace.events[begin:end]:
            if event > 0:
                self.asking = event - 1
                try:
                    addresses[event] = allocator.malloc(sizes[event - 1])
                except AllocatorOutOfMemoryError:
                    return event - 1
            elif event < 0:
                allocator.free(addresses.pop(-event))
            else:
                allocator.empty_cache()
        return None
