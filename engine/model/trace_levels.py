"""Allocated and reserved after every event of an allocation trace, anchored at the end.

A trace is a ring: what was live before its oldest event is not in it. The final state of the segments is, so
the levels are computed backwards from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .memory_snapshot import TraceAction, TraceColumns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]

ROUNDING_BYTES = 512
"""Blocks are multiples of this (`kMinBlockSize` of the caching allocator); traces have what was asked for."""


@dataclass(frozen=True)
class FinalState:
    """A device when its snapshot was taken."""

    live_address: NDArray[np.uint64]
    """Where its allocated blocks are."""
    live_bytes: IntArray
    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True)
class TraceLevels:
    """Levels after each event of a trace, in columns of equal length."""

    allocated_bytes: IntArray
    """Live tensors: a block leaves when its tensor dies. A block that was freed since counts with what was
    asked for, rounded up to 512 B, so that the level may lie below the allocator's own figure by the
    remainders (each up to 1 MiB) that were not split off those."""
    reserved_bytes: IntArray
    start_allocated_bytes: int
    start_reserved_bytes: int


def compute_levels(trace: TraceColumns, final: FinalState) -> TraceLevels:
    """Return the levels after each event.

    Args:
        trace: Events of a device.
        final: What the device was at the end of them.
    """
    import numpy as np

    action = np.asarray(trace.action)
    allocated = np.zeros(len(trace), dtype=np.int64)
    rounded = _size_blocks(trace, final)
    _change(allocated, action, rounded, gains=[TraceAction.ALLOC], losses=[TraceAction.FREE_REQUESTED])
    reserved = np.zeros(len(trace), dtype=np.int64)
    gains = [TraceAction.SEGMENT_ALLOC, TraceAction.SEGMENT_MAP]
    losses = [TraceAction.SEGMENT_FREE, TraceAction.SEGMENT_UNMAP]
    _change(reserved, action, np.asarray(trace.size_bytes), gains=gains, losses=losses)
    after_allocated, start_allocated = _anchor(allocated, final.allocated_bytes)
    after_reserved, start_reserved = _anchor(reserved, final.reserved_bytes)
    return TraceLevels(after_allocated, after_reserved, start_allocated, start_reserved)


def round_up(size_bytes: IntArray) -> IntArray:
    """Return sizes as the allocator rounds them."""
    rounded: IntArray = (size_bytes + (ROUNDING_BYTES - 1)) // ROUNDING_BYTES * ROUNDING_BYTES
    return rounded


def _size_blocks(trace: TraceColumns, final: FinalState) -> IntArray:
    """Return the sizes of the blocks of all events: as they are where they still live, else rounded up."""
    import numpy as np

    rounded = round_up(np.asarray(trace.size_bytes))
    action = np.asarray(trace.action)
    address = np.asarray(trace.address)
    allocs = np.flatnonzero(action == int(TraceAction.ALLOC))[::-1]
    # Seen backwards, the first allocation at the address of a live block is the one that made it.
    addresses, first = np.unique(address[allocs], return_index=True)
    _, of_alloc, of_block = np.intersect1d(addresses, final.live_address, return_indices=True)
    made = allocs[first[of_alloc]]
    rounded[made] = np.maximum(rounded[made], final.live_bytes[of_block])
    return rounded


def _change(
    change: IntArray,
    action: NDArray[np.int8],
    size: IntArray,
    *,
    gains: list[TraceAction],
    losses: list[TraceAction],
) -> None:
    for signs, sign in ((gains, 1), (losses, -1)):
        for code in signs:
            chosen = action == int(code)
            change[chosen] = sign * size[chosen]


def _anchor(change: IntArray, final_bytes: int) -> tuple[IntArray, int]:
    """Return the levels after each change of which the last is given, and the one before the first."""
    import numpy as np

    total = np.cumsum(change)
    start = final_bytes - (int(total[-1]) if len(total) else 0)
    # Remainders that were not split off can make the start a little less than nothing.
    return np.maximum(total + start, 0), max(start, 0)
