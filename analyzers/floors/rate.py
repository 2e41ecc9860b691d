"""Robust lines: the median of all pairwise slopes, and how far it can be trusted."""

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple


class Line(NamedTuple):
    """A straight line through floors."""

    bytes_per_s: float
    error: float
    """Standard error of the slope."""
    at_s: float
    at_bytes: float

    def level_at(self, time_s: float) -> float:
        """Return where it stands at a moment, in bytes."""
        return self.at_bytes + self.bytes_per_s * (time_s - self.at_s)


def fit_line(points: Sequence[tuple[float, float]]) -> Line:
    """Return a line through points that outliers do not turn (Theil 1950, Sen 1968).

    The standard error is that of ordinary least squares for the scatter about the line, which is 1.4826
    times the median deviation; the robust slope is less efficient by a factor of 0.95 only.

    Args:
        points: Seconds and bytes of each, at least two, seconds rising.
    """
    slope = estimate_rate(points)
    middle_s = sum([time_s for time_s, _ in points]) / len(points)
    rests = [level - slope * (time_s - middle_s) for time_s, level in points]
    at_bytes = median(rests)
    scatter = 1.4826 * median([abs(rest - at_bytes) for rest in rests])
    spread = math.sqrt(sum([(time_s - middle_s) ** 2 for time_s, _ in points]))
    return Line(slope, scatter / spread / 0.95, middle_s, at_bytes)


def estimate_rate(points: Sequence[tuple[float, float]]) -> float:
    """Return the median of the slopes between all pairs of points."""
    slopes = [
        (points[after][1] - points[before][1]) / (points[after][0] - points[before][0])
        for before in range(len(points))
        for after in range(before + 1, len(points))
    ]
    return median(slopes)
