"""Cells of a series: which numbers are figures, which words mean unmeasured, and what is refused."""

import csv

from ..base.series_record import MOST_BYTES, MOST_SECONDS, RecordError, show_cell

UNMEASURED = frozenset(
    {"", "nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity", "n/a", "[n/a]", "na"}
    | {"none", "null", "-", "[not supported]", "not supported"}
)
"""What stands in a cell, in lower case, where nothing was measured."""
CUT_OFF = "the last line has no end, and its writer may have been cut off within it"
_MOST_STEPS = 2**53


def split_line(line: str, separator: str) -> list[str]:
    """Return the cells of a line; a quoted cell may hold the separator.

    Raises:
        RecordError: A quote is not closed.
    """
    if '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise RecordError("quotes", f"{show_cell(line)} has a quote that is not closed") from error


def parse_time(text: str) -> float:
    """Return the seconds in a cell.

    Raises:
        RecordError: It is no time in seconds.
    """
    try:
        time_s = float(text)
    except ValueError as error:
        raise RecordError("time_s", f"time_s is {show_cell(text)}, expected seconds") from error
    if not -MOST_SECONDS < time_s < MOST_SECONDS:
        raise RecordError(
            "time_s", f"time_s is {show_cell(text)}, expected seconds (not ms) since a start or since 1970"
        )
    return time_s


def parse_size(text: str, column: str = "") -> int | None:
    """Return the bytes in a cell, or None where it says that nothing was measured.

    Raises:
        RecordError: It is no number of bytes that a device could have.
    """
    value = _parse_whole(text, column, "bytes")
    if value is not None and not 0 <= value < MOST_BYTES:
        raise RecordError(
            column, f"{column} is {show_cell(text)}, expected bytes from 0 to below {MOST_BYTES:,}"
        )
    return value


def parse_step(text: str, column: str = "step") -> int | None:
    """Return the step in a cell, or None where there is none.

    Raises:
        RecordError: It is no whole number from 0 on.
    """
    value = _parse_whole(text, column, "a whole number")
    if value is not None and not 0 <= value < _MOST_STEPS:
        raise RecordError(column, f"{column} is {show_cell(text)}, expected a whole number from 0 on")
    return value


def _parse_whole(text: str, column: str, expected: str) -> int | None:
    """Return a whole number, also where it was written as a decimal one."""
    if text.strip().lower() in UNMEASURED:
        return None
    try:
        value = float(text)
        return int(text) if "." not in text and "e" not in text.lower() else round(value)
    except (ValueError, OverflowError) as error:
        raise RecordError(column, f"{column} is {show_cell(text)}, expected {expected}") from error


def is_cut_off(line: str, before: str, separator: str, width: int) -> bool:
    """Tell whether a last line without a line end may have lost its end: cells, or digits of its last cell.

    Args:
        line: The last line.
        before: The record before it, or nothing.
        separator: What stands between cells.
        width: Number of cells of a whole record.
    """
    last = line.rpartition(separator)[2]
    last_before = before.rpartition(separator)[2]
    return line.count(separator) + 1 < width or len(last.strip()) < len(last_before.strip())


def is_skipped(line: str) -> bool:
    """Tell whether a line is empty or a comment."""
    start = line.lstrip()
    return not start or start.startswith("#")
