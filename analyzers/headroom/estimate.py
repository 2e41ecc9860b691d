"""Memory per token, and the largest batch that would fit: a robust line through the peaks of steps.

Method: Theil-Sen line through what each step needed beyond its floor, against its size; the answer is the
size at which the upper end of the prediction interval (Student's t on the robust spread of the residuals)
meets the limit. It is refused where sizes hardly differ, peaks do not follow them, or not in a straight line:
attention without a fused kernel grows with the square of the length.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from ...engine.units import format_bytes
from ..robust_slope import find_slope, median_of_sorted
from .spread import find_spread, find_t

LEAST_SIZES = 3
"""Distinct sizes from which a line can be told from a bend."""
LEAST_RANGE = 0.2
"""Least distance of the sizes, as a share of the largest."""
MOST_SIZES = 64
BEND_SHARE = 0.15
"""Most by which the slopes of the smaller and the larger half may differ, as a share of the whole's."""
SIGMAS = 4.0
"""And standard errors that they must differ by, since slopes of few steps differ by chance."""
BLUR_SHARE = 0.25
"""Most that the spread may be, as a share of what the line rises."""
FARTHEST = 4.0
"""How many times the largest size seen the answer may be at most."""
CONFIDENCE = 0.9


class StepSize(msgspec.Struct, frozen=True, gc=False):
    """One step: its size in tokens, samples or whatever the program counts, and its memory."""

    size: float
    peak_bytes: int
    floor_bytes: int | None = None
    """Live bytes between steps; what grows there is not charged to the size."""


class HeadroomEstimate(msgspec.Struct, frozen=True):
    """What the steps say; None where it was refused."""

    unit: str
    limit_bytes: int
    steps: int
    sizes: int
    """Distinct sizes."""
    largest_seen: float | None
    confidence: float
    """Probability that a step of `largest_size` fits."""
    reason: str | None = None
    """Why there is no answer, in a clause."""
    per_unit_bytes: float | None = None
    base_bytes: int | None = None
    """Peak of a step of size 0 by the line: what does not depend on the size."""
    expected_size: int | None = None
    """Size whose peak meets the limit by the line: an even chance."""
    largest_size: int | None = None
    """Largest size that fits with the confidence; 0 where not even the smallest does."""
    is_extrapolated: bool = False
    """Whether that is beyond the largest size seen."""
    is_bounded: bool = False
    """Whether more might fit, but is too far beyond what was seen to tell."""

    @property
    def sentence(self) -> str:
        """The answer for people."""
        if self.reason is not None or self.largest_size is None:
            return f"No headroom in {self.unit} can be told: {self.reason}"
        per_unit = format_bytes(round(self.per_unit_bytes or 0))
        least = "at least " if self.is_bounded else ""
        beyond = "beyond" if self.is_extrapolated else "within"
        return (
            f"{per_unit} for each of the {self.unit} over {format_bytes(self.base_bytes)}: "
            f"{least}{self.largest_size:,} would fit {format_bytes(self.limit_bytes)} with "
            f"{self.confidence:.0%} confidence ({beyond} what was seen, up to {self.largest_seen:,.0f})"
        )


class _Line:
    """A robust line through the peaks, and how far they lie from it."""

    def __init__(self, sizes: Sequence[float], needs: Sequence[float]) -> None:
        self.sizes, self.needs = sizes, needs
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


