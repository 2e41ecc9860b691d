"""Figures in files of phases: MB and GB there are binary, MiB and GiB."""

from ...units import MIB
from ..base.series_record import MOST_BYTES

NUMBER = r"[-+]?\d{1,12}(?:\.\d{1,9})?"
"""A figure as the profilers print it."""


def read_mebibytes(text: str) -> int | None:
    """Return bytes, or None where the figure is none of memory."""
    return find_bytes(float(text), MIB)


def find_bytes(value: float | None, unit_bytes: int = 1) -> int | None:
    """Return whole bytes of a figure in a unit, or None where it is absent or none of memory."""
    if value is None or not -MOST_BYTES < value * unit_bytes < MOST_BYTES:
        return None
    return round(value * unit_bytes)
