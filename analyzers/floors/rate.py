"""Robust lines: the median of all pairwise slopes, and how far it can be trusted."""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

PARTS = 3
# Points from which on a line may be curved.
LEAST_CURVED = 12
# Standard errors by which a line must be curved.
CLEAR = 5.0
# The slope rises from third to third: the smaller rise as a share of the larger, at least.
LEAST_EVEN = 0.15
# Points from which a correlation is computed, and the most that is believed.
LEAST_REMEMBERED = 8
MOST_MEMORY = 0.8
# Least standard error of a bend, as a share, whatever the scatter: growth seldom is a parabola.
BEND_DOUBT = 0.3
# Scatter about the parabola, as a share of that about the line, up to which it is the better of the two.
CLOSER = 0.75
# Moments that a slope takes at least.
LEAST_MOMENTS = 3


class Line(NamedTuple):
    """A line through floors: straight, or curved where they grow faster and faster."""

    # Its slope at `at_s`.
    bytes_per_s: float
    # Standard error of the slope.
    error: float
    at_s: float
    at_bytes: float
    # By how much the slope rises a second, in bytes/s².
    bend: float = 0.0
    bend_error: float = 0.0
    # How far points deviate from it: the standard deviation estimated from the median deviation.
    scatter: float = 0.0
    # Correlation between the deviations of consecutive points, from 0 to `MOST_MEMORY`.
    memory: float = 0.0

    @property
    def whole_error(self) -> float:
        """Standard error of the slope where the deviations of consecutive points are correlated."""
        return self.error * math.sqrt((1 + self.memory) / (1 - self.memory))

    def level_at(self, time_s: float) -> float:
        passed_s = time_s - self.at_s
        return self.at_bytes + self.bytes_per_s * passed_s + self.bend * passed_s**2 / 2

    def measure_above(self, levels: Iterable[tuple[float, float]], since_s: float = -math.inf) -> list[float]:
        """Return how far levels (seconds, bytes) are above it, in bytes; before `since_s` it is as at that
        moment.
        """
        at_s = self.at_s
        at_bytes = self.at_bytes
        slope = self.bytes_per_s
        half = self.bend / 2
        passed = [((since_s if time_s < since_s else time_s) - at_s, level) for time_s, level in levels]
        if not half:
            return [level - (at_bytes + slope * passed_s) for passed_s, level in passed]
        return [level - (at_bytes + slope * passed_s + half * passed_s**2) for passed_s, level in passed]

    def slope_at(self, time_s: float) -> float:
        return self.bytes_per_s + self.bend * (time_s - self.at_s)


def fit_line(points: Sequence[tuple[float, float]]) -> Line:
    """Return a line through points that outliers do not turn (Theil 1950, Sen 1968).

    The standard error is that of ordinary least squares for the scatter about the line, which is 1.4826
    times the median deviation; the robust slope is less efficient by a factor of 0.95 only. At least two
    points
    of seconds, rising, and bytes.
    """
    slope = estimate_rate(points)
    middle_s = sum([time_s for time_s, _ in points]) / len(points)
    rests = [level - slope * (time_s - middle_s) for time_s, level in points]
    at_bytes = median(rests)
    scatter = 1.4826 * median([abs(rest - at_bytes) for rest in rests])
    spread = math.sqrt(sum([(time_s - middle_s) ** 2 for time_s, _ in points]))
    error = scatter / spread / 0.95
    memory = _correlate([rest - at_bytes for rest in rests])
    return Line(slope, error, middle_s, at_bytes, scatter=scatter, memory=memory)


def _correlate(rests: Sequence[float]) -> float:
    """Return the correlation of each with the next: stairs and saws deviate from a line for long."""
    square = sum([rest**2 for rest in rests])
    if square <= 0 or len(rests) < LEAST_REMEMBERED:
        return 0.0
    return min(max(sum([a * b for a, b in pairwise(rests)]) / square, 0.0), MOST_MEMORY)


