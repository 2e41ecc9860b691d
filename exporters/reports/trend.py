"""Straight lines through snapshots, for the fields of the original reports; no verdict rests on them."""

from collections.abc import Iterable, Sequence

LEAST_MOMENTS = 3
"""A line goes through any two, so that two samples tell no rate."""


def fit_slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the slope of the least-squares line through points; None for fewer than three moments.

    Args:
        points: Time in seconds and value.
    """
    if len({time_s for time_s, _ in points}) < LEAST_MOMENTS:
        return None
    middle_s = sum(time_s for time_s, _ in points) / len(points)
    middle = sum(value for _, value in points) / len(points)
    spread = sum((time_s - middle_s) ** 2 for time_s, _ in points)
    if spread <= 0.0:
        return None
    return sum((time_s - middle_s) * (value - middle) for time_s, value in points) / spread


def known_points(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """Return the points whose value was measured."""
    return [(time_s, value) for time_s, value in points if value is not None]
