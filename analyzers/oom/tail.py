"""How likely a step needs more than any of those seen: the tail beyond them, by peaks over a threshold."""

import math
from collections.abc import Sequence

TAIL_SHARE = 0.1
"""Share of the amplitudes that are taken for the tail."""
LEAST_TAIL = 10
BOUND_TIES, BOUND_SHARE = 4, 0.002
"""Amplitudes that reach the largest to such a share of it, where something bounds them."""
PRIOR_COUNT, PRIOR_SHAPE = 20, 0.1
"""Exceedances that the belief counts for that lengths have a tail like that of a log-normal distribution."""
SHAPE_BOUNDS = (-0.5, 0.3)
"""Shapes that are believed; few exceedances tell it badly."""


def probability_ahead(amplitudes: Sequence[float], room: float, rounds: float) -> float:
    """Return the probability that one of the next rounds takes more than a room.

    Of exchangeable rounds the next m hold a new record after n with probability m / (m + n), whatever their
    distribution; how far a record goes beyond the last follows from the tail, as exceedances of a high
    threshold follow a generalised Pareto distribution (Pickands 1975). So a job that has kept within bounds
    for long is not feared for, however near the limit it works.

    Args:
        amplitudes: What rounds took above their floor, in bytes, falling, without growth.
        room: Capacity less the floor, in bytes.
        rounds: How many rounds ahead.
    """
    count = len(amplitudes)
    record = rounds / (rounds + count)
    if room < amplitudes[0]:
        return record
    tail = max(LEAST_TAIL, int(count * TAIL_SHARE))
    if count <= tail or _is_bounded(amplitudes):
        return 0.0
    threshold = amplitudes[tail]
    shape, scale = fit_tail([value - threshold for value in amplitudes[:tail]][::-1])
    reached = survive_tail(shape, scale, amplitudes[0] - threshold)
    if scale <= 0.0 or reached <= 0.0:
        return 0.0
    return record * min(1.0, survive_tail(shape, scale, room - threshold) / reached)


def _is_bounded(amplitudes: Sequence[float]) -> bool:
    """Return whether the largest was met again and again, as by batches that are cut at a length."""
    return amplitudes[0] - amplitudes[BOUND_TIES] <= BOUND_SHARE * amplitudes[0]


def fit_tail(excess: Sequence[float]) -> tuple[float, float]:
    """Return shape and scale of a generalised Pareto distribution; the shape is positive for heavy tails.

    Args:
        excess: What is above the threshold, rising.
    """
    count = len(excess)
    first = sum(excess) / count
    second = sum([(count - 1 - place) * value for place, value in enumerate(excess)]) / (count * (count - 1))
    if first <= 0 or first <= 2 * second:
        return 0.0, first
    shape = 2 - first / (first - 2 * second)
    shape = (count * shape + PRIOR_COUNT * PRIOR_SHAPE) / (count + PRIOR_COUNT)
    shape = min(max(shape, SHAPE_BOUNDS[0]), SHAPE_BOUNDS[1])
    return shape, first * (1 - shape)


def survive_tail(shape: float, scale: float, excess: float) -> float:
    """Return the probability that an exceedance is greater than so much."""
    if abs(shape) < 1e-6:
        return math.exp(-excess / scale)
    base = 1 + shape * excess / scale
    return 0.0 if base <= 0 else base ** (-1 / shape)
