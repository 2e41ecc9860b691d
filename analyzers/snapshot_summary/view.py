"""The columns of one device as numpy arrays, which share memory with the snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...engine.model.memory_snapshot import BlockState, MemorySnapshot
from ...engine.units import MIB

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]
    BoolArray = NDArray[np.bool_]

PAGE_BYTES = 2 * MIB
"""The least that an expandable segment maps and unmaps (CUDA's granularity)."""


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

    segments, blocks = snapshot.segments, snapshot.blocks
    segment_rows = np.flatnonzero(np.asarray(segments.device) == device)
    counts = np.diff(np.asarray(segments.first_block))
    owners = np.repeat(np.arange(len(segments)), counts)
    block_rows = np.flatnonzero(np.asarray(segments.device)[owners] == device)
    local = np.zeros(len(segments), dtype=np.int64)
    local[segment_rows] = np.arange(len(segment_rows))
    segment = local[owners[block_rows]]
    size_bytes = np.asarray(blocks.size_bytes)[block_rows]
    state = np.asarray(blocks.state, dtype=np.int64)[block_rows]
    is_expandable = np.asarray(segments.is_expandable, dtype=bool)[segment_rows]
    address = np.asarray(blocks.address)[block_rows]
    return DeviceView(
        device=device,
        segment_rows=segment_rows,
        block_rows=block_rows,
        total_bytes=np.asarray(segments.total_bytes)[segment_rows],
        stream=np.asarray(segments.stream)[segment_rows],
        is_large=np.asarray(segments.is_large, dtype=bool)[segment_rows],
        pool_owner=np.asarray(segments.pool_owner)[segment_rows],
        pool_number=np.asarray(segments.pool_number)[segment_rows],
        is_expandable=is_expandable,
        address=address,
        size_bytes=size_bytes,
        requested_bytes=np.asarray(blocks.requested_bytes)[block_rows],
        state=state,
        stack=np.asarray(blocks.stack, dtype=np.int64)[block_rows],
        segment=segment,
        stranded_bytes=_find_stranded(address, size_bytes, state, segment, is_expandable),
    )


def _find_stranded(
    address: NDArray[np.uint64],
    size_bytes: IntArray,
    state: IntArray,
    segment: IntArray,
    is_expandable: BoolArray,
) -> IntArray:
    """Return the stranded bytes of every segment, as defined in `MemoryLevels.stranded_bytes`."""
    import numpy as np

    count = len(is_expandable)
    is_free = state == BlockState.INACTIVE
    has_live = np.bincount(segment[~is_free], minlength=count) > 0
    page = np.uint64(PAGE_BYTES)
    first_page = (address + page - np.uint64(1)) // page
    end_page = (address + size_bytes.astype(np.uint64)) // page
    whole = np.where(end_page > first_page, end_page - first_page, np.uint64(0)) * page
    left = np.where(is_expandable[segment], size_bytes - whole.astype(np.int64), size_bytes)
    return sum_by_row(segment, np.where(is_free & has_live[segment], left, 0), count)
