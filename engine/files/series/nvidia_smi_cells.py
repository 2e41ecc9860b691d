"""Cells of an nvidia-smi log: figures with or without their unit, and what stands where there is none."""

import re

from ...model import DeviceState
from ..base.series_record import MOST_BYTES, RecordError, show_cell

NO_FIGURE = re.compile(r"\[?(?:N/?A|Not Supported|Not Available|Insufficient Permissions)\]?", re.IGNORECASE)
LOST = re.compile(r"\[?(?:GPU is lost|Unknown Error|GPU requires reset|ERR!?)\]?", re.IGNORECASE)
_FIGURE = re.compile(r"(-?\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z%]*)")
_BYTES = {"b": 1, "kib": 2**10, "kb": 2**10, "mib": 2**20, "mb": 2**20, "gib": 2**30, "gb": 2**30}
"""What nvidia-smi called MB before it said MiB was MiB too."""


def judge_cell(text: str) -> tuple[DeviceState, str] | None:
    """Return the state of a device whose memory a cell does not tell, with the reason; None where it does."""
    cell = text.strip()
    if NO_FIGURE.fullmatch(cell) or not cell:
        return "unsupported", f"nvidia-smi told no memory: {cell or 'an empty cell'}"
    if LOST.fullmatch(cell):
        return "lost", f"nvidia-smi said {cell}"
    return None


def parse_memory(text: str, column: str, unit: str) -> int | None:
    """Return bytes from a figure of memory, or None where there is none.

    Args:
        text: The cell; a unit in it counts more than that of the header.
        column: Its name, for the error.
        unit: Unit of the header.

    Raises:
        RecordError: It is no figure of memory that a device could have.
    """
    cell = text.strip()
    if judge_cell(cell) is not None:
        return None
    match = _FIGURE.fullmatch(cell)
    factor = _BYTES.get((match[2] or unit).lower()) if match else None
    if match is None or factor is None:
        raise RecordError(column, f"{column} is {show_cell(cell)}, expected memory such as 1234 MiB")
    value = round(float(match[1]) * factor)
    if not 0 <= value < MOST_BYTES:
        raise RecordError(column, f"{column} is {show_cell(cell)}, expected memory that a device could have")
    return value


def parse_figure(text: str) -> float | None:
    """Return a plain figure (percent, °C, W), or None: what decides nothing refuses no record."""
    match = _FIGURE.fullmatch(text.strip())
    return None if match is None else float(match[1])
