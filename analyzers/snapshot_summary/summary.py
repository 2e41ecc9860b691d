"""A snapshot summed up: levels, stacks, segments, fragmentation, what failed, and sentences."""

from ...engine.model.memory_snapshot import MemorySnapshot, TraceColumns
from .failures import describe_failures
from .levels import band_segments, measure_levels, measure_pools
from .model import DeviceSummary, FailedRequest, MemoryLevels, SnapshotSummary, TraceSpan
from .requests import judge_requests
from .sentences import describe_device
from .stack_groups import StackGrouper
from .timeline import Timeline, build_timeline, find_trace, measure_span
from .view import DeviceView, view_device

MOST_STACKS = 20


def summarize_snapshot(snapshot: MemorySnapshot, *, top: int = MOST_STACKS) -> SnapshotSummary:
    """Return what a snapshot says.

    Args:
        snapshot: What was read from the file.
        top: Groups of stacks to keep for each device.
    """
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
    """Return the newest failed requests, how many older ones there are, and what the trace covers."""
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
