"""Where two series of one length part for good, beyond the noise of their own steps.

Method: the differences B less A are smoothed by a running mean of the middle half (the midmean of Tukey,
*Exploratory Data Analysis*, 1977), which a few odd steps do not move. The runs part at the first window from
which on every window is beyond a band, on one side, to the end; a tail that is shorter than an excursion
that ended before does not count. The band is the least difference worth reporting, or several standard errors
of a window, if those are more: from the spread of the differences' own step-to-step changes, and from the
spread from one window to the next, less what jumps once or grows evenly, which sees noise that is slower
than a step. Spreads are quantiles of absolute changes, scaled as for normal noise, so that one change point
does not count (the median absolute deviation of Hampel, *Journal of the American Statistical Association*
69, 1974, at other quantiles). Windows are short at first and then twice as long, so that a large difference
is placed well and a small one is seen at all. The place itself is where two medians fit the differences
best, by the sum of absolute deviations (the median counterpart of Hinkley, *Biometrika* 57, 1970).
"""

import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ..floors.rate import find_slope

MOST_WINDOW = 64
MOST_WIDE_WINDOW = 256
# Least window of the level that an odd step is compared with.
LEAST_WINDOW = 8
# A window is this part of the series at most.
WINDOWS = 10
# Steps that must differ at least, where the runs agree before.
LEAST_TAIL = 3
# Quantile of absolute changes, and that of the absolute standard normal distribution: of changes, and of
# changes of changes. A jump is one of the former and three of the latter.
CHANGES = (0.8, 1.2816)
BENDS = (0.6, 0.8416)
# Standard error of a median over that of a mean, for normal noise: the root of pi/2.
MEDIAN_ERROR = 1.2533
# Width of the band in standard errors; and what is added for short series, divided by their length.
ERRORS = 4.0
FEW_STEPS_ERRORS = 24.0
# Least difference that counts: share of the level (logs round to as much), and at least so many bytes.
LEAST_SHARE = 0.001
LEAST_BYTES = 2 * 1024**2
# Where a value only rises, so many times the jumps of the run with the smaller ones are noise.
JUMPS = 2.0
# What a cache may hold for a step, as a share of what the step needed.
CACHE_SHARE = 1.25
# Places that are tried near a parting.
MOST_SPLITS = 128
# Share of the deviations that a change point must explain, for the place to be taken from it.
LEAST_GAIN = 0.1


class Parting(NamedTuple):
    """Two series and their parting. Values are of the tail after they part, or of all where they do not."""

    # Place from which they differ for good; None where they do not.
    start: int | None
    # Differences up to this are noise.
    band: float
    a: float
    b: float
    difference: float
    # Medians of the last window.
    final_a: float
    final_b: float
    final_difference: float


