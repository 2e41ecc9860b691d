"""Memory per token, and the largest batch that would fit: a robust line through the peaks of steps.

Method: Theil-Sen line through what each step needed beyond its floor, against its size; the answer is the
size at which the upper end of the prediction interval (Student's t on the robust spread of the residuals)
meets the limit, and the size at which its lower end does. It is refused where sizes hardly differ, peaks do
not follow them, or not in a straight line: attention without a fused kernel grows with the square of the
length.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import msgspec

from ...engine.model import HeadroomEstimate
from ..robust_slope import find_slope, median_of_sorted
from .points import StepSize, collect_needs

LEAST_SIZES = 3
"""Distinct sizes from which a line can be told from a bend."""
LEAST_RANGE = 0.2
"""Least distance of the sizes, as a share of the largest."""
MOST_SIZES = 64
BEND_SHARE = 0.15
"""Most by which the slopes of the smaller and the larger half may differ, as a share of the whole's."""
SIGMAS = 4.0
"""And standard errors that they must differ by, since slopes of few steps differ by chance."""
FLAT_SHARE = 0.02
"""Most by which needs of small sizes may differ to count as alike, as a share of the range of all."""
BLUR_SHARE = 0.25
"""Most that the spread may be, as a share of what the line rises."""
FARTHEST = 4.0
"""How many times the largest size seen the answer may be at most."""
CONFIDENCE = 0.9


class _Line:
    """A robust line through the peaks, and how far they lie from it."""

    def __init__(self, sizes: Sequence[float], needs: Sequence[float]) -> None:
        self.sizes = sizes
        self.needs = needs
        self.slope = find_slope(sizes, needs) or 0.0
        offsets = sorted(need - self.slope * size for size, need in zip(sizes, needs, strict=True))
        self.offset = median_of_sorted(offsets) or 0.0

    def predict(self, size: float) -> float:
        """Return what the line says of a size."""
        return self.offset + self.slope * size

    def find_error(self) -> float:
        """Return the standard error of the slope, by how far its own points lie from it."""
        residuals = [need - self.predict(size) for size, need in zip(self.sizes, self.needs, strict=True)]
        return find_spread(residuals, len(self.sizes)) / math.sqrt(_sum_squares(self.sizes))


class _Prediction:
    """The interval in which the need of one more step lies, by a line and how far steps lie from it."""

    def __init__(self, line: _Line, spread: float, confidence: float) -> None:
        self.line = line
        self._spread = spread
        self._count = len(line.sizes)
        self._mean = sum(line.sizes) / self._count
        self._squares = _sum_squares(line.sizes)
        self._t = find_t(confidence, self._count - 2)

    def upper(self, size: float) -> float:
        """Return what a step of a size needs at most, with the confidence."""
        return self.line.predict(size) + self._error(size)

    def lower(self, size: float) -> float:
        """Return what a step of a size needs at least, with the confidence."""
        return self.line.predict(size) - self._error(size)

    def _error(self, size: float) -> float:
        distance = (size - self._mean) ** 2 / self._squares
        return self._t * self._spread * math.sqrt(1 + 1 / self._count + distance)


class _Room(NamedTuple):
    """Bytes beyond the floor that a step may take: those that are sure, and those of the best case."""

    sure_bytes: float
    best_bytes: float


def estimate_headroom(
    points: Iterable[StepSize],
    limit_bytes: int,
    *,
    unit: str = "tokens",
    utilization: float | None = None,
    ceiling_bytes: int | None = None,
    confidence: float = CONFIDENCE,
) -> HeadroomEstimate:
    """Return the memory per unit of size and the largest size that would fit, or why that cannot be told.

    Args:
        points: Steps of one process, in order.
        limit_bytes: Most that its allocator can reserve, or less where not all of that can be live.
        unit: What sizes count, in the plural.
        utilization: Peak allocated / peak reserved of the process, where known: the limit holds reserved
            bytes, of which only so much can be live.
        ceiling_bytes: Most that could be live in the best case; None for the limit.
        confidence: Probability that the largest size fits, above 0.5 and below 1.
    """
    steps = [point for point in points if point.size > 0]
    needs = collect_needs(steps)
    sizes = sorted({step.size for step in steps})
    empty = HeadroomEstimate(
        unit=unit,
        limit_bytes=limit_bytes,
        steps=len(steps),
        sizes=len(sizes),
        largest_seen=max(sizes, default=None),
        confidence=confidence,
        sampled_sizes=needs.sampled_sizes,
    )
    reason = _refuse_sizes(sizes) or _refuse_needs(list(needs.by_size), len(sizes))
    if reason is not None:
        return msgspec.structs.replace(empty, reason=reason)
    sure_bytes = limit_bytes * (utilization or 1.0)
    best_bytes = max(ceiling_bytes or 0, limit_bytes)
    room = _Room(sure_bytes - needs.floor_bytes, best_bytes - needs.floor_bytes)
    return _answer(empty, _leave_flat(needs.by_size), needs.floor_bytes, room)


def _thin(by_size: dict[float, list[float]]) -> tuple[list[float], list[float]]:
    """Return sizes with the median of what they needed; of many sizes, evenly chosen ones."""
    sizes = list(by_size)
    if len(sizes) > MOST_SIZES:
        last = len(sizes) - 1
        sizes = [sizes[round(at * last / (MOST_SIZES - 1))] for at in range(MOST_SIZES)]
    return sizes, [median_of_sorted(sorted(by_size[size])) or 0.0 for size in sizes]


