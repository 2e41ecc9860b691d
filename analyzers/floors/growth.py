"""Whether blocks of one scale show growth that goes on: the evidence, in proportion to the forecast."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from .blocks import Block
from .rate import estimate_rate, fit_least_squares

# Growth that is benign ends: a cache is full, a window of losses has its length, a fragmented heap settles.
# So the evidence demanded is in proportion to the forecast made: floors must have grown, steadily and without
# slowing down, over at least `PHI` of the time that the capacity would last at that rate. Growth that slows
# is continued as a geometric series, as of a cache that fills with a time constant; where that ends below the
# capacity it is no leak yet.

# Numbers of blocks that are looked at: three lengths a scale, so that evidence need not wait for its next
# doubling.
WINDOWS = (8, 11, 15)
# Share of the headroom that must have been consumed: no forecast beyond 10 times the evidence.
PHI = 0.1
# Evidence of more than this many seconds needs a smaller share: that much less growth of an hour counts.
PHI_LASTING_S = 2400.0
PHI_LEAST = 0.004
# Blocks of one scale from which on the scatter of their lows is known.
LEAST_SCATTERED = 4
# Share of blocks that must have risen above the one before; growth by few steps is a curriculum.
LEAST_RISES = 5 / 7
# Share of the growth that may fall on one difference.
MOST_IN_ONE = 0.5
# Share of the growth that floors may fall back in between (garbage collection).
MOST_FALL = 0.1
# The newest differences, and the least share of the usual pace that they keep.
NEWEST = 2
LEAST_NEWEST = 0.4
# Share of the growth by which blocks may deviate from the line through both ends.
MOST_BEND = 0.2
# How many times its own blur the growth must be, and where less clear growth will do.
LEAST_CLARITY = 12.0
LENIENT_CLARITY = 6.0

# Peaks that scatter, as samples of steps of unlike lengths: so many blocks over so many seconds at least, how
# far the order of their highs must be that of time (Kendall's tau), and the newest few, which must hold the
# highest ever.
SCATTERED_BLOCKS = 14
SCATTERED_S = 600.0
LEAST_TAU = 0.6
SCATTERED_NEWEST = 4
# Share of their height above the floor by which they must have grown.
SCATTERED_SHARE = 0.2

# Means of samples that rise while what is reserved is near the limit. Where lengths vary, samples meet floors
# and peaks too seldom for these to be steady; the mean of many is known better. How many blocks; by how many
# standard errors the mean must have risen; its growth as a share of what is left above the highest sample,
# and as a multiple of what the allocator can still take from the device.
TREND_BLOCKS = (16, 12, 8)
TREND_ERRORS = 5.0
TREND_SHARE = 0.25
TREND_OF_UNRESERVED = 2.0
# Pace of each half, as a share of that of the whole, at least, and standard errors of the second.
TREND_HALVES = (0.2, 0.5)
TREND_NEWEST_ERRORS = 1.0
# The newest blocks, whose mean must be above all before the window, and by which share of the growth.
TREND_NEWEST = 3
TREND_NEW = 0.3
# Floors are what grows where they rise at this share of the pace of the mean, by so many standard errors.
TREND_OF_FLOORS = 0.6
TREND_FLOOR_ERRORS = 4.0

# Rate of the second half, as a share of that of the first, below which growth is ending.
LEAST_FACTOR = 0.6
# Standard errors by which growth may slow down more than it seems to.
DOUBT = 1.5
# Seconds of evidence from which on growth that looks straight counts, though its forecast is blurred.
LONG_S = 3000.0
LONG_ERROR = 0.25
LONG_DOUBT = 1.3


class Growth(NamedTuple):
    blocks: tuple[Block, ...]
    bytes_per_s: float
    grown_bytes: int
    # What is left above the floor and the amplitude of steps.
    headroom_bytes: float

    @property
    def window_s(self) -> float:
        return self.blocks[-1].end_s - self.blocks[0].start_s

    @property
    def share(self) -> float:
        return self.grown_bytes / max(1.0, self.headroom_bytes)


def demand_share(window_s: float) -> float:
    """Return the share of the headroom that growth over so many seconds must have consumed."""
    return max(PHI_LEAST, PHI * min(1.0, PHI_LASTING_S / max(window_s, 1e-9)))


def judge_growth(
    blocks: Sequence[Block], headroom_bytes: float, record_bytes: int, *, is_lenient: bool = False
) -> Growth | None:
    """Return the growth of floors; None without growth, or where it is going to end.

    Args:
        blocks: Consecutive blocks of one scale, eight or more.
        headroom_bytes: What is left above the floor and the amplitude of steps.
        record_bytes: Highest floor of such blocks before these; only what exceeds it is new.
        is_lenient: Whether less clear growth will do; then it is not asked whether it continues.
    """
    grown = blocks[-1].low - blocks[0].low
    window_s = blocks[-1].end_s - blocks[0].start_s
    least = demand_share(window_s) * max(0.0, headroom_bytes)
    if grown <= 0 or grown < least or blocks[-1].low - record_bytes < max(grown / 2, least):
        return None
    if not _is_steady(blocks, grown, LENIENT_CLARITY if is_lenient else LEAST_CLARITY):
        return None
    if not (_is_straight(blocks) if is_lenient else _goes_on(blocks, headroom_bytes)):
        return None
    rate = estimate_rate([(block.mid_s, block.low) for block in blocks])
    return Growth(tuple(blocks), rate, grown, headroom_bytes)


def judge_scattered(blocks: Sequence[Block], limit_bytes: int, record_bytes: int) -> Growth | None:
    """Return the growth of peaks that scatter too much to be steady, by their ranks; None without.

    Args:
        blocks: Consecutive blocks of one scale, `SCATTERED_BLOCKS` of them.
        limit_bytes: Most that peaks can reach.
        record_bytes: Highest peak before these blocks.
    """
    highs = [block.high for block in blocks]
    if blocks[-1].end_s - blocks[0].start_s < SCATTERED_S or max(highs[-SCATTERED_NEWEST:]) < record_bytes:
        return None
    order = sum(
        [(later > high) - (later < high) for at, high in enumerate(highs) for later in highs[at + 1 :]]
    )
    if order < LEAST_TAU * len(highs) * (len(highs) - 1) / 2:
        return None
    rate = estimate_rate([(block.mid_s, block.high) for block in blocks])
    grown = round(rate * (blocks[-1].mid_s - blocks[0].mid_s))
    if grown < SCATTERED_SHARE * (max(highs) - min([block.low for block in blocks])):
        return None
    return Growth(tuple(blocks), rate, grown, float(max(0, limit_bytes - max(highs))))


def may_have_grown(blocks: Sequence[Block], limit_bytes: int) -> bool:
    """Return whether means differ by enough for `judge_means`, which costs more, of any of the newest blocks.

    A line through values rises by less than twice their range.
    """
    means = [block.mean for block in blocks]
    unreserved = limit_bytes - blocks[-1].reserved
    room = limit_bytes - max([block.high for block in blocks])
    return 2 * (max(means) - min(means)) >= max(TREND_OF_UNRESERVED * unreserved, TREND_SHARE * room)


def judge_means(blocks: Sequence[Block], limit_bytes: int) -> Growth | None:
    """Return the growth of the mean of samples near the limit; None where they do not grow clearly.

    Args:
        blocks: Consecutive blocks of one scale, as many as one of `TREND_BLOCKS`.
        limit_bytes: Most that can be reserved.
    """
    unreserved = max(0, limit_bytes - blocks[-1].reserved)
    means = [block.mean for block in blocks]
    if max(means[-TREND_NEWEST:]) - min(means) < TREND_OF_UNRESERVED * unreserved:
        return None
    pace, error = _fit_mean(blocks)
    span_s = blocks[-1].mid_s - blocks[0].mid_s
    grown = pace * span_s
    if pace <= 0 or pace < TREND_ERRORS * error or grown < TREND_OF_UNRESERVED * unreserved:
        return None
    room = limit_bytes - max([block.high for block in blocks])
    if grown < TREND_SHARE * room:
        return None
    half = len(blocks) // 2
    first, _ = _fit_mean(blocks[:half])
    second, second_error = _fit_mean(blocks[half:])
    if first < TREND_HALVES[0] * pace or second < max(
        TREND_HALVES[1] * pace, TREND_NEWEST_ERRORS * second_error
    ):
        return None
    return Growth(tuple(blocks), pace, round(grown), float(max(0, room)))


def is_new(growth: Growth, record: float) -> bool:
    """Return whether growth of the mean is clearly above the highest mean of blocks before it."""
    newest = [block.mean for block in growth.blocks[-TREND_NEWEST:]]
    return sum(newest) / TREND_NEWEST - record >= TREND_NEW * growth.grown_bytes


def has_rising_floors(growth: Growth) -> bool:
    """Return whether floors carry growth of the mean: else steps take more and more."""
    pace, error = fit_least_squares([(block.mid_s, float(block.low)) for block in growth.blocks])
    return pace >= TREND_OF_FLOORS * growth.bytes_per_s and pace >= TREND_FLOOR_ERRORS * error


def _fit_mean(blocks: Sequence[Block]) -> tuple[float, float]:
    return fit_least_squares([(block.mid_s, block.mean) for block in blocks])


def _is_steady(blocks: Sequence[Block], grown: int, clarity: float) -> bool:
    """Return whether all blocks have a part in the growth, and it is clear of their blur."""
    lows = [block.low for block in blocks]
    diffs = [after - before for before, after in pairwise(lows)]
    if grown < clarity * blur_of(blocks) or max(diffs) > MOST_IN_ONE * grown:
        return False
    if sum([diff > 0 for diff in diffs]) < LEAST_RISES * len(diffs):
        return False
    if -sum([diff for diff in diffs if diff < 0]) > MOST_FALL * grown:
        return False
    if sum(diffs[-NEWEST:]) < LEAST_NEWEST * NEWEST / len(diffs) * grown:
        return False
    start_s = blocks[0].mid_s
    span_s = blocks[-1].mid_s - blocks[0].mid_s
    bend = max([abs(b.low - lows[0] - grown * (b.mid_s - start_s) / span_s) for b in blocks])
    return bend <= MOST_BEND * grown


def blur_of(blocks: Sequence[Block]) -> float:
    return sum([abs(block.blur) for block in blocks]) / len(blocks)


def measure_excess(blocks: Sequence[Block]) -> float:
    """Return by how many bytes lows of blocks of one scale exceed the true floor, on average.

    Readings at random moments exceed it by their blur, and scatter by as much: two independent exponential
    excesses differ by their mean, on average. Samples that meet the same phase of a step again and again have
    a blur, too, but lows on a line: there the blur says nothing.
    """
    blur = blur_of(blocks)
    if len(blocks) < LEAST_SCATTERED:
        return blur
    rises = [(after.low - before.low, after.low_s - before.low_s) for before, after in pairwise(blocks)]
    pace = median([grown / passed_s for grown, passed_s in rises])
    return min(blur, sum([abs(grown - pace * passed_s) for grown, passed_s in rises]) / len(rises))


def _is_straight(blocks: Sequence[Block]) -> bool:
    pace = _compare_halves(blocks)
    return pace is not None and pace.factor >= LEAST_FACTOR


def _goes_on(blocks: Sequence[Block], headroom_bytes: float) -> bool:
    """Return whether growth would exceed the headroom even if it slowed on as it may have done so far.

    Growth that decays with a time constant, A (1 - exp(-t / tau)), has rates that fall by the same factor
    from each half of the window to the next; what remains of it is their geometric series. The factor is
    as low as its own uncertainty allows, so that a blurred line does not pass for a straight one.
    """
    pace = _compare_halves(blocks)
    if pace is None or pace.factor < LEAST_FACTOR:
        return False
    lasts = blocks[-1].end_s - blocks[0].start_s >= LONG_S
    if lasts and pace.error <= LONG_ERROR and pace.factor + LONG_DOUBT * pace.error >= 1.0:
        return True
    factor = pace.factor - DOUBT * pace.error
    if factor >= 1.0:
        return True
    if factor <= 0.0:
        return False
    tau_s = pace.lag_s / -math.log(factor)
    remaining = pace.rate * math.exp(-pace.age_s / tau_s) * tau_s
    return remaining > headroom_bytes


class _Pace(NamedTuple):
    # Bytes a second in the second half.
    rate: float
    factor: float
    # Standard error of the factor.
    error: float
    # From the middle of the first half to that of the second.
    lag_s: float
    # From the middle of the second half to the present.
    age_s: float


def _compare_halves(blocks: Sequence[Block]) -> _Pace | None:
    rates = [(b.low - a.low) / (b.mid_s - a.mid_s) for a, b in pairwise(blocks)]
    count = len(rates)
    part = count * 3 // 7
    first = sum(rates[:part]) / part
    last = sum(rates[-part:]) / part
    if first <= 0 or last <= 0:
        return None
    span_s = blocks[-1].mid_s - blocks[0].mid_s
    scatter = max(_scatter_of(rates), math.sqrt(2) * blur_of(blocks) * count / span_s)
    # Floors that scatter by v have differences that scatter by v sqrt(2); those of one part telescope.
    error = scatter / part * math.hypot(1, last / first) / first
    return _Pace(last, last / first, error, span_s * (count - part) / count, span_s * part / count / 2)


def _scatter_of(rates: Sequence[float]) -> float:
    """Return the standard deviation of rates about a straight line through them."""
    count = len(rates)
    middle = (count - 1) / 2
    mean = sum(rates) / count
    weight = sum([(place - middle) ** 2 for place in range(count)])
    slope = sum([(place - middle) * rate for place, rate in enumerate(rates)]) / weight
    squares = [(rate - mean - slope * (place - middle)) ** 2 for place, rate in enumerate(rates)]
    return math.sqrt(sum(squares) / (count - 2))
