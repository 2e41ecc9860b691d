"""Segments as a screen draws them: runs of blocks of one state, with what is live, free and stranded."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...engine.model.memory_snapshot import BlockState, MemorySnapshot
from ...engine.model.segments import Segment
from .view import DeviceView, view_device

SegmentOrder = Literal["address", "size", "stranded"]


class SegmentRow(msgspec.Struct, frozen=True):
    """One segment. Neighbouring blocks of one state are one run of its `blocks`."""

    segment: Segment
    device: int
    pool_id: tuple[int, int]
    active_bytes: int
    largest_free_bytes: int
    """Its largest single free block."""
    stranded_bytes: int
    block_count: int
    """Blocks before they were joined to runs."""


def map_segments(
    snapshot: MemorySnapshot, device: int, *, order: SegmentOrder = "address", most: int | None = None
) -> tuple[SegmentRow, ...]:
    """Return the segments of a device.

    Args:
        snapshot: What was read from the file.
        device: Ordinal of the device.
        order: By address; or by size or stranded bytes, most first.
        most: How many to return; all if None.
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
    """Return size in bytes and state of runs, in which neighbours of one state are joined."""
    runs: list[tuple[int, int]] = []
    for size, state in zip(sizes, states, strict=True):
        if runs and runs[-1][1] == state:
            runs[-1] = runs[-1][0] + size, state
        else:
            runs.append((size, state))
    return tuple(runs)
