"""The segments of one caching allocator: what a segment map is drawn from."""

from typing import Final, Literal

import msgspec

FREE: Final = 0
ALLOCATED: Final = 1
AWAITING_FREE: Final = 2
"""Freed by the program, and another stream may still use it."""


class Segment(msgspec.Struct, frozen=True):
    """One piece of device memory that the allocator holds, cut into blocks."""

    address: int
    total_bytes: int
    pool: Literal["small", "large"]
    stream: int
    blocks: tuple[tuple[int, int], ...]
    """Size in bytes and state (`FREE`, `ALLOCATED`, `AWAITING_FREE`) of each block, in order of address."""
    is_expandable: bool = False
    is_private: bool = False
    """Belongs to a private pool, as CUDA graphs use them: its free blocks serve nobody else."""


class LiveStack(msgspec.Struct, frozen=True):
    """Live blocks that were allocated at one place of the program."""

    size_bytes: int
    count: int
    stack: tuple[tuple[str, int, str], ...]
    """File, line and function, innermost first."""


class SegmentMap(msgspec.Struct, frozen=True):
    """All segments of one process on one device at one moment."""

    node: str
    pid: int
    device_uuid: str | None
    time_s: float
    segments: tuple[Segment, ...]
    segments_left_out: int = 0
    """Segments beyond what one message may carry."""
    live_stacks: tuple[LiveStack, ...] = ()
    """Largest first; empty where allocations are not recorded with their stacks."""
    is_at_step_end: bool = False
    """Taken between two steps, when what serves a step only has gone."""
