"""Sums and extremes of values that may be unmeasured, which is `None`."""

from collections.abc import Iterable
from typing import TypeVar

NumberT = TypeVar("NumberT", int, float)


def sum_all(values: Iterable[NumberT | None]) -> NumberT | None:
    """Return the sum; None where one value is unmeasured, and 0 without values."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def larger(one: NumberT | None, other: NumberT | None) -> NumberT | None:
    """Return the larger of two; the other where one is unmeasured. Quicker than `most_known`."""
    if one is None or other is None:
        return other if one is None else one
    return one if one > other else other


def smaller(one: NumberT | None, other: NumberT | None) -> NumberT | None:
    """Return the smaller of two; the other where one is unmeasured."""
    if one is None or other is None:
        return other if one is None else one
    return one if one < other else other


def most_known(values: Iterable[NumberT | None]) -> NumberT | None:
    """Return the largest of those that were measured; None where none was."""
    return max([value for value in values if value is not None], default=None)


def least_known(values: Iterable[NumberT | None]) -> NumberT | None:
    """Return the smallest of those that were measured; None where none was."""
    return min([value for value in values if value is not None], default=None)
