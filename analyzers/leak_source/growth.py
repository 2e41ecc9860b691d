"""What has grown over some segment maps of one process: by the stack that allocated it, else by block size.

RESIN (OSDI 2022) names a leak in the same way: snapshots on suspicion, and what is in the later one only,
grouped by stack. Maps are taken between two steps, where what serves a step only has gone; and what is filled
once, as a cache, or emptied again is no leak: a source grows from map to map.
"""

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from ...engine.model.memory_snapshot import Frame
from .holdings import NOTHING, Held, Holdings, Place

Key = TypeVar("Key", bound=Hashable)

MOST_SOURCES = 3
LEAST_SHARE = 0.2
"""A stack, or size, of a smaller part of what has grown is not named."""
LEAST_EXPLAINED = 0.5
"""Of all that has grown; where the sources make up less of it, the leak is something else."""
MOST_OF_ONE = 0.8
"""Part of what a place gained that it may have gained from one map to the next: else it was filled once."""
MOST_LOST = 0.2
"""Part of what it gained that it may have lost again."""
LEAST_MAPS = 3
LEAST_MAPS_WITHIN_STEPS = 5
"""Where maps were taken anywhere within steps, what serves a step comes and goes: a chance rise is likely."""


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


class _Growth(NamedTuple):
    """What one place, or size, gained from map to map; less what it lost."""

    gains: tuple[Held, ...]
    line: Frame | None = None
    """The innermost line that allocated most of it."""

    @property
    def whole(self) -> Held:
        """From the first map to the last."""
        return Held(sum(gain.size_bytes for gain in self.gains), sum(gain.blocks for gain in self.gains))

    @property
    def has_grown(self) -> bool:
        """Whether there is more of it, in blocks and in bytes."""
        return self.whole.size_bytes > 0 and self.whole.blocks > 0

    def is_steady(self, *, has_step_ends: bool) -> bool:
        """Whether it grew again and again, and gave hardly anything back."""
        gained = [max(0, gain.blocks) for gain in self.gains]
        if not has_step_ends and not all(gained):
            return False
        has_spread = max(gained) <= MOST_OF_ONE * sum(gained)
        return has_spread and self.whole.blocks >= (1 - MOST_LOST) * sum(gained)

    def plus(self, other: "_Growth") -> "_Growth":
        """Return both together; the line is the first one's."""
        return _Growth(tuple(a.plus(b) for a, b in zip(self.gains, other.gains, strict=True)), self.line)


def find_sources(maps: Sequence[Holdings]) -> tuple[LeakSource, ...]:
    """Return the places that have grown most over maps of one process, the largest first; at most three.

    Args:
        maps: In order of time, with allocations recorded between them.

    Returns:
        Empty where there are fewer than three maps (five where they are not of ends of steps), where nothing
        grew from map to map, or where what did is less than half of all that has grown.
    """
    if not _are_enough(maps):
        return ()
    by_place = _grow([held.by_place for held in maps])
    callers: dict[Frame, _Growth] = {}
    for place, grown in sorted(by_place.items(), key=_by_bytes):
        known = callers.get(place.caller)
        callers[place.caller] = grown._replace(line=place.innermost) if known is None else known.plus(grown)
    return _rank(list(callers.items()), maps)


def find_sizes(maps: Sequence[Holdings]) -> tuple[LeakSource, ...]:
    """Return the sizes of block that have grown most, as `find_sources` does; for where no place is known."""
    if not _are_enough(maps):
        return ()
    grown = _grow([held.by_size for held in maps])
    return _rank([(None, growth) for growth in grown.values()], maps)


def _are_enough(maps: Sequence[Holdings]) -> bool:
    return len(maps) >= (LEAST_MAPS if _have_step_ends(maps) else LEAST_MAPS_WITHIN_STEPS)


def _have_step_ends(maps: Sequence[Holdings]) -> bool:
    return all(held.is_at_step_end for held in maps)


def _grow(maps: Sequence[dict[Key, Held]]) -> dict[Key, _Growth]:
    """Return what has grown from the first map to the last, with its way there."""
    grown: dict[Key, _Growth] = {}
    for key in maps[-1]:
        held = [each.get(key, NOTHING) for each in maps]
        growth = _Growth(tuple(after.minus(before) for before, after in pairwise(held)))
        if growth.has_grown:
            grown[key] = growth
    return grown


def _by_bytes(item: tuple[Place, _Growth]) -> int:
    return -item[1].whole.size_bytes


def _rank(grown: list[tuple[Frame | None, _Growth]], maps: Sequence[Holdings]) -> tuple[LeakSource, ...]:
    """Return the steady ones that make up much of all that has grown, whether its place is known or not."""
    first_bytes = maps[0].live_bytes
    last_bytes = maps[-1].live_bytes
    live_bytes = 0 if first_bytes is None or last_bytes is None else last_bytes - first_bytes
    total_bytes = max(live_bytes, sum(growth.whole.size_bytes for _, growth in grown))
    ordered = sorted(grown, key=lambda item: -item[1].whole.size_bytes)
    sources = [
        LeakSource(*growth.whole, growth.whole.size_bytes / total_bytes, caller, growth.line)
        for caller, growth in ordered
        if growth.is_steady(has_step_ends=_have_step_ends(maps))
    ]
    named = tuple(source for source in sources if source.share >= LEAST_SHARE)[:MOST_SOURCES]
    return named if sum(source.share for source in named) >= LEAST_EXPLAINED else ()
