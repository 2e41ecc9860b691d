"""A snapshot summed up: levels, stacks, segments, fragmentation, what failed, and sentences."""

from ...engine.model.memory_snapshot import MemorySnapshot
from .levels import band_segments, measure_levels, measure_pools
from .model import DeviceSummary, SnapshotSummary
from .sentences import describe_device
from .stack_groups import StackGrouper
from .view import view_device

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
        settings=snapshot.settings,
        notes=snapshot.notes,
    )


def _summarize_device(
    snapshot: MemorySnapshot, device: int, grouper: StackGrouper, top: int
) -> DeviceSummary:
    view = view_device(snapshot, device)
    levels = measure_levels(view)
    is_live = view.is_live
    stacks, groups = grouper.group(view.stack[is_live], view.size_bytes[is_live], top)
    return DeviceSummary(
        device=device,
        levels=levels,
        sentences=describe_device(levels, stacks, (), ()),
        stacks=stacks,
        stack_groups=groups,
        fullness=band_segments(view),
        pools=measure_pools(view),
    )