def _leave_flat(by_size: dict[float, list[float]]) -> dict[float, list[float]]:
    """Return the needs without those of small sizes that are alike: their peak is that of something else.

    Where the optimizer's step takes more than a small batch does, its peak stands in for that of the batch.
    """
    middles = {size: median_of_sorted(sorted(needs)) or 0.0 for size, needs in by_size.items()}
    least = min(middles.values(), default=0.0)
    most = max(middles.values(), default=0.0)
    flat = [size for size, need in middles.items() if need <= least + FLAT_SHARE * (most - least)]
    rising = {size: needs for size, needs in by_size.items() if size not in flat}
    is_unlike = bool(flat) and max(flat) - min(flat) >= LEAST_RANGE * max(flat)
    return rising if is_unlike and not _refuse_needs(list(rising), len(by_size)) else by_size


def _refuse_sizes(sizes: list[float]) -> str | None:
    if len(sizes) < LEAST_SIZES:
        count = "one size" if len(sizes) == 1 else f"{len(sizes) or 'no'} sizes"
        return f"{count} of steps seen, at least {LEAST_SIZES} are needed"
    if sizes[-1] - sizes[0] < LEAST_RANGE * sizes[-1]:
        return f"the sizes seen differ by less than {LEAST_RANGE:.0%}"
    return None


def _refuse_needs(sizes: list[float], seen: int) -> str | None:
    """Return why the peaks that are known do not tell enough, of sizes that would."""
    if len(sizes) < LEAST_SIZES or sizes[-1] - sizes[0] < LEAST_RANGE * sizes[-1]:
        known = f"{len(sizes) or 'none'} of {seen}"
        return (
            f"the peaks of {known} sizes are known well enough, at least {LEAST_SIZES} unlike ones are needed"
        )
    return None


def _refuse_line(line: _Line, spread: float) -> str | None:
    rise = line.slope * (line.sizes[-1] - line.sizes[0])
    if rise <= 0:
        return "the peaks do not grow with the size"
    if spread > BLUR_SHARE * rise:
        return "other things than the size move the peaks as much"
    if len(line.sizes) > LEAST_SIZES and _is_bent(line):
        return "the peaks do not grow in a straight line with the size"
    return None


def _is_bent(line: _Line) -> bool:
    """Return whether the larger sizes grow at another rate than the smaller ones, beyond what spread does."""
    middle = len(line.sizes) // 2
    halves = [_Line(line.sizes[part], line.needs[part]) for part in (slice(middle + 1), slice(middle, None))]
    bend = abs(halves[1].slope - halves[0].slope)
    error = math.sqrt(sum(half.find_error() ** 2 for half in halves))
    return bend > BEND_SHARE * line.slope and bend > SIGMAS * error


def _sum_squares(sizes: Sequence[float]) -> float:
    mean = sum(sizes) / len(sizes)
    return sum((size - mean) ** 2 for size in sizes)


def _answer(
    empty: HeadroomEstimate, by_size: dict[float, list[float]], floor: float, room: _Room
) -> HeadroomEstimate:
    """Return what a line through the needs says, or why none can be laid."""
    line = _Line(*_thin(by_size))
    residuals = [need - line.predict(size) for size, needs in by_size.items() for need in needs]
    spread = find_spread(residuals, len(line.sizes))
    reason = _refuse_line(line, spread)
    if reason is not None:
        return msgspec.structs.replace(empty, reason=reason)
    prediction = _Prediction(line, spread, empty.confidence)
    farthest = int(FARTHEST * line.sizes[-1])
    expected = ((room.sure_bytes + room.best_bytes) / 2 - line.offset) / line.slope
    largest = _find_last(
        lambda size: prediction.upper(size) <= room.sure_bytes, max(0, min(int(expected), farthest))
    )
    # What still may fit in the best case; the next size does not.
    possible = _find_last(lambda size: prediction.lower(size) <= room.best_bytes, farthest)
    return msgspec.structs.replace(
        empty,
        per_unit_bytes=line.slope,
        base_bytes=round(floor + line.offset),
        expected_size=max(0, int(expected)),
        largest_size=largest,
        too_large_size=None if possible >= farthest else possible + 1,
        is_extrapolated=largest > (empty.largest_seen or 0),
        is_bounded=largest >= farthest,
    )


def _find_last(is_true: Callable[[int], bool], most: int) -> int:
    """Return the last number up to `most` of which something is true that holds for all below."""
    low = 0
    high = most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_true(middle) else (low, middle - 1)
    return low


TO_DEVIATION = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
LEAST_BYTES = float(1 << 20)
"""Least spread: below the granularity of what splits off a block, figures say nothing."""


def find_spread(residuals: Sequence[float], sizes: int) -> float:
    """Return the robust standard deviation of residuals in bytes.

    Args:
        residuals: In bytes.
        sizes: Distinct sizes that the line was laid through, two of which it spent.
    """
    deviation = TO_DEVIATION * (median_of_sorted(sorted(abs(each) for each in residuals)) or 0.0)
    # A tenth of the steps may lie far off and leave the median where it is; they count for what they are.
    tail = sorted(abs(each) for each in residuals)[int(0.9 * (len(residuals) - 1))] / 1.645
    # Few residuals hug their line; the share is that of a median of so few (found by simulation).
    return max(deviation, tail, LEAST_BYTES) * sizes / max(1, sizes - 2)


def find_t(probability: float, freedom: int) -> float:
    """Return the quantile of Student's t distribution.

    Exact for one and two degrees of freedom; else the expansion of Cornish and Fisher (Abramowitz and Stegun,
    26.7.5), right to three digits from three degrees on.

    Args:
        probability: Above 0.5 and below 1.
        freedom: Degrees of freedom, 1 or more.
    """
    if freedom <= 1:
        return math.tan(math.pi * (probability - 0.5))
    if freedom == 2:
        share = 2 * probability - 1
        return share * math.sqrt(2 / (1 - share * share))
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