def find_parting(
    a: Sequence[float], b: Sequence[float], *, tolerance: float = 0.0, is_ratchet: bool = False
) -> Parting:
    """Return where two series of one length, one at least, part for good; see the head of the file.

    Args:
        a: Run A, by step.
        b: Run B, by step.
        tolerance: Difference that something else explains, and that counts as noise.
        is_ratchet: Whether the values rise when a step needs more and then stay, as reserved bytes do. Two
            runs of one job then stay apart until the other meets such a step as well: a difference does not
            count that is no larger than what they have made up before, or than jumps that both make.
    """
    differences = [later - sooner for sooner, later in zip(a, b, strict=True)]
    least = max(LEAST_SHARE * max(abs(median(a)), abs(median(b))), LEAST_BYTES, tolerance)
    if is_ratchet:
        least = max(least, JUMPS * min(_find_jump(a, b), _find_jump(b, a)))
    start = None
    band = least
    window = max(1, min(MOST_WINDOW, len(differences) // WINDOWS))
    wider = window
    while start is None and wider <= min(MOST_WIDE_WINDOW, max(1, len(differences) // 3)):
        start, band = _place(differences, wider, least, is_ratchet=is_ratchet)
        wider *= 2
    kept = slice(start or 0, None)
    return Parting(
        start,
        band,
        *(median(values[kept]) for values in (a, b, differences)),
        *(median(values[-window:]) for values in (a, b, differences)),
    )


def explain_cache(differences: Sequence[float], start: int | None) -> float:
    """Return how far two caches may differ through odd steps that only one run had.

    A cache keeps what its largest step needed, and somewhat more. So that is how far one step is at most from
    the level of the steps before a parting, or after it. `start` is where the differences, B less A, part;
    None where they do not.
    """
    parts = (differences[: start or 0], differences[start or 0 :])
    return CACHE_SHARE * max(_find_oddest(part) for part in parts if part)


def _find_oddest(differences: Sequence[float]) -> float:
    window = min(len(differences), max(LEAST_WINDOW, len(differences) // 4))
    levels = _run_levels(differences, window)
    # A difference that grows is no odd step: each is compared with the window around it.
    near = (levels[max(0, min(at - window // 2, len(levels) - 1))] for at in range(len(differences)))
    return max(abs(value - level) for value, level in zip(differences, near, strict=True))


def _place(
    differences: Sequence[float], window: int, least: float, *, is_ratchet: bool
) -> tuple[int | None, float]:
    """Return where they part in windows of one length, and the band."""
    levels = _run_levels(differences, window)
    band = max(least, _measure_noise(differences, window))
    start = _find_tail(levels, band, window)
    if start is None or (is_ratchet and abs(levels[-1]) <= _measure_return(levels)):
        return None, band
    start = _find_bend(differences, _refine(differences, start, window, band), window)
    is_short = start > 0 and len(differences) - start < LEAST_TAIL
    return None if is_short else start, band


def _run_levels(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of the middle half of each window, by its first place."""
    ordered = sorted(values[:window])
    levels = [_midmean(ordered)]
    for leaving, coming in zip(values, values[window:], strict=False):
        del ordered[bisect_left(ordered, leaving)]
        insort(ordered, coming)
        levels.append(_midmean(ordered))
    return levels


def _midmean(ordered: Sequence[float]) -> float:
    length = len(ordered)
    cut = length // 4 if length > 3 else (length - 1) // 2
    return math.fsum(ordered[cut : length - cut]) / (length - 2 * cut)


def _measure_noise(differences: Sequence[float], window: int) -> float:
    """Return how far a window's median may be from zero by noise alone."""
    length = len(differences)
    if length < 2:
        return 0.0
    changes = [later - sooner for sooner, later in pairwise(differences)]
    by_step = _scale(changes, *CHANGES) * MEDIAN_ERROR / math.sqrt(window)
    starts = range(0, length - window + 1, window)
    blocks = [_midmean(sorted(differences[at : at + window])) for at in starts]
    # A difference that grows evenly moves every window, one that jumps bends three: neither is noise.
    moves = [later - sooner for sooner, later in pairwise(blocks)]
    drift = median(moves) if moves else 0.0
    bends = [later - sooner for sooner, later in pairwise(moves)]
    by_block = min(_scale([move - drift for move in moves], *CHANGES), _scale(bends, *BENDS) / math.sqrt(3))
    return (ERRORS + FEW_STEPS_ERRORS / length) * max(by_step, by_block)


def _scale(changes: Sequence[float], quantile: float, normal: float) -> float:
    """Return the standard deviation of values with these changes, as if it were normal noise."""
    if not changes:
        return 0.0
    ordered = sorted(abs(change) for change in changes)
    return ordered[int(quantile * (len(ordered) - 1))] / (normal * math.sqrt(2))


def _find_tail(levels: Sequence[float], band: float, window: int) -> int | None:
    """Return the first window from which all are beyond the band, on the side of the last one."""
    side = 1 if levels[-1] > 0 else -1
    length = len(levels)
    beyond = [level * side > band for level in levels]
    start = next((at + 1 for at in reversed(range(length)) if not beyond[at]), 0)
    if start == length:
        return None
    longest = running = 0
    for level in levels[:start]:
        running = running + 1 if abs(level) > band else 0
        longest = max(longest, running)
    # The last windows are cut off by the end of the runs, those of an excursion by nothing.
    return start if length - start + window // 2 >= longest else None


def _measure_return(levels: Sequence[float]) -> float:
    """Return the farthest that the levels went back: against the side of the last one."""
    side = 1 if levels[-1] > 0 else -1
    highest = 0.0
    back = 0.0
    for level in levels:
        highest = max(highest, level * side)
        back = max(back, highest - level * side)
    return back


def _find_jump(one: Sequence[float], other: Sequence[float]) -> float:
    rises = [later - sooner for sooner, later in pairwise(one)]
    near = [max(other[at : at + 3]) - min(other[max(0, at - 1) : at + 1]) for at in range(len(rises))]
    apart = (rise - shared for rise, shared in zip(rises, near, strict=True))
    return max(0.0, one[0] - other[0], *apart)


def _refine(differences: Sequence[float], start: int, window: int, band: float) -> int:
    """Return the place near the start of the tail at which one level best becomes another."""
    low = max(0, start - window)
    high = min(len(differences), start + 2 * window)
    near = differences[low:high]
    whole = _deviation(near)
    best = whole
    place = None
    for at in range(1, len(near), 1 + len(near) // MOST_SPLITS):
        cost = _deviation(near[:at]) + _deviation(near[at:])
        if cost < best:
            best = cost
            place = at
    is_clear = place is not None and whole - best > LEAST_GAIN * whole
    if place is None or not is_clear or abs(median(near[:place])) > band:
        return start
    return low + place


def _find_bend(differences: Sequence[float], start: int, window: int) -> int:
    """Return where a difference that grows evenly began to grow; `start` where it does not grow, or jumped.

    Growth leaves the noise only some time after it began. Its line is continued back to zero, where that fits
    the differences before `start` better than no difference does.
    """
    if start == 0 or len(differences) - start < 2 * window:
        return start
    levels = _run_levels(differences[start:], window)[:: max(1, window // 2)]
    slope = find_slope([float(at) for at in range(len(levels))], levels)
    pace = (slope or 0.0) / max(1, window // 2)
    if not pace:
        return start
    # In the middle of the tail the line is that of its median.
    tail = differences[start:]
    at_zero = start + (len(tail) - 1) / 2 - median(tail) / pace
    if at_zero >= start:
        return start
    bend = max(0, round(at_zero))
    before = differences[bend:start]
    as_line = sum([abs(it - pace * (at - at_zero)) for at, it in enumerate(before, bend)])
    return bend if as_line < sum([abs(it) for it in before]) else start


def _deviation(values: Sequence[float]) -> float:
    middle = median(values)
    return sum(abs(value - middle) for value in values)
