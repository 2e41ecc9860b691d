"""A snapshot summed up: levels, stacks, segments, fragmentation, what failed, and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...engine.model.memory_snapshot import (
    BlockState,
    Frame,
    MemorySnapshot,
    StackTable,
    TraceAction,
    TraceColumns,
    round_up,
)
from ...engine.units import GIB, MIB, TIB, format_bytes, format_gib, format_share
from ..segments import find_headline, keep_python
from .lifetimes import follow_blocks
from .model import (
    DeviceSummary,
    FailedRequest,
    FullnessBand,
    MemoryLevels,
    PoolFragmentation,
    RequestFit,
    SnapshotSummary,
    StackGroup,
    Timeline,
    TraceSpan,
    build_timeline,
    find_trace,
    measure_span,
)
from .view import DeviceView, view_device

if TYPE_CHECKING:
    from .view import IntArray


# Live blocks by the Python stack that allocated them.


class StackGrouper:
    def __init__(self, stacks: StackTable) -> None:
        self._stacks = stacks
        self._groups: dict[tuple[Frame, ...], int] = {}
        # None where no frame of a stack says who asked for the memory, as without a stack.
        self._group_of: list[int | None] = []
        for stack in range(len(stacks)):
            frames = keep_python(stacks.frames_of(stack))
            group = self._groups.setdefault(frames, len(self._groups)) if frames else None
            self._group_of.append(group)

    def group(self, stack: IntArray, size_bytes: IntArray, most: int) -> tuple[tuple[StackGroup, ...], int]:
        """Return the largest groups of some blocks, and how many there are; a stack below 0 stands
        for none.
        """
        import numpy as np

        if not len(stack):
            return (), 0
        # One more group, the last, holds the blocks without a stack.
        without = len(self._groups)
        table = np.array([without if it is None else it for it in (*self._group_of, None)], dtype=np.int64)
        group = table[stack]
        sums = np.zeros(without + 1, dtype=np.int64)
        np.add.at(sums, group, size_bytes)
        counts = np.bincount(group, minlength=len(sums))
        order = np.lexsort((np.arange(len(sums)), -sums))
        present = [row for row in order.tolist() if counts[row]]
        keys = [*self._groups, ()]
        total = max(int(sums.sum()), 1)
        largest = tuple(
            make_group(keys[row], int(sums[row]), int(counts[row]), int(sums[row]) / total)
            for row in present[:most]
        )
        return largest, len(present)

    def describe(self, stack: int, size_bytes: int) -> StackGroup:
        return make_group(keep_python(self._stacks.frames_of(stack)), size_bytes, 1, 1.0)


def make_group(frames: tuple[Frame, ...], size_bytes: int, count: int, share: float) -> StackGroup:
    return StackGroup(
        size_bytes=size_bytes, count=count, share=share, headline=find_headline(frames), frames=frames
    )


MOST_STACKS = 20


def summarize_snapshot(snapshot: MemorySnapshot, *, top: int = MOST_STACKS) -> SnapshotSummary:
    """Summarize a snapshot, with the `top` groups of stacks of each device."""
    grouper = StackGrouper(snapshot.stacks)
    return SnapshotSummary(
        file=snapshot.path.name if snapshot.path is not None else "",
        devices=tuple(_summarize_device(snapshot, device, grouper, top) for device in snapshot.devices),
        simulated=snapshot.simulated,
        settings=snapshot.settings,
        notes=snapshot.notes,
    )


def _summarize_device(
    snapshot: MemorySnapshot, device: int, grouper: StackGrouper, top: int
) -> DeviceSummary:
    view = view_device(snapshot, device)
    levels = measure_levels(view)
    stacks, groups = grouper.group(view.stack[view.is_live], view.size_bytes[view.is_live], top)
    trace = find_trace(snapshot, device)
    requests = judge_requests(view, trace)
    failures, omitted, span = _look_back(trace, view, levels, grouper)
    return DeviceSummary(
        device=device,
        levels=levels,
        sentences=describe_device(levels, stacks, requests, failures),
        stacks=stacks,
        stack_groups=groups,
        fullness=band_segments(view),
        pools=measure_pools(view),
        requests=requests,
        failures=failures,
        failures_omitted=omitted,
        trace=span,
    )


def _look_back(
    trace: TraceColumns | None, view: DeviceView, levels: MemoryLevels, grouper: StackGrouper
) -> tuple[tuple[FailedRequest, ...], int, TraceSpan | None]:
    """Return the newest failed requests, how many older ones there are, and the span of the trace."""
    if trace is None:
        return (), 0, None
    timeline = build_timeline(trace, view, levels)
    failures, omitted = describe_failures(trace, timeline, view, grouper)
    return failures, omitted, measure_span(trace, timeline)


def trace_levels(snapshot: MemorySnapshot, device: int) -> Timeline | None:
    """Return the levels of a device over time, None where the snapshot has no events of it."""
    trace = find_trace(snapshot, device)
    if trace is None:
        return None
    view = view_device(snapshot, device)
    return build_timeline(trace, view, measure_levels(view))


MOST_SIZES = 8
# Requests up to this are served from segments of the small pool (`kSmallSize`).
SMALL_BYTES = MIB
_SMALL_SEGMENT_BYTES = 2 * MIB
_LARGE_SEGMENT_BYTES = 20 * MIB
# From this on a request gets a segment of its own size, rounded up to 2 MiB (`kMinLargeAlloc`).
_LEAST_OWN_SEGMENT_BYTES = 10 * MIB


def judge_requests(view: DeviceView, trace: TraceColumns | None) -> tuple[RequestFit, ...]:
    """Return the sizes that matter most by bytes times count, and how many more of each would fit.

    A request is served only from its own stream and pool; private pools serve nobody else. Sizes are of the
    trace, or, without one, of the live blocks.
    """
    import numpy as np

    sizes, streams = _list_requests(view, trace)
    if not len(sizes):
        return ()
    unique, counts = np.unique(np.stack([round_up(sizes), streams], axis=1), axis=0, return_counts=True)
    order = np.argsort(-(unique[:, 0] * counts), kind="stable")[:MOST_SIZES]
    return tuple(
        _judge(view, size_bytes=size, stream=stream, count=int(counts[row]))
        for row, (size, stream) in zip(order.tolist(), unique[order].tolist(), strict=True)
    )


def find_segment_size(size_bytes: int) -> int:
    """Return the size of the segment that a request would need, rounded as the caching allocator does.

    Expandable segments grow by pages instead.
    """
    if size_bytes <= SMALL_BYTES:
        return _SMALL_SEGMENT_BYTES
    if size_bytes < _LEAST_OWN_SEGMENT_BYTES:
        return _LARGE_SEGMENT_BYTES
    return -(-size_bytes // _SMALL_SEGMENT_BYTES) * _SMALL_SEGMENT_BYTES


def _list_requests(view: DeviceView, trace: TraceColumns | None) -> tuple[IntArray, IntArray]:
    import numpy as np

    if trace is not None:
        chosen = np.flatnonzero(np.asarray(trace.action) == int(TraceAction.ALLOC))
        if len(chosen):
            return np.asarray(trace.size_bytes)[chosen], np.asarray(trace.stream)[chosen]
    is_known = view.is_live & (view.requested_bytes > 0)
    return view.requested_bytes[is_known], view.stream[view.segment[is_known]]


def _judge(view: DeviceView, *, size_bytes: int, stream: int, count: int) -> RequestFit:
    import numpy as np

    is_default = (view.pool_owner == 0) & (view.pool_number == 0)
    of_pool = is_default & (view.stream == stream) & (view.is_large == (size_bytes > SMALL_BYTES))
    is_free = np.equal(view.state, int(BlockState.INACTIVE)) & of_pool[view.segment]
    return RequestFit(
        size_bytes=size_bytes,
        count=count,
        stream=stream,
        servable=int((view.size_bytes[is_free] // size_bytes).sum()),
        new_segment_bytes=find_segment_size(size_bytes),
    )


MOST_FAILURES = 5
MOST_LIVE_STACKS = 10


def describe_failures(
    trace: TraceColumns, timeline: Timeline, view: DeviceView, grouper: StackGrouper
) -> tuple[tuple[FailedRequest, ...], int]:
    """Return the newest out-of-memory events, newest first, and how many older ones there are."""
    import numpy as np

    events = np.flatnonzero(np.asarray(trace.action) == int(TraceAction.OOM)).tolist()
    newest = events[: -MOST_FAILURES - 1 : -1]
    failures = []
    if not newest:
        return (), 0
    blocks = follow_blocks(trace, view)
    for event in newest:
        rows = blocks.find_live(event)
        live, _ = grouper.group(blocks.stack[rows], blocks.size_bytes[rows], MOST_LIVE_STACKS)
        failures.append(
            FailedRequest(
                time_s=None if timeline.times_s is None else float(timeline.times_s[event]),
                size_bytes=trace.size_bytes[event],
                device_free_bytes=trace.address[event],
                allocated_bytes=int(timeline.allocated_bytes[event]),
                reserved_bytes=int(timeline.reserved_bytes[event]),
                stack=grouper.describe(trace.stack[event], trace.size_bytes[event]),
                live=live,
            )
        )
    return tuple(failures), len(events) - len(newest)


_BAND_LABELS = ("empty", "under 25 %", "25 to 50 %", "50 to 75 %", "75 % and more", "full")


def measure_levels(view: DeviceView) -> MemoryLevels:
    import numpy as np

    is_live = view.is_live
    reserved_bytes = int(view.total_bytes.sum())
    active_bytes = int(view.size_bytes[is_live].sum())
    free = view.size_bytes[~is_live]
    requested = view.requested_bytes[is_live]
    requested_bytes = int(requested.sum()) if bool((requested >= 0).all()) else None
    stranded_bytes = int(view.stranded_bytes.sum())
    return MemoryLevels(
        reserved_bytes=reserved_bytes,
        allocated_bytes=int(view.size_bytes[view.state == BlockState.ALLOCATED].sum()),
        active_bytes=active_bytes,
        requested_bytes=requested_bytes,
        internal_bytes=None if requested_bytes is None else active_bytes - requested_bytes,
        free_bytes=int(free.sum()),
        largest_free_bytes=int(free.max()) if len(free) else 0,
        stranded_bytes=stranded_bytes,
        stranded_segments=int(np.count_nonzero(view.stranded_bytes)),
        releasable_bytes=int(free.sum()) - stranded_bytes,
        segments=len(view.total_bytes),
        expandable_segments=int(np.count_nonzero(view.is_expandable)),
        blocks=len(view.size_bytes),
        live_blocks=int(np.count_nonzero(is_live)),
    )


def band_segments(view: DeviceView) -> tuple[FullnessBand, ...]:
    """Count segments by how full they are, from empty to full; bands without segments are left out."""
    import numpy as np

    live_bytes = view.sum_by_segment(np.where(view.is_live, view.size_bytes, 0))
    total_bytes = view.total_bytes
    quarter = 4 * live_bytes // np.maximum(total_bytes, 1)
    band = np.clip(quarter, 0, 3) + 1
    band[live_bytes == 0] = 0
    band[(live_bytes >= total_bytes) & (live_bytes > 0)] = 5
    return tuple(
        FullnessBand(
            label=label,
            segments=int(np.count_nonzero(band == number)),
            total_bytes=int(total_bytes[band == number].sum()),
            free_bytes=int((total_bytes - live_bytes)[band == number].sum()),
        )
        for number, label in enumerate(_BAND_LABELS)
        if bool((band == number).any())
    )


def measure_pools(view: DeviceView) -> tuple[PoolFragmentation, ...]:
    """Return the fragmentation of every pool and stream, most free bytes first.

    External fragmentation is 1 - largest free block / free bytes: 0 where all that is free is one block.
    """
    import numpy as np

    keys = np.stack([view.pool_owner, view.pool_number, view.stream, view.is_large.astype(np.int64)], axis=1)
    if not len(keys):
        return ()
    unique, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.reshape(-1)
    is_free = ~view.is_live
    of_block = group[view.segment]
    largest = np.zeros(len(unique), dtype=np.int64)
    np.maximum.at(largest, of_block[is_free], view.size_bytes[is_free])
    pools = []
    for number, (owner, pool, stream, is_large) in enumerate(unique.tolist()):
        of_pool = group == number
        free_bytes = int(view.size_bytes[is_free & (of_block == number)].sum())
        pools.append(
            PoolFragmentation(
                pool_id=(owner, pool),
                stream=stream,
                kind="large" if is_large else "small",
                reserved_bytes=int(view.total_bytes[of_pool].sum()),
                free_bytes=free_bytes,
                largest_free_bytes=int(largest[number]),
                stranded_bytes=int(view.stranded_bytes[of_pool].sum()),
                external_fragmentation=1 - int(largest[number]) / free_bytes if free_bytes else None,
            )
        )
    return tuple(sorted(pools, key=lambda pool: (-pool.free_bytes, pool.pool_id, pool.stream, pool.kind)))


_NOTABLE_PERCENT = 1


def describe_device(
    levels: MemoryLevels,
    stacks: Sequence[StackGroup],
    requests: Sequence[RequestFit],
    failures: Sequence[FailedRequest],
) -> tuple[str, ...]:
    """Return the sentences of one device, the most important first."""
    return (
        *(_describe_failure(failure) for failure in failures[:1]),
        _describe_levels(levels),
        *_describe_rest(levels),
        *_describe_requests(requests),
        *_describe_largest(stacks),
    )


def _describe_failure(failure: FailedRequest) -> str:
    allocated = format_bytes(failure.allocated_bytes)
    reserved = format_bytes(failure.reserved_bytes)
    return (
        f"a request of {format_bytes(failure.size_bytes)} failed while {allocated} were allocated, "
        f"{reserved} reserved, and the driver had {format_bytes(failure.device_free_bytes)} free"
    )


def _describe_levels(levels: MemoryLevels) -> str:
    if not levels.reserved_bytes:
        return "nothing was reserved"
    parts = [f"{_pair(levels.active_bytes, levels.reserved_bytes)} reserved are live"]
    if levels.stranded_bytes:
        noun = "segment" if levels.stranded_segments == 1 else "segments"
        verb = "is" if levels.stranded_bytes in (MIB, GIB) else "are"
        parts.append(
            f"{format_bytes(levels.stranded_bytes)} {verb} stranded in {levels.stranded_segments:,} {noun}"
        )
    if levels.free_bytes:
        beyond = format_bytes(next_round_size(levels.largest_free_bytes))
        need = "more pages from the driver" if levels.expandable_segments else "a new segment"
        parts.append(
            f"the largest free block is {format_bytes(levels.largest_free_bytes)}, so a request of {beyond} "
            f"would need {need}"
        )
    return "; ".join(parts)


def _pair(part_bytes: int, whole_bytes: int) -> str:
    """Return `31.2 of 33.0 GiB`, both in the unit of the whole."""
    if GIB <= whole_bytes < TIB:
        return f"{format_gib(part_bytes)} of {format_gib(whole_bytes)} GiB"
    return f"{format_bytes(part_bytes)} of {format_bytes(whole_bytes)}"


def next_round_size(size_bytes: int) -> int:
    """Return the least power of two that is larger than a size, and that looks larger when formatted."""
    larger = 1 << size_bytes.bit_length()
    return larger if format_bytes(larger) != format_bytes(size_bytes) else 2 * larger


def show_share(share: float) -> str:
    """Format a share in percent, with as many places as a small one needs."""
    return format_share(share) if share >= 0.1 else format_share(share, 1)


def _describe_rest(levels: MemoryLevels) -> Iterator[str]:
    notable_bytes = levels.reserved_bytes * _NOTABLE_PERCENT // 100
    if levels.releasable_bytes > notable_bytes:
        yield (
            f"{format_bytes(levels.releasable_bytes)} are cached in whole segments or pages that "
            "torch.cuda.empty_cache() would free"
        )
    if levels.internal_bytes is not None and levels.internal_bytes > notable_bytes:
        yield (
            f"{format_bytes(levels.internal_bytes)} of the live bytes were not requested: rounding, "
            "and remainders too small to split off"
        )
    waiting_bytes = levels.active_bytes - levels.allocated_bytes
    if waiting_bytes > notable_bytes:
        yield (
            f"{format_bytes(waiting_bytes)} are freed but wait for another stream (record_stream); "
            "they cannot be used before that stream has caught up"
        )


def _describe_requests(requests: Sequence[RequestFit]) -> Iterator[str]:
    unservable = [request for request in requests if not request.servable]
    if unservable:
        largest = max(unservable, key=lambda request: request.size_bytes)
        yield (
            f"of the {len(requests)} sizes that the job requests most, {len(unservable)} would need a "
            f"new segment now; the largest of them is {format_bytes(largest.size_bytes)}"
        )


def _describe_largest(stacks: Sequence[StackGroup]) -> Iterator[str]:
    named = next((group for group in stacks if group.headline is not None), None)
    unnamed = next((group for group in stacks if group.headline is None), None)
    if named is not None and named.headline is not None:
        place = f"{named.headline.name} at {named.headline.filename}:{named.headline.line}"
        yield f"{_count_share(named)} come from {place}"
        if unnamed is not None and unnamed.size_bytes > named.size_bytes:
            yield f"{_count_share(unnamed)} have no stack: they were allocated before recording started"
    elif unnamed is not None:
        yield (
            "no stacks were recorded: call torch.cuda.memory._record_memory_history() at the start of "
            "the program to see which lines allocated the memory"
        )


def _count_share(group: StackGroup) -> str:
    noun = "block" if group.count == 1 else "blocks"
    return (
        f"{show_share(group.share)} of the live bytes ({format_bytes(group.size_bytes)} in "
        f"{group.count:,} {noun})"
    )
