"""What has grown between two segment maps of one process: by the stack that allocated it, else by block size.

RESIN (OSDI 2022) names a leak in the same way: two snapshots on suspicion, and what is in the later one only,
grouped by stack. Where allocations were recorded for a while and the later map is taken some steps after
that, blocks that serve a step have gone and what has a stack is what was kept.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from ...engine.model.memory_snapshot import Frame
from ...engine.model.segments import ALLOCATED, SegmentMap
from ..stack_frames import find_caller, find_headline, keep_python

Key = TypeVar("Key", "_Place", int)

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
    """Who allocated it, or called the model that did; None where no allocation was recorded."""
    allocated_at: Frame | None = None
    """The innermost line outside of PyTorch that allocated most of it."""

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

    def plus(self, size_bytes: int, blocks: int) -> "_Held":
        """Return it with more."""
        return _Held(self.size_bytes + size_bytes, self.blocks + blocks)


class _Place(NamedTuple):
    caller: Frame
    innermost: Frame


_NOTHING = _Held(0, 0)


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
        return _rank(_gather(by_place))
    by_size = _grow(_by_size(earlier), _by_size(later))
    return _rank([(None, None, held) for held in by_size.values()])


def _gather(by_place: Mapping[_Place, _Held]) -> list[tuple[Frame | None, Frame | None, _Held]]:
    """Return the growth by caller, each with the line that allocated most of it."""
    callers: dict[Frame, _Held] = {}
    lines: dict[Frame, Frame] = {}
    for place, held in sorted(by_place.items(), key=lambda item: -item[1].size_bytes):
        callers[place.caller] = callers.get(place.caller, _NOTHING).plus(held.size_bytes, held.blocks)
        lines.setdefault(place.caller, place.innermost)
    return [(caller, lines[caller], held) for caller, held in callers.items()]


def _rank(grown: list[tuple[Frame | None, Frame | None, _Held]]) -> tuple[LeakSource, ...]:
    ordered = sorted(grown, key=lambda item: -item[2].size_bytes)
    total = sum(held.size_bytes for *_, held in ordered)
    sources = (
        LeakSource(held.size_bytes, held.blocks, held.size_bytes / total, caller, line)
        for caller, line, held in ordered
    )
    return tuple(source for source in sources if source.share >= LEAST_SHARE)[:MOST_SOURCES]


def _grow(earlier: Mapping[Key, _Held], later: Mapping[Key, _Held]) -> dict[Key, _Held]:
    grown = {
        key: _Held(held.size_bytes - before.size_bytes, held.blocks - before.blocks)
        for key, held in later.items()
        for before in (earlier.get(key, _NOTHING),)
    }
    return {key: held for key, held in grown.items() if held.size_bytes > 0 and held.blocks > 0}


def _by_place(segment_map: SegmentMap) -> dict[_Place, _Held]:
    found: dict[_Place, _Held] = {}
    for live in segment_map.live_stacks:
        frames = keep_python(tuple(Frame(*entry) for entry in live.stack))
        caller, innermost = find_caller(frames), find_headline(frames)
        if caller is not None and innermost is not None:
            place = _Place(caller, innermost)
            found[place] = found.get(place, _NOTHING).plus(live.size_bytes, live.count)
    return found


def _by_size(segment_map: SegmentMap) -> dict[int, _Held]:
    counts = Counter(
        size for segment in segment_map.segments for size, state in segment.blocks if state == ALLOCATED
    )
    return {size: _Held(size * count, count) for size, count in counts.items()}
