"""The columns of one device as numpy arrays, which share memory with the snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import msgspec

from ...engine.model.memory_snapshot import BlockState, MemorySnapshot
from ...engine.model.sample import Segment
from ..segments import PAGE_BYTES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    IntArray = NDArray[np.int64]

    BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class DeviceView:
    """Segments and blocks of one device; `segment` of a block is a row in the segments of this view."""

    device: int
    # Rows in the snapshot.
    segment_rows: IntArray
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
    # One entry per segment.
    stranded_bytes: IntArray

    @property
    def is_live(self) -> BoolArray:
        import numpy as np

        return np.not_equal(self.state, int(BlockState.INACTIVE))

    def sum_by_segment(self, weights: IntArray) -> IntArray:
        return sum_by_row(self.segment, weights, len(self.total_bytes))


def sum_by_row(rows: IntArray, weights: IntArray, count: int) -> IntArray:
    """Return sums of integers by row, exact beyond the precision of a float."""
    import numpy as np

    sums = np.zeros(count, dtype=np.int64)
    np.add.at(sums, rows, weights)
    return sums


def view_device(snapshot: MemorySnapshot, device: int) -> DeviceView:
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
    """Return the stranded bytes of every segment, as `segments.find_stranded` does row by row."""
    import numpy as np

    is_free = ~view.is_live
    has_live = np.bincount(view.segment[~is_free], minlength=len(view.total_bytes)) > 0
    page = np.where(view.is_large, PAGE_BYTES["large"], PAGE_BYTES["small"])[view.segment]
    start = (view.address - segment_address[view.segment]).astype(np.int64)
    whole = ((start + view.size_bytes) // page - -(-start // page)) * page
    left = view.size_bytes - np.where(view.is_expandable[view.segment], np.maximum(whole, 0), 0)
    return view.sum_by_segment(np.where(is_free & has_live[view.segment], left, 0))


# Segments as a screen draws them: runs of blocks of one state, with what is live, free and stranded.

SegmentOrder = Literal["address", "size", "stranded"]


class SegmentRow(msgspec.Struct, frozen=True):
    """One segment. Neighbouring blocks of one state are one run of its `blocks`."""

    segment: Segment
    device: int
    pool_id: tuple[int, int]
    active_bytes: int
    # Its largest single free block.
    largest_free_bytes: int
    stranded_bytes: int
    # Blocks before they were joined to runs.
    block_count: int


def map_segments(
    snapshot: MemorySnapshot, device: int, *, order: SegmentOrder = "address", most: int | None = None
) -> tuple[SegmentRow, ...]:
    """Return the segments of a device: by address, or by size or stranded bytes, most first.

    `most` None returns all.
    """
    import numpy as np

    view = view_device(snapshot, device)
    address = np.asarray(snapshot.segments.address)[view.segment_rows]
    keys = {"address": address, "size": -view.total_bytes, "stranded": -view.stranded_bytes}
    chosen = np.argsort(keys[order], kind="stable")[:most]
    bounds = np.searchsorted(view.segment, np.arange(len(view.total_bytes) + 1))
    return tuple(
        _make_row(view, row, int(address[row]), slice(int(bounds[row]), int(bounds[row + 1])))
        for row in chosen.tolist()
    )


def _make_row(view: DeviceView, row: int, address: int, blocks: slice) -> SegmentRow:
    size_bytes = view.size_bytes[blocks]
    state = view.state[blocks]
    is_free = state == int(BlockState.INACTIVE)
    pool_id = int(view.pool_owner[row]), int(view.pool_number[row])
    return SegmentRow(
        segment=Segment(
            address=address,
            total_bytes=int(view.total_bytes[row]),
            pool="large" if view.is_large[row] else "small",
            stream=int(view.stream[row]),
            blocks=join_runs(size_bytes.tolist(), state.tolist()),
            is_expandable=bool(view.is_expandable[row]),
            is_private=pool_id != (0, 0),
        ),
        device=view.device,
        pool_id=pool_id,
        active_bytes=int(size_bytes[~is_free].sum()),
        largest_free_bytes=int(size_bytes[is_free].max()) if bool(is_free.any()) else 0,
        stranded_bytes=int(view.stranded_bytes[row]),
        block_count=len(size_bytes),
    )


def join_runs(sizes: list[int], states: list[int]) -> tuple[tuple[int, int], ...]:
    """Return size in bytes and state of runs: neighbours of one state are joined."""
    runs: list[tuple[int, int]] = []
    for size, state in zip(sizes, states, strict=True):
        if runs and runs[-1][1] == state:
            runs[-1] = runs[-1][0] + size, state
        else:
            runs.append((size, state))
    return tuple(runs)
