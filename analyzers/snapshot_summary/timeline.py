"""Allocated and reserved after every event of a trace, with their times, and what they span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...engine.model.memory_snapshot import BlockState, MemorySnapshot, TraceColumns
from ...engine.model.trace_levels import FinalState, compute_levels
from .model import MemoryLevels, TraceSpan

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .view import DeviceView, IntArray

CURVE_POINTS = 60


@dataclass(frozen=True)
class Timeline:
    """Levels of one device after each event of its trace, in columns of equal length."""

    device: int
    times_s: NDArray[np.float64] | None
    """Seconds since the epoch, never going back; None where the file has no times."""
    allocated_bytes: IntArray
    """Live tensors, as `TraceLevels` counts them."""
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

    is_live = view.state == int(BlockState.ALLOCATED)
    final = FinalState(
        live_address=view.address[is_live],
        live_bytes=view.size_bytes[is_live],
        allocated_bytes=levels.allocated_bytes,
        reserved_bytes=levels.reserved_bytes,
    )
    computed = compute_levels(trace, final)
    time_us = np.asarray(trace.time_us)
    has_times = bool((time_us >= 0).all())
    return Timeline(
        device=trace.device,
        times_s=np.maximum.accumulate(time_us) / 1e6 if has_times else None,
        allocated_bytes=computed.allocated_bytes,
        reserved_bytes=computed.reserved_bytes,
        start_allocated_bytes=computed.start_allocated_bytes,
        start_reserved_bytes=computed.start_reserved_bytes,
    )


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
    level = timeline.start_allocated_bytes
    curve = []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        # What was allocated at the begin of a part was so within it.
        part = timeline.allocated_bytes[begin:end]
        curve.append(max(level, int(part.max())) if len(part) else level)
        level = int(part[-1]) if len(part) else level
    return tuple(curve)
