"""The last minutes of one allocator in blocks of half a minute, long enough to hold the peaks of its steps.

What is free beside live blocks changes within every step, and whatever is free at the end of a step serves
the next one. Lost is what lies stranded while the most is allocated. So a window looks at its fullest moments
alone, and takes the least of them; and it must hold several steps for that to count. Blocks stand at fixed
times, so that two workers that began at different moments see the same ones.
"""

from collections import deque
from itertools import islice
from typing import NamedTuple

BLOCK_S = 30.0
LEAST_S = 300.0
"""Shortest window that decides where nothing was refused."""
REFUSED_S = 60.0
"""Shortest window that decides where something was."""
LEAST_STEPS = 3
"""Steps that must end within it, where they are known."""
FULL_SHARE = 0.95
"""Blocks whose fullest moment held this share of the fullest of all count as full."""
MOST_BLOCKS = 20
"""Ten minutes: the longest window, for long steps."""


class Tick(NamedTuple):
    """What one sample says of an allocator; None is unmeasured."""

    time_s: float
    interval_s: float
    stranded_bytes: int | None
    allocated_bytes: int | None
    """At the moment of the sample."""
    peak_bytes: int | None
    """Most allocated within the tick, or within its steps."""
    reserved_bytes: int | None
    step: int | None
    retries: int | None


class Extremes(NamedTuple):
    """Least and most of a stretch of time."""

    stranded_bytes: int | None
    """Stranded at the fullest moment that was sampled; over several blocks the least of such."""
    fullest_bytes: int | None
    """Allocated at that moment."""
    peak_bytes: int | None
    """Most allocated."""
    reserved_bytes: int | None
    """Most reserved."""
    unused_bytes: int | None
    """Least reserved and not allocated."""


NOTHING = Extremes(None, None, None, None, None)


class Window:
    """The newest blocks of one allocator."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[Extremes, int | None]] = deque(maxlen=MOST_BLOCKS + 1)
        """Finished blocks, each with the newest step at its end."""
        self._number: int | None = None
        self._running = NOTHING
        self._step: int | None = None

    def clear(self) -> None:
        """Forget everything: nobody knows what happened since."""
        self._blocks.clear()
        self._number = None
        self._running = NOTHING
        self._step = None

    def add(self, tick: Tick) -> bool:
        """Count one sample; return whether it began a new block, so that the window has moved."""
        number = int(tick.time_s // BLOCK_S)
        is_moved = self._number is not None and number != self._number
        if is_moved:
            self._blocks.append((self._running, self._step))
            self._running = NOTHING
        self._number = number
        self._step = tick.step if tick.step is not None else self._step
        self._running = _widen(self._running, tick)
        return is_moved

    def measure(self, least_s: float = LEAST_S) -> Extremes | None:
        """Return the extremes of the shortest stretch that counts; None while too little was seen.

        Args:
            least_s: How long it is at least, in seconds.
        """
        if not self._blocks:
            return None
        newest_step = self._blocks[-1][1]
        for count in range(1, len(self._blocks)):
            if count * BLOCK_S < least_s:
                continue
            before = self._blocks[-count - 1][1]
            if newest_step is None or (before is not None and newest_step - before >= LEAST_STEPS):
                return _join(
                    [extremes for extremes, _ in islice(self._blocks, len(self._blocks) - count, None)]
                )
        return None

    @property
    def newest(self) -> Extremes:
        """The extremes of what was seen so far of the window's last two blocks."""
        return _join([self._blocks[-1][0], self._running]) if self._blocks else self._running

    @property
    def newest_peak_bytes(self) -> int | None:
        """Most that was allocated in the window's last two blocks, so far."""
        peak = self._running.peak_bytes
        return _most(self._blocks[-1][0].peak_bytes, peak) if self._blocks else peak


def _widen(running: Extremes, tick: Tick) -> Extremes:
    """Return the extremes of a stretch with one sample more."""
    peak = tick.peak_bytes if tick.peak_bytes is not None else tick.allocated_bytes
    reserved = tick.reserved_bytes
    allocated = tick.allocated_bytes
    stranded = tick.stranded_bytes
    unused = None if reserved is None or peak is None else max(0, reserved - peak)
    is_known = allocated is not None and stranded is not None
    fullest = running.fullest_bytes
    is_fuller = is_known and (fullest is None or (allocated or 0) > fullest)
    return Extremes(
        stranded if is_fuller else running.stranded_bytes,
        allocated if is_fuller else fullest,
        _most(running.peak_bytes, peak),
        _most(running.reserved_bytes, reserved),
        _least(running.unused_bytes, unused),
    )


def _join(parts: list[Extremes]) -> Extremes:
    """Return the extremes of several stretches: what was stranded in the fullest of them."""
    fullest = max((part.fullest_bytes for part in parts if part.fullest_bytes is not None), default=None)
    stranded = peak = reserved = unused = None
    for part in parts:
        if fullest is not None and (part.fullest_bytes or 0) >= FULL_SHARE * fullest:
            stranded = _least(stranded, part.stranded_bytes)
        peak = _most(peak, part.peak_bytes)
        reserved = _most(reserved, part.reserved_bytes)
        unused = _least(unused, part.unused_bytes)
    return Extremes(stranded, fullest, peak, reserved, unused)


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one if one < other else other


def _most(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one if one > other else other
