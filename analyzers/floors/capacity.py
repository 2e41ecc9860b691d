"""What an allocator can really use of its limit: less than all where it cannot fill what it holds."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from .rate import estimate_rate

KEPT = 16
LEAST_EVENTS, LEAST_TREND = 2, 5
"""Times that reserved bytes grew before they tell anything, and before they tell a trend."""
SEGMENT_SHARE = 0.002
"""Share of the limit below which segments are too small to strand much."""
MOST_TREND = 1.5
"""Bytes that can be lost for each byte by which peaks rise."""
SPLIT_SHARE = 0.5
"""Share of the free blocks beside live ones that is taken for lost where nothing better is known."""
UNSEEN_DOUBT, LOST_DOUBT = 0.02, 0.2
"""Standard errors: as a share of the limit where reserved bytes did not grow, and else of what is lost."""
LEAST_DOUBT = 0.008
"""Share of the limit by which it is always in doubt: the last segment, and what else takes memory."""
DOUBTED_SHARE = 0.02
"""Share of the limit up to which what could not be used may well be of use at the limit."""


class Usable(NamedTuple):
    """How high live bytes can go under a limit."""

    limit_bytes: int
    doubt_bytes: float
    """Standard error of that."""


class _Growth(NamedTuple):
    time_s: float
    before_bytes: int
    """What was held, and was not enough."""
    segment_bytes: int


class UsableLimit:
    """Learns from the moments at which reserved bytes grew how much of them could not be used.

    An allocator takes another segment when no free block is large enough for a request. What it held then
    above its live bytes was of no use to it, and will be of none at the limit, where the last segment must
    fit as a whole. A cache that is larger than the peaks and does not grow says little: much of it may be
    usable, but for free blocks beside live ones (`inactive_split_bytes`).
    """

    def __init__(self) -> None:
        self._reserved = 0
        self._split = 0
        self._growths: deque[_Growth] = deque(maxlen=KEPT)

    def observe(self, time_s: float, reserved_bytes: int, split_bytes: int) -> None:
        """Take one reading of what is held, and of what is free beside live blocks; 0 where unknown."""
        if reserved_bytes > self._reserved > 0:
            self._growths.append(_Growth(time_s, self._reserved, reserved_bytes - self._reserved))
        self._reserved, self._split = reserved_bytes, split_bytes

    def of(self, limit_bytes: int, since_s: float, now_s: float, peak_at: Callable[[float], float]) -> Usable:
        """Return how high live bytes can really go under a limit.

        Args:
            limit_bytes: Most that can be reserved.
            since_s: From when on reserved bytes tell of the growth in question.
            now_s: The present.
            peak_at: The peak of steps at a moment, in bytes.
        """
        if not self._reserved:
            return Usable(limit_bytes, LEAST_DOUBT * limit_bytes)
        seen = [growth for growth in self._growths if growth.time_s >= since_s]
        if len(seen) < LEAST_EVENTS:
            lost = SPLIT_SHARE * self._split
            return Usable(int(limit_bytes - lost), UNSEEN_DOUBT * limit_bytes + lost / 2)
        segment = median([growth.segment_bytes for growth in seen])
        room = max(0, limit_bytes - self._reserved)
        limit = limit_bytes - int(room % segment)
        past = [(peak_at(growth.time_s), growth.before_bytes) for growth in seen]
        hard = _extrapolate(limit, past, (peak_at(now_s), self._reserved))
        lost = max(0.0, limit - hard)
        weight = lost**3 / (lost**3 + (DOUBTED_SHARE * limit) ** 3)
        weight *= min(1.0, segment / (SEGMENT_SHARE * limit))
        doubt = math.hypot(LOST_DOUBT * lost, (limit_bytes - limit) / 8, LEAST_DOUBT * limit_bytes)
        return Usable(int(limit - weight * lost), doubt)


def _extrapolate(limit: float, past: Sequence[tuple[float, int]], present: tuple[float, int]) -> float:
    """Return the peak at which what is lost beside it reaches a limit, as a line through the past has it.

    Args:
        limit: Most that can be reserved.
        past: Peaks, and reserved bytes that were not enough for them.
        present: The peak, and reserved bytes that are enough for it: no more than their rest is lost.
    """
    lost = [max(0.0, reserved - peak) for peak, reserved in past]
    peaks = [peak for peak, _ in past]
    slope = 0.0
    if len(past) >= LEAST_TREND and peaks[-1] > peaks[0]:
        slope = min(max(estimate_rate(list(zip(peaks, lost, strict=True))), 0.0), MOST_TREND)
    at_zero = median([loss - slope * peak for loss, peak in zip(lost, peaks, strict=True)])
    at_zero = min(at_zero, present[1] - present[0] - slope * present[0])
    return (limit - at_zero) / (1 + slope)
