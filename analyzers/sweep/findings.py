"""All that a sweep says, in the order in which a person asks."""

from itertools import chain

from .best import describe_best
from .failures import describe_failures
from .model import SweepFinding, SweepGrid
from .prediction import describe_prediction
from .recommendation import describe_recommendations
from .trends import describe_trends


def find_all(grid: SweepGrid) -> tuple[SweepFinding, ...]:
    """Return the findings of a sweep: best, trends, failures, the theory's errors, what to try next."""
    described = (
        describe_best,
        describe_trends,
        describe_failures,
        describe_prediction,
        describe_recommendations,
    )
    return tuple(chain.from_iterable(describe(grid) for describe in described))
