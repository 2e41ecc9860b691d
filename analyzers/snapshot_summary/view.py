"""The columns of one device as numpy arrays, which share memory with the snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...engine.model.memory_snapshot import BlockState, MemorySnapshot
from ..segment_summary import PAGE_BYTES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class DeviceView:
    """Segments and blocks of one device; `segment` of a block is a row in the segments of this view."""

    device: int
    segment_rows: IntArray
    """Rows in the snapshot."""
    block_rows: IntArray
    total_bytes: IntArray
    stream: IntArray
    is_large: BoolArray
    pool_owner: IntArray
    pool_number: IntArray
    is_expandable: BoolArray
    address: NDArray[np.uint64]
    size_bytes: IntArray
    requested_bytes: IntArray
    state: IntArray
    stack: IntArray
    segment: IntArray
    stranded_bytes: IntArray
    """Of every segment."""

    @property
    def is_live(self) -> BoolArray:
        """Which blocks are active."""
        import numpy as np

        return np.not_equal(self.state, int(BlockState.INACTIVE))

    def sum_by_segment(self, weights: IntArray) -> IntArray:
        """Return the sum of a figure of the blocks for every segment."""
        return sum_by_row(self.segment, weights, len(self.total_bytes))


def sum_by_row(rows: IntArray, weights: IntArray, count: int) -> IntArray:
    """Return sums of integers by row, exact beyond the precision of a float."""
    import numpy as np

    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, rows, weights)
    return sums


def view_device(snapshot: MemorySnapshot, device: int) -> DeviceView:
    """Return the view of one device."""
    import numpy as np

    segments = snapshot.segments
    blocks = snapshot.blocks
    segment_rows = np.flatnonzero(np.asarray(segments.device) == device)
    counts = np.diff(np.asarray(segments.first_block))
    owners = np.repeat(np.arange(len(segments)), counts)
    block_rows = np.flatnonzero(np.asarray(segments.device)[owners] == device)
    local = np.zeros(len(segments), dtype=np.int64)
    local[segment_rows] = np.arange(len(segment_rows))
    view = DeviceView(
        device=device,
        segment_rows=segment_rows,
        block_rows=block_rows,
        total_bytes=np.asarray(segments.total_bytes)[segment_rows],
        stream=np.asarray(segments.stream)[segment_rows],
        is_large=np.asarray(segments.is_large, dtype=bool)[segment_rows],
        pool_owner=np.asarray(segments.pool_owner)[segment_rows],
        pool_number=np.asarray(segments.pool_number)[segment_rows],
        is_expandable=np.asarray(segments.is_expandable, dtype=bool)[segment_rows],
        address=np.asarray(blocks.address)[block_rows],
        size_bytes=np.asarray(blocks.size_bytes)[block_rows],
        requested_bytes=np.asarray(blocks.requested_bytes)[block_rows],
        state=np.asarray(blocks.state, dtype=np.int64)[block_rows],
        stack=np.asarray(blocks.stack, dtype=np.int64)[block_rows],
        segment=local[owners[block_rows]],
        stranded_bytes=np.zeros(len(segment_rows), dtype=np.int64),
    )
    segment_address = np.asarray(segments.address)[segment_rows]
    return replace(view, stranded_bytes=_find_stranded(view, segment_address))


def _find_stranded(view: DeviceView, segment_address: NDArray[np.uint64]) -> IntArray:
    """Return the stranded bytes of every segment, as `segment_summary.find_stranded` does row by row."""
    import numpy as np

    is_free = ~view.is_live
    has_live = np.bincount(view.segment[~is_free], minlength=len(view.total_bytes)) > 0
    page = np.where(view.is_large, PAGE_BYTES["large"], PAGE_BYTES["small"])[view.segment]
    start = (view.address - segment_address[view.segment]).astype(np.int64)
    whole = ((start + view.size_bytes) // page - -(-start // page)) * page
    left = view.size_bytes - np.where(view.is_expandable[view.segment], np.maximum(whole, 0), 0)
    return view.sum_by_segment(np.where(is_free & has_live[view.segment], left, 0))
