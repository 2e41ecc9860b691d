"""The header of a series CSV: which column stands where."""

import msgspec

from ..base.series_record import RecordError
from .cells import split_line

SIZES = ("allocated_bytes", "reserved_bytes", "used_bytes", "total_bytes")
PEAKS = ("allocated_max_bytes", "used_max_bytes")
"""Most since the line before: of what was read more often than it was written down."""
COLUMNS = ("time_s", "device", *SIZES, "step", *PEAKS)
EXPECTATION = (
    "expected a header such as time_s,device,allocated_bytes[,reserved_bytes,used_bytes,total_bytes,step]"
)
SEPARATORS = (",", ";", "\t")


class SeriesHeader(msgspec.Struct, frozen=True):
    """Where the columns of a series CSV stand."""

    separator: str
    width: int
    positions: tuple[int, ...]
    """Position of each of `COLUMNS`; `width`, where one empty cell is put, for a column that is absent."""
    ignored: tuple[str, ...]

    @property
    def has_peaks(self) -> bool:
        """Whether the file says more of a time than one reading."""
        return any(self.has(column) for column in PEAKS)

    def has(self, column: str) -> bool:
        """Tell whether the file has a column."""
        return self.positions[COLUMNS.index(column)] < self.width


def choose_separator(line: str) -> str:
    """Return what separates the cells of a line: comma, semicolon or tab, whichever it has most of."""
    return max(SEPARATORS, key=line.count)


def parse_series_header(line: str) -> SeriesHeader | None:
    """Return the columns that a line names, or None where it is no header of a series.

    Raises:
        RecordError: It is one, and a column is absent or there twice.
    """
    if "time_s" not in line.lower():
        return None
    separator = choose_separator(line)
    names = [name.strip().lower() for name in split_line(line, separator)]
    if "time_s" not in names:
        return None
    _check_columns(names)
    width = len(names)
    positions = tuple(names.index(name) if name in names else width for name in COLUMNS)
    return SeriesHeader(separator, width, positions, tuple(name for name in names if name not in COLUMNS))


def _check_columns(names: list[str]) -> None:
    if "device" not in names:
        raise RecordError("header", f"no column device; {EXPECTATION}")
    if not {"allocated_bytes", "used_bytes"} & set(names):
        raise RecordError("header", f"no column allocated_bytes or used_bytes; {EXPECTATION}")
    twice = next((name for name in COLUMNS if names.count(name) > 1), None)
    if twice is not None:
        raise RecordError("header", f"the column {twice} is there twice; expected it once")
