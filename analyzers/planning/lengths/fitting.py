"""Which law points follow: least squares, and the form by how well it tells points that it was not given.

Method: leave-one-out cross-validation (Stone, 1974) with the rule of one standard error (Breiman, Friedman,
Olshen and Stone, 1984): of the forms that predict about as well as the best one, the one of fewest terms.
Arithmetic is exact, so that points which follow a law to the byte leave nothing over.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import fmean, stdev

from .law import FORMS, LengthLaw

LEAST_POINTS = 3
BLOCK_BYTES = 512
"""Of the CUDA caching allocator: sizes are rounded up to it, so that no law is truer than that."""


def fit_law(lengths: Sequence[int], values_bytes: Sequence[int]) -> LengthLaw | None:
    """Return the law of some points; None where they are too few for any.

    Args:
        lengths: Tokens, each different.
        values_bytes: As many measured values.
    """
    count = len(lengths)
    if count < LEAST_POINTS:
        return None
    # A form needs a point beyond its terms, also where one is left out.
    most_terms = min(len(FORMS), count - 1)
    errors = {terms: _leave_each_out(lengths, values_bytes, terms) for terms in range(1, most_terms + 1)}
    terms = _choose_terms(errors)
    coefficients = _solve(lengths, values_bytes, terms)
    residuals = [
        value - _evaluate(coefficients, length) for length, value in zip(lengths, values_bytes, strict=True)
    ]
    constant, slope, curvature = (float(each) for each in (*coefficients, Fraction(0), Fraction(0))[:3])
    return LengthLaw(
        form=FORMS[terms - 1],
        constant_bytes=constant,
        bytes_per_token=slope,
        bytes_per_token_squared=curvature,
        points=count,
        residual_bytes=_find_root_mean_square(residuals),
        left_out_bytes=_find_root_mean_square(errors[terms]),
    )


def _choose_terms(errors: dict[int, list[Fraction]]) -> int:
    squares = {terms: [float(each * each) for each in missed] for terms, missed in errors.items()}
    best = min(squares.values(), key=fmean)
    allowed = fmean(best) + stdev(best) / math.sqrt(len(best)) + BLOCK_BYTES**2
    return next(terms for terms in sorted(squares) if fmean(squares[terms]) <= allowed)


def _leave_each_out(lengths: Sequence[int], values: Sequence[int], terms: int) -> list[Fraction]:
    """Return by how much each point is missed by the law of the others."""
    missed = []
    for at, (length, value) in enumerate(zip(lengths, values, strict=True)):
        others = [*lengths[:at], *lengths[at + 1 :]], [*values[:at], *values[at + 1 :]]
        missed.append(value - _evaluate(_solve(*others, terms), length))
    return missed


def _evaluate(coefficients: Sequence[Fraction], length: int) -> Fraction:
    return sum((each * length**power for power, each in enumerate(coefficients)), Fraction(0))


def _solve(lengths: Sequence[int], values: Sequence[int], terms: int) -> list[Fraction]:
    """Return the coefficients of least squares, by elimination in the normal equations."""
    moments = [Fraction(sum(length**power for length in lengths)) for power in range(2 * terms - 1)]
    rows = [
        [
            *moments[power : power + terms],
            Fraction(sum(value * length**power for length, value in zip(lengths, values, strict=True))),
        ]
        for power in range(terms)
    ]
    for at in range(terms):
        # The matrix is positive definite as long as lengths differ: no pivot is zero.
        rows[at] = [each / rows[at][at] for each in rows[at]]
        for other in range(terms):
            if other != at:
                factor = rows[other][at]
                rows[other] = [
                    each - factor * taken for each, taken in zip(rows[other], rows[at], strict=True)
                ]
    return [row[-1] for row in rows]


def _find_root_mean_square(values: Sequence[Fraction]) -> float:
    return math.sqrt(fmean(float(each * each) for each in values))
