"""What has grown between two segment maps of one process: by the stack that allocated it, else by block size.

RESIN (OSDI 2022) names a leak in the same way: two snapshots on suspicion, and what is in the later one only,
grouped by stack. Where allocations were recorded for a while and the later map is taken some steps after
that, blocks that serve a step have gone and what has a stack is what was kept.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from ...engine.model.memory_snapshot import Frame
from ...engine.model.segments import ALLOCATED, SegmentMap
from ..stack_frames import find_headline, keep_python

Key = TypeVar("Key", Frame, int)

MOST_SOURCES = 3
LEAST_SHARE = 0.2
"""A stack, or size, of a smaller part of what has grown is not named."""


class LeakSource(NamedTuple):
    """One place that keeps memory, or one size of block where the place is not known."""

    size_bytes: int
    """What was kept between the maps."""
    blocks: int
    """In how many blocks."""
    share: float
    """Part of all that has grown."""
    frame: Frame | None
    """The innermost frame outside of PyTorch; None where no allocation was recorded."""

    @property
    def words(self) -> str:
        """What a sentence calls it: `evaluate() at train.py:212`, `blocks of 2,097,152 bytes`."""
        if self.frame is None:
            return f"blocks of {self.size_bytes // self.blocks:,} bytes"
        name = self.frame.name
        where = f"{self.frame.filename.rpartition('/')[2]}:{self.frame.line}"
        return where if name.startswith("<") else f"{name}() at {where}"


class _Held(NamedTuple):
    size_bytes: int
    blocks: int


def find_sources(earlier: SegmentMap, later: SegmentMap) -> tuple[LeakSource, ...]:
    """Return what has grown most between two maps of one process, the largest first; at most three.

    Args:
        earlier: The map before.
        later: The map after, at best a few steps after the last recorded allocation.

    Returns:
        By stack where the later map has any that grew, else by the size of blocks; empty where nothing grew.
    """
    by_place = _grow(_by_place(earlier), _by_place(later))
    if by_place:
        return _rank((frame, held) for frame, held in by_place.items())
    by_size = _grow(_by_size(earlier), _by_size(later))
    return _rank((None, held) for held in by_size.values())


def _rank(grown: Iterable[tuple[Frame | None, _Held]]) -> tuple[LeakSource, ...]:
    ordered = sorted(grown, key=lambda item: -item[1].size_bytes)
    total = sum(held.size_bytes for _, held in ordered)
    sources = (LeakSource(held.size_bytes, held.blocks, held.size_bytes / total, at) for at, held in ordered)
    return tuple(source for source in sources if source.share >= LEAST_SHARE)[:MOST_SOURCES]


def _grow(earlier: Mapping[Key, _Held], later: Mapping[Key, _Held]) -> dict[Key, _Held]:
    nothing = _Held(0, 0)
    grown = {
        key: _Held(held.size_bytes - before.size_bytes, held.blocks - before.blocks)
        for key, held in later.items()
        for before in (earlier.get(key, nothing),)
    }
    return {key: held for key, held in grown.items() if held.size_bytes > 0 and held.blocks > 0}


def _by_place(segment_map: SegmentMap) -> dict[Frame, _Held]:
    found: dict[Frame, _Held] = {}
    for live in segment_map.live_stacks:
        frame = find_headline(keep_python(tuple(Frame(*entry) for entry in live.stack)))
        if frame is not None:
            before = found.get(frame, _Held(0, 0))
            found[frame] = _Held(before.size_bytes + live.size_bytes, before.blocks + live.count)
    return found


def _by_size(segment_map: SegmentMap) -> dict[int, _Held]:
    counts = Counter(
        size for segment in segment_map.segments for size, state in segment.blocks if state == ALLOCATED
    )
    return {size: _Held(size * count, count) for size, count in counts.items()}
