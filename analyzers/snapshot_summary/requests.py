"""Whether the sizes that a job asks for can be served from what is free: fragmentation that costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engine.model.memory_snapshot import BlockState, TraceAction, TraceColumns
from ...engine.model.trace_levels import round_up
from ...engine.units import MIB
from .model import RequestFit

if TYPE_CHECKING:
    from .view import DeviceView, IntArray

MOST_SIZES = 8
SMALL_BYTES = MIB
"""Requests up to this are served from segments of the small pool (`kSmallSize`)."""
_SMALL_SEGMENT_BYTES = 2 * MIB
_LARGE_SEGMENT_BYTES = 20 * MIB
_LEAST_OWN_SEGMENT_BYTES = 10 * MIB
"""From this on a request gets a segment of its own size, rounded up to 2 MiB (`kMinLargeAlloc`)."""


def judge_requests(view: DeviceView, trace: TraceColumns | None) -> tuple[RequestFit, ...]:
    """Return the sizes that matter most by bytes times count, and how many more of each would fit.

    A request is served only from its own stream and pool; private pools serve nobody else. Sizes are of the
    trace, or, without one, of the live blocks.

    Args:
        view: Blocks of a device.
        trace: Its events, if it has any.
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

    Segments that are expandable grow by pages instead.
    """
    if size_bytes <= SMALL_BYTES:
        return _SMALL_SEGMENT_BYTES
    if size_bytes < _LEAST_OWN_SEGMENT_BYTES:
        return _LARGE_SEGMENT_BYTES
    return -(-size_bytes // _SMALL_SEGMENT_BYTES) * _SMALL_SEGMENT_BYTES


def _list_requests(view: DeviceView, trace: TraceColumns | None) -> tuple[IntArray, IntArray]:
    """Return size and stream of every request that is known."""
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
