"""Out-of-memory events of a trace, and what was live at each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.model.memory_snapshot import UNMEASURED, BlockState, TraceAction, TraceColumns
from ...engine.model.trace_levels import round_up
from .model import FailedRequest
from .stack_groups import StackGrouper
from .timeline import Timeline

if TYPE_CHECKING:
    from .view import DeviceView, IntArray

MOST_FAILURES = 5
MOST_LIVE_STACKS = 10


def describe_failures(
    trace: TraceColumns, timeline: Timeline, view: DeviceView, grouper: StackGrouper
) -> tuple[tuple[FailedRequest, ...], int]:
    """Return the newest out-of-memory events, newest first, and how many older ones there are.

    Args:
        trace: Events of a device.
        timeline: Its levels after each event.
        view: Its blocks at the end.
        grouper: What puts blocks into groups by stack.
    """
    import numpy as np

    events = np.flatnonzero(np.asarray(trace.action) == int(TraceAction.OOM)).tolist()
    newest = events[: -MOST_FAILURES - 1 : -1]
    failures = []
    for event in newest:
        stack, size_bytes = find_live(trace, event, view)
        live, _ = grouper.group(stack, size_bytes, MOST_LIVE_STACKS)
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


def find_live(trace: TraceColumns, event: int, view: DeviceView) -> tuple[IntArray, IntArray]:
    """Return stack and size in bytes of every block that was live at an event.

    What lives at the end lived then, unless it was allocated since; and what was freed since lived then,
    unless it was allocated since. So the first event at an address after the moment tells.

    Args:
        trace: Events of a device.
        event: Row of the moment.
        view: Blocks of the device at the end.
    """
    import numpy as np

    action, address = np.asarray(trace.action), np.asarray(trace.address)
    is_later = np.zeros(len(trace), dtype=bool)
    is_later[event + 1 :] = True
    is_free = action == int(TraceAction.FREE_REQUESTED)
    is_alloc = action == int(TraceAction.ALLOC)
    later = np.flatnonzero(is_later & (is_free | is_alloc))
    changed, first = np.unique(address[later], return_index=True)
    freed = later[first][is_free[later[first]]]
    stack = np.asarray(trace.stack, dtype=np.int64)[freed]
    stack = _complete_stacks(stack, address[freed], trace, np.flatnonzero(is_alloc & ~is_later))
    remains = (view.state == int(BlockState.ALLOCATED)) & ~np.isin(view.address, changed)
    sizes = round_up(np.asarray(trace.size_bytes)[freed])
    return np.concatenate([view.stack[remains], stack]), np.concatenate([view.size_bytes[remains], sizes])


def _complete_stacks(stack: IntArray, address: IntArray, trace: TraceColumns, allocs: IntArray) -> IntArray:
    """Return the stacks of freed blocks; one that the free does not tell is that of its allocation."""
    import numpy as np

    missing = np.flatnonzero(stack == UNMEASURED)
    if not len(missing) or not len(allocs):
        return stack
    newest = {int(at): row for at, row in zip(np.asarray(trace.address)[allocs], allocs, strict=True)}
    for row in missing.tolist():
        alloc = newest.get(int(address[row]))
        if alloc is not None:
            stack[row] = trace.stack[alloc]
    return stack
