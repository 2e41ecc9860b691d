"""Allocated and reserved after every event of a trace, anchored at the end.

A trace is a ring: what was live before its oldest event is not in it. The final state of the segments is, so
the levels are computed backwards from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...engine.model.memory_snapshot import BlockState, MemorySnapshot, TraceAction, TraceColumns
from .model import MemoryLevels, TraceSpan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .view import DeviceView, IntArray

ROUNDING_BYTES = 512
"""Blocks are multiples of this (`kMinBlockSize` of the caching allocator); traces have what was asked for."""
CURVE_POINTS = 60


@dataclass(frozen=True)
class Timeline:
    """Levels of one device after each event of its trace, in columns of equal length."""

    device: int
    times_s: NDArray[np.float64] | None
    """Seconds since the epoch, never going back; None where the file has no times."""
    allocated_bytes: IntArray
    """Live tensors: a block leaves when its tensor dies. A block that was freed since counts with what was
    asked for, rounded up to 512 B, so that the level may lie below the allocator's own figure by the
    remainders (each up to 1 MiB) that were not split off those."""
    reserved_bytes: IntArray
    start_allocated_bytes: int
    start_reserved_bytes: int

    def __len__(self) -> int:
        return len(self.allocated_bytes)


def find_trace(snapshot: MemorySnapshot, device: int) -> TraceColumns | None:
    """Return the events of a device, None where there are none."""
    return next((trace for trace in snapshot.traces if trace.device == device), None)


def build_timeline(trace: TraceColumns, view: DeviceView, levels: MemoryLevels) -> Timeline:
    """Return the levels after each event.

    Args:
        trace: Events of a device.
        view: Its blocks at the end.
        levels: Its final state.
    """
    import numpy as np

    action = np.asarray(trace.action)
    size = np.asarray(trace.size_bytes)
    rounded = _size_blocks(trace, view)
    allocated = np.zeros(len(trace), dtype=np.int64)
    _change(allocated, action, rounded, gains=[TraceAction.ALLOC], losses=[TraceAction.FREE_REQUESTED])
    reserved = np.zeros(len(trace), dtype=np.int64)
    gains = [TraceAction.SEGMENT_ALLOC, TraceAction.SEGMENT_MAP]
    losses = [TraceAction.SEGMENT_FREE, TraceAction.SEGMENT_UNMAP]
    _change(reserved, action, size, gains=gains, losses=losses)
    after_allocated, start_allocated = _anchor(allocated, levels.allocated_bytes)
    after_reserved, start_reserved = _anchor(reserved, levels.reserved_bytes)
    time_us = np.asarray(trace.time_us)
    has_times = bool((time_us >= 0).all())
    return Timeline(
        device=trace.device,
        times_s=np.maximum.accumulate(time_us) / 1e6 if has_times else None,
        allocated_bytes=after_allocated,
        reserved_bytes=after_reserved,
        start_allocated_bytes=start_allocated,
        start_reserved_bytes=start_reserved,
    )


def _size_blocks(trace: TraceColumns, view: DeviceView) -> IntArray:
    """Return the sizes of the blocks of all events: as they are where they still live, else rounded up."""
    import numpy as np

    rounded = round_up(np.asarray(trace.size_bytes))
    action, address = np.asarray(trace.action), np.asarray(trace.address)
    allocs = np.flatnonzero(action == int(TraceAction.ALLOC))[::-1]
    # Seen backwards, the first allocation at the address of a live block is the one that made it.
    addresses, first = np.unique(address[allocs], return_index=True)
    is_live = view.state == int(BlockState.ALLOCATED)
    _, of_alloc, of_block = np.intersect1d(addresses, view.address[is_live], return_indices=True)
    made = allocs[first[of_alloc]]
    rounded[made] = np.maximum(rounded[made], view.size_bytes[is_live][of_block])
    return rounded


def round_up(size_bytes: IntArray) -> IntArray:
    """Return sizes as the allocator rounds them."""
    rounded: IntArray = (size_bytes + (ROUNDING_BYTES - 1)) // ROUNDING_BYTES * ROUNDING_BYTES
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


def measure_span(trace: TraceColumns, timeline: Timeline) -> TraceSpan:
    """Return what a trace covers and where its peaks are."""
    times_s = timeline.times_s
    peak = int(timeline.allocated_bytes.argmax())
    peak_bytes = max(int(timeline.allocated_bytes[peak]), timeline.start_allocated_bytes)
    is_at_start = timeline.start_allocated_bytes >= int(timeline.allocated_bytes[peak])
    peak_after_s = None
    if times_s is not None:
        peak_after_s = 0.0 if is_at_start else float(times_s[peak] - times_s[0])
    return TraceSpan(
        events=len(trace),
        duration_s=None if times_s is None else float(times_s[-1] - times_s[0]),
        is_overflowed=trace.is_overflowed,
        start_allocated_bytes=timeline.start_allocated_bytes,
        peak_allocated_bytes=peak_bytes,
        peak_reserved_bytes=max(int(timeline.reserved_bytes.max()), timeline.start_reserved_bytes),
        peak_after_s=peak_after_s,
        allocated_curve=thin(timeline, CURVE_POINTS),
    )


def thin(timeline: Timeline, points: int) -> tuple[int, ...]:
    """Return the most allocated in equal parts of the time, or of the events where there are no times."""
    import numpy as np

    count = len(timeline)
    axis = np.arange(count, dtype=np.float64) if timeline.times_s is None else timeline.times_s
    edges = np.linspace(axis[0], axis[-1], points + 1)
    bounds = np.searchsorted(axis, edges, side="left")
    bounds[-1] = count
    level, curve = timeline.start_allocated_bytes, []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        # What was allocated at the begin of a part was so within it.
        part = timeline.allocated_bytes[begin:end]
        curve.append(max(level, int(part.max())) if len(part) else level)
        level = int(part[-1]) if len(part) else level
    return tuple(curve)
