"""Replays a recorded trace through the model: what would it have reserved, would it have fitted?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .allocator import Statistics
from .blocks import Block
from .heap import RuledHeap
from .memory import PrivateDeviceMemory
from .settings import MIB, AllocatorModelError, AllocatorOutOfMemoryError, AllocatorSettings

# The card of a replay without a capacity: 64 TiB.
UNLIMITED_BYTES = 1 << 46


class TraceError(AllocatorModelError):
    """A trace that allocates a block twice."""


@dataclass(frozen=True)
class ReplayResult:
    """What a trace did to the allocator."""

    # Events replayed; with an out-of-memory error those before it.
    event_count: int

    # Index of the event that found no room, where the replay ended; None when all ran.
    oom_event: int | None

    # Frees of blocks that were allocated before the trace began; they were left out.
    unmatched_frees: int

    peak_allocated_bytes: int
    peak_active_bytes: int
    peak_requested_bytes: int
    peak_reserved_bytes: int
    num_alloc_retries: int
    # All statistics at the end, with PyTorch's keys.
    stats: dict[str, int]


def replay(
    events: Iterable[tuple[int, int]],
    settings: AllocatorSettings | None = None,
    capacity_bytes: int | None = None,
) -> ReplayResult:
    """Run a trace through the model.

    Args:
        events: Pairs of a block's id and its size in bytes: more than 0 allocates it, 0 or less frees it. An
            id may be used again once its block is freed. A list of tuples is fastest.
        settings: The allocator's settings; None for the defaults.
        capacity_bytes: What the card has for this process; None for more than any trace needs.

    Raises:
        TraceError: A block is allocated twice without being freed between.
    """
    memory = PrivateDeviceMemory(UNLIMITED_BYTES if capacity_bytes is None else capacity_bytes)
    heap = RuledHeap(memory, AllocatorSettings() if settings is None else settings)
    index, is_full, unmatched = _run(heap, events)
    stats = read_statistics(heap)
    return ReplayResult(
        event_count=index,
        oom_event=index if is_full else None,
        unmatched_frees=unmatched,
        peak_allocated_bytes=stats["allocated_bytes.all.peak"],
        peak_active_bytes=stats["active_bytes.all.peak"],
        peak_requested_bytes=stats["requested_bytes.all.peak"],
        peak_reserved_bytes=stats["reserved_bytes.all.peak"],
        num_alloc_retries=stats["num_alloc_retries"],
        stats=stats,
    )


def _run(heap: RuledHeap, events: Iterable[tuple[int, int]]) -> tuple[int, bool, int]:
    """Return how many events ran, whether the next one found no room, and how many frees matched nothing."""
    take = heap.take
    give = heap.give
    live: dict[int, Block] = {}
    pop = live.pop
    unmatched = 0
    index = -1
    for index, (block_id, size) in enumerate(events):
        if size > 0:
            if block_id in live:
                raise TraceError(
                    f"event {index} allocates block {block_id}, which is already live; free it first"
                )
            try:
                live[block_id] = take(size, 0)
            except AllocatorOutOfMemoryError:
                return index, True, unmatched
        else:
            block = pop(block_id, None)
            if block is None:
                unmatched += 1
            else:
                give(block)
    return index + 1, False, unmatched


def read_statistics(heap: RuledHeap) -> dict[str, Any]:
    """Return all statistics by now, with PyTorch's keys."""
    heap.peaks.note()
    statistics = Statistics(
        heap.settings,
        heap.small_tally,
        heap.large_tally,
        peaks=heap.peaks,
        counters=heap.supply.counters,
    )
    return statistics.as_flat_dict()


def find_least_capacity(events: Iterable[tuple[int, int]], settings: AllocatorSettings | None = None) -> int:
    """Return the smallest card, in bytes, on which a trace runs without running out of memory.

    The card is found by halving the range between what the trace allocates and what it would reserve on a
    card of any size. Near its edge a trace may by chance fit a smaller card and not a larger one; the answer
    is a card on which it runs, while it does not on one a step smaller. A step is 2 MiB: segments are
    multiples of it.
    """
    trace = list(events)
    step = 2 * MIB
    if settings is not None and settings.large_segment_bytes % step:
        step = MIB
    free = replay(trace, settings)

    def does_fit(capacity_bytes: int) -> bool:
        return replay(trace, settings, capacity_bytes).oom_event is None

    return bisect_capacity(does_fit, free.peak_allocated_bytes, free.peak_reserved_bytes, step)


def bisect_capacity(
    does_fit: Callable[[int], bool], allocated_bytes: int, reserved_bytes: int, step_bytes: int
) -> int:
    """Return the smallest card in bytes, a multiple of a step, for which `does_fit` is true.

    Args:
        does_fit: Whether a job runs on a card of so many bytes.
        allocated_bytes: The most that the job allocates: no smaller card is tried.
        reserved_bytes: What it reserves on a card of any size: a card of so much is known to be enough.
        step_bytes: How exact the answer is.
    """
    too_small = allocated_bytes // step_bytes - 1
    enough = -(-reserved_bytes // step_bytes)
    while enough - too_small > 1:
        middle = (too_small + enough) // 2
        if does_fit(middle * step_bytes):
            enough = middle
        else:
            too_small = middle
    return enough * step_bytes