def fit_curve(points: Sequence[tuple[float, float]]) -> Line:
    """Return a line through points as for `fit_line`; a parabola where they clearly become steeper and
    steeper.

    Floors that begin to grow within the first third are no curve: its slope is less, and the others agree.
    """
    straight = fit_line(points)
    if len(points) < LEAST_CURVED:
        return straight
    bend, error = _find_bend(points)
    if bend <= 0:
        return straight
    end_s = points[-1][0]
    line = fit_line([(at_s, level - bend * (at_s - end_s) ** 2 / 2) for at_s, level in points])
    curve = line._replace(at_s=end_s, at_bytes=line.level_at(end_s), bend=bend, bend_error=error)
    return curve if _scatter_about(curve, points) <= CLOSER * _scatter_about(straight, points) else straight


def _find_bend(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return by how much the slope rises, and the standard error, in bytes/s²; 0 where that is not clear.

    One leap alone, as where growth begins within the points, is no steepening. What the newest third shows
    counts as much as the whole.
    """
    size = len(points) // PARTS
    parts = [fit_line(part) for part in (points[:size], points[size:-size], points[-size:])]
    first, second = (after.bytes_per_s - before.bytes_per_s for before, after in pairwise(parts))
    error = math.hypot(parts[0].error, parts[2].error)
    if first + second <= CLEAR * error or min(first, second) < LEAST_EVEN * max(first, second):
        return 0.0, 0.0
    apart_s = parts[2].at_s - parts[0].at_s
    newest = second / (parts[2].at_s - parts[1].at_s)
    bend = ((first + second) / apart_s + newest) / 2
    return bend, math.hypot(error / apart_s, BEND_DOUBT * bend)


def _scatter_about(line: Line, points: Sequence[tuple[float, float]]) -> float:
    return median([abs(level - line.level_at(at_s)) for at_s, level in points])


def fit_least_squares(points: Sequence[tuple[float, float]], blur: float = 0.0) -> tuple[float, float]:
    """Return the slope of (seconds, value) points, three or more, and its standard error.

    Args:
        blur: How far a value may be from the true one, at least.
    """
    middle_s = sum([time_s for time_s, _ in points]) / len(points)
    middle = sum([value for _, value in points]) / len(points)
    spread = sum([(time_s - middle_s) ** 2 for time_s, _ in points])
    slope = sum([(time_s - middle_s) * (value - middle) for time_s, value in points]) / spread
    squares = sum([(value - middle - slope * (time_s - middle_s)) ** 2 for time_s, value in points])
    return slope, math.sqrt(max(squares / (len(points) - 2), blur**2) / spread)


def fit_clear_slope(points: Sequence[tuple[float, float]], blur: float, errors: float) -> float | None:
    """Return the least-squares slope of (seconds, value) points; 0 where it may be chance.

    Args:
        blur: How far a value may be from the true one, at least.
        errors: Standard errors by which a slope must differ from none.

    Returns:
        None for fewer than three moments: any two fit a line.
    """
    if len({time_s for time_s, _ in points}) < LEAST_MOMENTS:
        return None
    slope, error = fit_least_squares(points, blur)
    return slope if abs(slope) > errors * error else 0.0


def estimate_rate(points: Sequence[tuple[float, float]]) -> float:
    """Return the median of the slopes between all pairs of points."""
    slopes = [
        (points[after][1] - points[before][1]) / (points[after][0] - points[before][0])
        for before in range(len(points))
        for after in range(before + 1, len(points))
    ]
    return median(slopes)


# A slope that a few odd values do not move: the median of the slopes between all pairs of points.

# Method: Theil (1950) and Sen (1968).


def find_slope(times_s: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the robust slope per second; None where fewer than two points differ in time."""
    slopes = sorted(
        (values[later] - values[sooner]) / (times_s[later] - times_s[sooner])
        for later in range(len(times_s))
        for sooner in range(later)
        if times_s[later] > times_s[sooner]
    )
    return median_of_sorted(slopes)


def median_of_sorted(ordered: Sequence[float]) -> float | None:
    """Return the median of ascending values; None of nothing."""
    if not ordered:
        return None
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
