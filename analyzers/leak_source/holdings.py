"""What one segment map says is held: live bytes, by the place that allocated them and by size of block."""

from collections import Counter
from typing import NamedTuple

from ...engine.model.memory_snapshot import Frame
from ...engine.model.segments import ALLOCATED, SegmentMap
from ..stack_frames import find_caller, find_headline, keep_python


class Held(NamedTuple):
    """Live blocks of one place, or one size."""

    size_bytes: int
    blocks: int

    def plus(self, other: "Held") -> "Held":
        """Return both together."""
        return Held(self.size_bytes + other.size_bytes, self.blocks + other.blocks)

    def minus(self, other: "Held") -> "Held":
        """Return what this is more than another."""
        return Held(self.size_bytes - other.size_bytes, self.blocks - other.blocks)


NOTHING = Held(0, 0)


class Place(NamedTuple):
    """Where blocks were allocated."""

    caller: Frame
    """Who allocated them, or called the model that did."""
    innermost: Frame
    """The innermost line outside of PyTorch."""


class Holdings(NamedTuple):
    """The same of one map as a whole."""

    time_s: float
    is_at_step_end: bool
    live_bytes: int | None
    """None where the map leaves segments out."""
    by_place: dict[Place, Held]
    """Only of blocks whose allocation was recorded."""
    by_size: dict[int, Held]


def measure_holdings(segment_map: SegmentMap) -> Holdings:
    """Return what a map says is held."""
    by_size = _by_size(segment_map)
    live_bytes = sum(held.size_bytes for held in by_size.values())
    return Holdings(
        time_s=segment_map.time_s,
        is_at_step_end=segment_map.is_at_step_end,
        live_bytes=None if segment_map.segments_left_out else live_bytes,
        by_place=_by_place(segment_map),
        by_size=by_size,
    )


def _by_place(segment_map: SegmentMap) -> dict[Place, Held]:
    found: dict[Place, Held] = {}
    for live in segment_map.live_stacks:
        frames = keep_python(tuple(Frame(*entry) for entry in live.stack))
        caller = find_caller(frames)
        innermost = find_headline(frames)
        if caller is not None and innermost is not None:
            place = Place(caller, innermost)
            found[place] = found.get(place, NOTHING).plus(Held(live.size_bytes, live.count))
    return found


def _by_size(segment_map: SegmentMap) -> dict[int, Held]:
    counts = Counter(
        size for segment in segment_map.segments for size, state in segment.blocks if state == ALLOCATED
    )
    return {size: Held(size * count, count) for size, count in counts.items()}
