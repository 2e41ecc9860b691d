"""Memory as a sum of two parts, by least squares: what is divided by TP × PP, and what by TP alone.

Weights and optimizer states are divided by both. The activations of the first stage are not: with PP times
less of the layers it keeps up to PP micro-batches in flight (Narayanan et al., "Efficient Large-Scale
Language Model Training on GPU Clusters Using Megatron-LM", SC 2021, section 2.2: the 1F1B schedule).
"""

from collections.abc import Sequence
from typing import NamedTuple

from .model import SweepCell

LEAST_CELLS = 3
_WORST_SHARE = 0.05
"""A theory that two parts describe less well than this is no sum of them."""


class TwoParts(NamedTuple):
    """Bytes of a whole model that memory is made of, neither below zero."""

    states_bytes: float
    """Divided by TP × PP."""
    activations_bytes: float
    """Divided by TP."""
    worst_share: float
    """Largest error, as a share of the value it was fitted to."""

    def predict(self, tp: int, pp: int) -> float:
        """Return the bytes of a layout."""
        return self.states_bytes / (tp * pp) + self.activations_bytes / tp


def fit_two_parts(cells: Sequence[SweepCell], values: Sequence[float]) -> TwoParts | None:
    """Return the two parts that come nearest to some values, None where the cells cannot tell them apart.

    Args:
        cells: Whose TP and PP to take.
        values: Bytes of each.
    """
    if len(cells) < LEAST_CELLS or len({cell.pp for cell in cells}) < 2:
        return None
    first = [1.0 / cell.gpus_per_replica for cell in cells]
    second = [1.0 / cell.tp for cell in cells]
    states, activations = solve_two(first, second, values)
    errors = [
        abs(states * a + activations * b - value) / value
        for a, b, value in zip(first, second, values, strict=True)
        if value > 0
    ]
    return TwoParts(states, activations, max(errors, default=0.0))


def solve_two(
    first: Sequence[float], second: Sequence[float], values: Sequence[float]
) -> tuple[float, float]:
    """Return the two weights, neither below zero, with which two columns come nearest to some values."""
    aa = _dot(first, first)
    bb = _dot(second, second)
    ab = _dot(first, second)
    ay = _dot(first, values)
    by = _dot(second, values)
    determinant = aa * bb - ab * ab
    alone = max(0.0, ay / aa if aa else 0.0), max(0.0, by / bb if bb else 0.0)
    if determinant > 1e-12 * aa * bb:
        both = (ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant
        if min(both) >= 0:
            return both
    # The best of what is at the edge: one of the two is zero.
    is_first = aa * alone[0] ** 2 >= bb * alone[1] ** 2
    return (alone[0], 0.0) if is_first else (0.0, alone[1])


def split_theory(cells: Sequence[SweepCell]) -> tuple[list[tuple[float, float]], str] | None:
    """Return states and activations of each cell as the theory has them, and where they are from.

    The logs tell them; else they are worked out of the theory's own values, as far as those are such a sum.
    """
    told = [
        (float(cell.states_bytes), float(cell.activations_bytes))
        for cell in cells
        if cell.states_bytes is not None and cell.activations_bytes is not None
    ]
    if told and len(told) == len(cells):
        return told, "as the logs tell them"
    parts = fit_two_parts(cells, [float(cell.theory_bytes or 0) for cell in cells])
    if parts is None or parts.worst_share > _WORST_SHARE:
        return None
    split = [(parts.states_bytes / it.gpus_per_replica, parts.activations_bytes / it.tp) for it in cells]
    return split, "worked out of how the theory changes with PP"


def _dot(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))