def estimate_headroom(
    points: Iterable[StepSize],
    limit_bytes: int,
    *,
    unit: str = "tokens",
    utilization: float | None = None,
    confidence: float = CONFIDENCE,
) -> HeadroomEstimate:
    """Return the memory per unit of size and the largest size that would fit, or why that cannot be told.

    Args:
        points: Steps of one process, in order.
        limit_bytes: Most that its allocator can reserve.
        unit: What sizes count, in the plural.
        utilization: Peak allocated / peak reserved of the process, where known: the limit holds reserved
            bytes, of which only so much can be live.
        confidence: Probability that the largest size fits, above 0.5 and below 1.
    """
    steps = [point for point in points if point.size > 0]
    by_size = _group(steps)
    empty = HeadroomEstimate(
        unit=unit,
        limit_bytes=limit_bytes,
        steps=len(steps),
        sizes=len(by_size),
        largest_seen=max(by_size, default=None),
        confidence=confidence,
    )
    reason = _refuse_sizes(list(by_size))
    if reason is not None:
        return msgspec.structs.replace(empty, reason=reason)
    line = _Line(*_thin(by_size))
    spread = find_spread(
        [need - line.predict(size) for size, needs in by_size.items() for need in needs], len(line.sizes)
    )
    reason = _refuse_line(line, spread)
    if reason is not None:
        return msgspec.structs.replace(empty, reason=reason)
    floor = _find_floor(steps)
    return _answer(empty, line, spread, floor, limit_bytes * (utilization or 1.0))


def _group(steps: Sequence[StepSize]) -> dict[float, list[float]]:
    """Return what the steps of each size needed beyond their floors, sizes ascending."""
    has_floors = all(step.floor_bytes is not None for step in steps)
    found: dict[float, list[float]] = {}
    for step in sorted(steps, key=lambda step: step.size):
        need = step.peak_bytes - (step.floor_bytes or 0 if has_floors else 0)
        found.setdefault(step.size, []).append(float(need))
    return found


def _thin(by_size: dict[float, list[float]]) -> tuple[list[float], list[float]]:
    """Return sizes with the median of what they needed; of many sizes, evenly chosen ones."""
    sizes = list(by_size)
    if len(sizes) > MOST_SIZES:
        last = len(sizes) - 1
        sizes = [sizes[round(at * last / (MOST_SIZES - 1))] for at in range(MOST_SIZES)]
    return sizes, [median_of_sorted(sorted(by_size[size])) or 0.0 for size in sizes]


def _find_floor(steps: Sequence[StepSize]) -> float:
    """Return the newest floor; 0 where they are not known, and the peaks themselves were fitted."""
    if any(step.floor_bytes is None for step in steps):
        return 0.0
    return float(steps[-1].floor_bytes or 0)


def _refuse_sizes(sizes: list[float]) -> str | None:
    if len(sizes) < LEAST_SIZES:
        count = "one size" if len(sizes) == 1 else f"{len(sizes) or 'no'} sizes"
        return f"{count} of steps seen, at least {LEAST_SIZES} are needed"
    if sizes[-1] - sizes[0] < LEAST_RANGE * sizes[-1]:
        return f"the sizes seen differ by less than {LEAST_RANGE:.0%}"
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
    empty: HeadroomEstimate, line: _Line, spread: float, floor: float, room_bytes: float
) -> HeadroomEstimate:
    farthest = FARTHEST * line.sizes[-1]
    expected = (room_bytes - floor - line.offset) / line.slope
    largest = _find_largest(line, spread, room_bytes - floor, min(expected, farthest), empty.confidence)
    return msgspec.structs.replace(
        empty,
        per_unit_bytes=line.slope,
        base_bytes=round(floor + line.offset),
        expected_size=max(0, int(expected)),
        largest_size=largest,
        is_extrapolated=largest > line.sizes[-1],
        is_bounded=largest >= int(farthest),
    )


def _find_largest(line: _Line, spread: float, room: float, most: float, confidence: float) -> int:
    """Return the largest whole size of which the upper end of the prediction interval fits."""
    count = len(line.sizes)
    mean = sum(line.sizes) / count
    squares = _sum_squares(line.sizes)
    t = find_t(confidence, count - 2)

    def fits(size: int) -> bool:
        error = spread * math.sqrt(1 + 1 / count + (size - mean) ** 2 / squares)
        return line.predict(size) + t * error <= room

    low, high = 0, max(0, int(most))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
