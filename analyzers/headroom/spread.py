"""How far residuals lie from their line, and the quantiles of Student's t distribution."""

import math
from collections.abc import Sequence
from statistics import NormalDist

from ..robust_slope import median_of_sorted

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
