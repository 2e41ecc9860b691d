"""What an allocator can really use of its limit: less than all where it cannot fill what it holds."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from .rate import fit_line

KEPT = 32
"""Moments at which reserved bytes grew that are kept; of twice as many every other is left out."""
FALLEN_SHARE = 0.995
"""Share of what was reserved below which it was given back, and not merely turned over."""
LEAST_DOUBT = 0.008
"""Share of the limit by which it is always in doubt: the last segment, and what else takes memory."""
UNSEEN_DOUBT = 0.02
"""The same where reserved bytes have not grown since the onset."""
FALLS_KEPT = 9
OFTEN_WITHIN = 150
OFTEN_LOST = 0.06
"""Readings within which the cache is given back so often when every step is new to it, and the share of the
limit that such steps cannot use beside what they hold."""
PEAK_DOUBT = 0.04
"""Standard error of how high growing peaks can go, as a share of the limit."""
LEAST_POINTS = 6
MOST_POINTS = 24
CLEAR = 3.0
MOST_SLOPE = 1.5
"""Moments on which a trend of what is lost rests, standard errors by which it must be clear, and its most."""
SLOPE_DOUBT = 0.8
"""Standard error of what will be lost more until then, as a share."""
SMOOTHED = 5
"""Newest moments whose median counts: what grows in stairs stands now above, now below its line."""
LOST_DOUBT = 0.06
SPLIT_DOUBT = 0.35
GUESSED_DOUBT = 0.45
"""Standard errors, as shares of what is lost by alike steps, of free blocks that are counted, and of what is
held above the peak where it has to be guessed."""
KEPT_DOUBT = 0.25
"""The same of what is held above the peak and not counted as lost, where steps differ."""


class Usable(NamedTuple):
    """How high live bytes can go under a limit."""

    limit_bytes: int
    doubt_bytes: float
    """Standard error of that."""


class _Reading(NamedTuple):
    number: int
    time_s: float
    reserved_bytes: int
    """What was held; of a moment at which it grew, what was held before and was not enough."""
    split_bytes: int


class UsableLimit:
    """Learns from what is held above the peaks of steps how much of it will be of no use at the limit.

    An allocator takes another segment when no free block is large enough. What it held then above its live
    bytes was of no use; at the limit it gives back the segments in which nothing lives, so that of that
    excess only what is free beside live blocks (`inactive_split_bytes` between steps) is lost. Where nobody
    counts it: steps that are all alike take from a cache that fits them, so that all of the excess is lost;
    of steps that differ, what is left of it after the cache was given back, and before that, what it grew.
    """

    def __init__(self) -> None:
        self._newest = _Reading(0, 0.0, 0, 0)
        self._falls: deque[_Reading] = deque(maxlen=FALLS_KEPT)
        self._growths: list[_Reading] = []

    def observe(self, time_s: float, reserved_bytes: int, split_bytes: int) -> None:
        """Take one reading of what is held, and of what is free beside live blocks; 0 where unknown."""
        before = self._newest
        newest = _Reading(before.number + 1, time_s, reserved_bytes, split_bytes)
        if reserved_bytes > before.reserved_bytes > 0:
            self._growths.append(before._replace(time_s=time_s))
        elif reserved_bytes < FALLEN_SHARE * before.reserved_bytes:
            self._falls.append(newest)
            self._growths.clear()
        if len(self._growths) == 2 * KEPT:
            del self._growths[1::2]
        self._newest = newest

    def of(
        self,
        limit_bytes: int,
        since_s: float,
        now_s: float,
        peak_at: Callable[[float], float],
        uniformity: float,
    ) -> Usable:
        """Return how high live bytes can really go under a limit.

        Args:
            limit_bytes: Most that can be reserved.
            since_s: From when on reserved bytes tell of the growth in question.
            now_s: The present.
            peak_at: The peak of steps at a moment, in bytes.
            uniformity: How far steps are alike in what they take, from 0 to 1.
        """
        if not self._newest.reserved_bytes:
            return Usable(limit_bytes, LEAST_DOUBT * limit_bytes)
        readings = [reading for reading in self._growths if reading.time_s >= since_s]
        readings.append(self._newest._replace(time_s=now_s))
        peaks = [peak_at(reading.time_s) for reading in readings]
        excess = [max(0.0, it.reserved_bytes - peak) for it, peak in zip(readings, peaks, strict=True)]
        if self._newest.split_bytes:
            held = excess[-1]
            excess = [min(rest, float(it.split_bytes)) for it, rest in zip(readings, excess, strict=True)]
            lost = uniformity * excess[-1] + (1 - uniformity) * median(excess[-SMOOTHED:])
            sure = (1 + uniformity) / 2
            doubt = math.hypot(SPLIT_DOUBT * lost, (1 - uniformity) * KEPT_DOUBT * (held - lost))
        else:
            (lost, doubt), sure = self._guess(excess, uniformity), uniformity
        slope = sure * _slope_of(list(zip(peaks, excess, strict=True)))
        more = max(0.0, limit_bytes - lost - peaks[-1]) * slope / (1 + slope)
        least = (LEAST_DOUBT if len(readings) > 1 else UNSEEN_DOUBT) * limit_bytes
        return Usable(int(limit_bytes - lost - more), math.hypot(doubt, more * SLOPE_DOUBT, least))

    def of_peaks(self, limit_bytes: int, since_s: float, peak_at: Callable[[float], float]) -> Usable:
        """Return how high peaks can really go that grow over a floor which stands.

        Nothing is pinned then; but blocks that served shorter steps do not serve longer ones. What was still
        held when the cache had been given back is the least that such a step needs. Where the cache is given
        back all the time every step is new to it, and the largest request needs a segment of its own.

        Args:
            limit_bytes: Most that can be reserved.
            since_s: From when on reserved bytes tell of the growth in question.
            peak_at: The peak of steps at a moment, in bytes.
        """
        rests = [fall.reserved_bytes - peak_at(fall.time_s) for fall in self._falls if fall.time_s >= since_s]
        if not rests:
            return Usable(limit_bytes, PEAK_DOUBT * limit_bytes)
        is_often = len(rests) == FALLS_KEPT and self._newest.number - self._falls[0].number <= OFTEN_WITHIN
        lost = median(rests) + OFTEN_LOST * limit_bytes if is_often else min(rests)
        return Usable(int(limit_bytes - max(0.0, lost)), PEAK_DOUBT * limit_bytes)

    def _guess(self, excess: Sequence[float], uniformity: float) -> tuple[float, float]:
        """Return what is lost, and its error, where only what is reserved is known.

        Args:
            excess: What was held above the peak where it was not enough, and at last what is held so now.
            uniformity: How far steps are alike.
        """
        present = excess[-1]
        least = min(excess)
        alike = min(excess[-2:]) if len(excess) > 1 else 0.0
        unlike = least if self._falls else present - least
        lost = uniformity * alike + (1 - uniformity) * unlike
        return lost, math.hypot(uniformity * LOST_DOUBT * alike, (1 - uniformity) * GUESSED_DOUBT * present)


def _slope_of(points: Sequence[tuple[float, float]]) -> float:
    """Return by how much more is lost for each byte by which peaks rise; 0 where that is not clear."""
    rising = [point for before, point in pairwise(points) if point[0] > before[0]]
    if len(rising) < LEAST_POINTS:
        return 0.0
    line = fit_line(rising[:: -(-len(rising) // MOST_POINTS)])
    return min(line.bytes_per_s, MOST_SLOPE) if line.bytes_per_s > CLEAR * line.whole_error else 0.0
