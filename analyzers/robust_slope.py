"""A slope that a few odd values do not move: the median of the slopes between all pairs of points.

Method: Theil (1950) and Sen (1968).
"""

from collections.abc import Sequence


def find_slope(times_s: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the robust slope per second; None where fewer than two points differ in time.

    Args:
        times_s: Times in seconds, ascending.
        values: As many values.
    """
    slopes = sorted(
        (values[later] - values[sooner]) / (times_s[later] - times_s[sooner])
        for later in range(len(times_s))
        for sooner in range(later)
        if times_s[later] > times_s[sooner]
    )
    return median_of_sorted(slopes)


def median_of_sorted(ordered: Sequence[float]) -> float | None:
    """Return the middle of ascending values, the mean of the two in the middle of an even number."""
    if not ordered:
        return None
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
