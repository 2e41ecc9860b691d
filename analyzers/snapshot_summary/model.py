"""Summary of a memory snapshot, as it is printed and as JSON (`vramscope.snapshot/1`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from ...engine.model.memory_snapshot import (
    BlockState,
    FinalState,
    Frame,
    MemorySnapshot,
    SimulatedCard,
    TraceColumns,
    compute_levels,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .view import DeviceView, IntArray


SCHEMA = "vramscope.snapshot/1"


class MemoryLevels(msgspec.Struct, frozen=True):
    """The bytes of one device when the snapshot was made."""

    reserved_bytes: int
    """All segments."""
    allocated_bytes: int
    """Blocks given to tensors, rounded as `torch.cuda.memory_allocated` counts them."""
    active_bytes: int
    """Allocated, and freed blocks that another stream may still use."""
    requested_bytes: int | None
    """Requested bytes of the active blocks; None where the file lacks some."""
    internal_bytes: int | None
    """Active less requested: lost to rounding and to remainders that were not split off."""
    free_bytes: int
    """Inactive blocks: reserved, and free for requests that fit."""
    largest_free_bytes: int
    stranded_bytes: int
    """Free, but in segments with live blocks, so that the driver cannot have it back; in
    expandable segments only what is left outside whole pages (2 MiB in the small pool, 20 MiB in the large
    one), which can be unmapped.
    """
    stranded_segments: int
    releasable_bytes: int
    """Free and not stranded: what `torch.cuda.empty_cache` would give back."""
    segments: int
    expandable_segments: int
    """Those that can grow; one of them is one contiguous mapped range."""
    blocks: int
    live_blocks: int


class StackGroup(msgspec.Struct, frozen=True):
    size_bytes: int
    count: int
    # Share of all live bytes, from 0 to 1.
    share: float
    # The innermost frame outside PyTorch's own files; else the innermost; None without recorded history.
    headline: Frame | None
    # The Python frames, innermost first.
    frames: tuple[Frame, ...]


class FullnessBand(msgspec.Struct, frozen=True):
    """The segments that are about equally full."""

    label: str
    segments: int
    total_bytes: int
    free_bytes: int


class PoolFragmentation(msgspec.Struct, frozen=True):
    """Free memory of one pool and stream; a request is served only from its own."""

    # (0, 0) is the default pool, any other a private one, such as that of a CUDA graph.
    pool_id: tuple[int, int]
    stream: int
    # Blocks above 1 MiB are `large`.
    kind: Literal["large", "small"]
    reserved_bytes: int
    free_bytes: int
    largest_free_bytes: int
    stranded_bytes: int
    # 1 - largest free block / all free bytes; None without free bytes.
    external_fragmentation: float | None


class RequestFit(msgspec.Struct, frozen=True):
    """Whether a size that the job asks for often can be served from the free blocks."""

    # Rounded up to 512 B.
    size_bytes: int
    # How often it was asked for in the trace; without a trace, how many live blocks have it.
    count: int
    stream: int
    # How many more such requests the free blocks of its stream hold; private pools are not counted.
    servable: int
    # Device memory needed for one more that is not servable (unless expandable).
    new_segment_bytes: int


class FailedRequest(msgspec.Struct, frozen=True):
    """An out-of-memory event of the trace."""

    # Seconds since the epoch.
    time_s: float | None
    size_bytes: int
    # Free, according to the driver.
    device_free_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    # Where the request was made; its size and count are those of the request.
    stack: StackGroup
    # What was live at that moment, the largest first.
    live: tuple[StackGroup, ...]


class TraceSpan(msgspec.Struct, frozen=True):
    """What the trace of a device covers."""

    events: int
    duration_s: float | None
    # Whether older events were dropped; None where the file does not say.
    is_overflowed: bool | None
    # Allocated before the first event, computed backwards from the final state.
    start_allocated_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    # When the peak of allocated was, in seconds after the first event.
    peak_after_s: float | None
    # Most allocated in equal parts of the time, for a small graph.
    allocated_curve: tuple[int, ...]


class DeviceSummary(msgspec.Struct, frozen=True):
    device: int
    levels: MemoryLevels
    # Sentences for people, the most important first.
    sentences: tuple[str, ...]
    # Live blocks by stack, the largest first; as many as were asked for.
    stacks: tuple[StackGroup, ...]
    # How many groups there are.
    stack_groups: int
    fullness: tuple[FullnessBand, ...]
    pools: tuple[PoolFragmentation, ...]
    requests: tuple[RequestFit, ...] = ()
    # The newest first.
    failures: tuple[FailedRequest, ...] = ()
    failures_omitted: int = 0
    trace: TraceSpan | None = None


class SnapshotSummary(msgspec.Struct, frozen=True, kw_only=True):
    schema: Literal["vramscope.snapshot/1"] = "vramscope.snapshot/1"
    file: str
    devices: tuple[DeviceSummary, ...]
    # The card that was modelled; None for a snapshot of a real one.
    simulated: SimulatedCard | None = None
    settings: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


# Allocated and reserved after every event of a trace, with their times and their range.

CURVE_POINTS = 60


@dataclass(frozen=True)
class Timeline:
    """Levels of one device after each event of its trace, in columns of equal length."""

    device: int
    # Seconds since the epoch, never going back; None where the file has no times.
    times_s: NDArray[np.float64] | None
    # Live tensors, as `TraceLevels` counts them.
    allocated_bytes: IntArray
    reserved_bytes: IntArray
    start_allocated_bytes: int
    start_reserved_bytes: int

    def __len__(self) -> int:
        return len(self.allocated_bytes)


def find_trace(snapshot: MemorySnapshot, device: int) -> TraceColumns | None:
    return next((trace for trace in snapshot.traces if trace.device == device), None)


def build_timeline(trace: TraceColumns, view: DeviceView, levels: MemoryLevels) -> Timeline:
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
        # What was allocated at the beginning of a part counts within it.
        part = timeline.allocated_bytes[begin:end]
        curve.append(max(level, int(part.max())) if len(part) else level)
        level = int(part[-1]) if len(part) else level
    return tuple(curve)
