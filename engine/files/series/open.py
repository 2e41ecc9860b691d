"""Reader of a series CSV: what any tool can write that knows the memory of devices over time.

The header names the columns, in any order: `time_s`, `device`, `allocated_bytes` or `used_bytes`, and if
known `reserved_bytes`, `total_bytes`, `step`, `allocated_max_bytes`, `used_max_bytes`. Other columns are
ignored, and lines that are empty or begin with #. An empty cell, NaN or N/A is unmeasured.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ...errors import InputFileError
from ..base.input_file import show_path
from ..base.packed_file import LineFile
from ..base.series_reader import (
    MOST_BYTES,
    MOST_SECONDS,
    RecordError,
    SeriesDevice,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
    show_cell,
)

# Cells, in lower case, that mean unmeasured.
UNMEASURED = frozenset(
    {"", "nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity", "n/a", "[n/a]", "na"}
    | {"none", "null", "-", "[not supported]", "not supported"}
)
CUT_OFF = "the last line has no end; its writer may have been stopped within it"
_MOST_STEPS = 2**53


def split_line(line: str, separator: str) -> list[str]:
    """Return the cells of a line; a quoted cell may hold the separator."""
    if '"' not in line:
        return line.split(separator)
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise RecordError("quotes", f"{show_cell(line)} has an unclosed quote") from error


def parse_time(text: str) -> float:
    """Parse seconds; raises `RecordError`."""
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
    """Parse bytes; None is unmeasured; raises `RecordError` if no device could have so many."""
    value = _parse_whole(text, column, "bytes")
    if value is not None and not 0 <= value < MOST_BYTES:
        raise RecordError(
            column, f"{column} is {show_cell(text)}, expected bytes from 0 to below {MOST_BYTES:,}"
        )
    return value


def parse_step(text: str, column: str = "step") -> int | None:
    """Parse a step, whole and from 0 on, or None; raises `RecordError`."""
    value = _parse_whole(text, column, "a whole number")
    if value is not None and not 0 <= value < _MOST_STEPS:
        raise RecordError(column, f"{column} is {show_cell(text)}, expected a whole number from 0 on")
    return value


def _parse_whole(text: str, column: str, expected: str) -> int | None:
    """A whole number may be written as a decimal one."""
    if text.strip().lower() in UNMEASURED:
        return None
    try:
        value = float(text)
        return int(text) if "." not in text and "e" not in text.lower() else round(value)
    except (ValueError, OverflowError) as error:
        raise RecordError(column, f"{column} is {show_cell(text)}, expected {expected}") from error


def is_cut_off(line: str, before: str, separator: str, width: int) -> bool:
    """Return whether a last line without a line end may have lost cells, or digits of its last cell."""
    last = line.rpartition(separator)[2]
    last_before = before.rpartition(separator)[2]
    return line.count(separator) + 1 < width or len(last.strip()) < len(last_before.strip())


def is_skipped(line: str) -> bool:
    start = line.lstrip()
    return not start or start.startswith("#")


SIZES = ("allocated_bytes", "reserved_bytes", "used_bytes", "total_bytes")
# Most since the line before, from tools that read more often than they write.
PEAKS = ("allocated_max_bytes", "used_max_bytes")
COLUMNS = ("time_s", "device", *SIZES, "step", *PEAKS)
EXPECTATION = (
    "expected a header such as time_s,device,allocated_bytes[,reserved_bytes,used_bytes,total_bytes,step]"
)
SEPARATORS = (",", ";", "\t")


class SeriesHeader(msgspec.Struct, frozen=True):
    separator: str
    width: int
    # Position of each of `COLUMNS`; `width`, at which one empty cell is put, for a column that is absent.
    positions: tuple[int, ...]
    ignored: tuple[str, ...]

    @property
    def has_peaks(self) -> bool:
        """Whether the file has more of a time than one reading."""
        return any(self.has(column) for column in PEAKS)

    def has(self, column: str) -> bool:
        return self.positions[COLUMNS.index(column)] < self.width


def choose_separator(line: str) -> str:
    """Comma, semicolon or tab, whichever the line has most of."""
    return max(SEPARATORS, key=line.count)


def parse_series_header(line: str) -> SeriesHeader | None:
    """Return the columns that a line names, or None if it is no header of a series."""
    if "time_s" not in line.lower():
        return None
    separator = choose_separator(line)
    names = [name.strip().lower() for name in split_line(line, separator)]
    if "time_s" not in names:
        return None
    if "device" not in names:
        raise RecordError("header", f"no column device; {EXPECTATION}")
    if not {"allocated_bytes", "used_bytes"} & set(names):
        raise RecordError("header", f"no column allocated_bytes or used_bytes; {EXPECTATION}")
    twice = next((name for name in COLUMNS if names.count(name) > 1), None)
    if twice is not None:
        raise RecordError("header", f"the column {twice} appears twice; expected it once")
    width = len(names)
    positions = tuple(names.index(name) if name in names else width for name in COLUMNS)
    return SeriesHeader(separator, width, positions, tuple(name for name in names if name not in COLUMNS))


# A whole number of fewer digits is below a pebibyte and needs no further check.
_DIGITS = 16
_MOST_CELLS_KNOWN = 1 << 16


class SeriesFile(SeriesReader):
    format: SeriesFormat = "series CSV"

    def __init__(self, path: Path) -> None:
        self._lines = LineFile(path)
        super().__init__(path, self._lines)
        self._known: dict[str, SeriesDevice] = {}
        self._line_before = ""
        self._header = self._find_header()

    @property
    def has_allocator(self) -> bool:
        return self._header.has("allocated_bytes") or self._header.has("reserved_bytes")

    @property
    def notes(self) -> tuple[str, ...]:
        ignored = self._header.ignored
        names = ", ".join(show_cell(name) for name in ignored[:6]) + (" and more" if len(ignored) > 6 else "")
        cut = "the compressed file is cut short; the rest is missing"
        return (
            *((f"columns that no series has were ignored: {names}",) if ignored else ()),
            *self._devices.describe_names(),
            *((cut,) if self._lines.is_cut else ()),
            *self._left_out.notes(),
        )

    def records(self) -> Iterator[SeriesRecord]:
        for first, lines in self._lines.blocks():
            self._left_out.seen = first + len(lines)
            numbered = iter(enumerate(lines, first))
            header = None
            while header is not self._header:
                header = self._header
                yield from self._parse_run(numbered)
            self._line_before = lines[-1]
        if self._lines.unfinished is not None:
            yield from self._parse_unfinished(self._lines.unfinished_number, self._lines.unfinished)

    def _find_header(self) -> SeriesHeader:
        for number, line in enumerate(self._lines.head_lines(), 1):
            if is_skipped(line):
                continue
            try:
                header = parse_series_header(line)
            except RecordError as error:
                raise self._refuse(number, str(error)) from error
            if header is None:
                raise self._refuse(number, f"{show_cell(line)} is not a header; {EXPECTATION}")
            return header
        raise self._refuse(1, f"no header; {EXPECTATION}")

    def _refuse(self, number: int, detail: str) -> InputFileError:
        self.close()
        return InputFileError(f"{show_path(self._path)}: line {number}: {detail}")

    def _parse_run(self, numbered: Iterator[tuple[int, str]]) -> Iterator[SeriesRecord]:
        """Yield records up to a line that changes the header; as little work a line as Python permits."""
        header = self._header
        known = self._known
        separator = header.separator
        width = header.width
        at_time, at_device, at_allocated, at_reserved, at_used, at_total, at_step, *at_peaks = (
            header.positions
        )
        has_peaks = header.has_peaks
        peaks: tuple[int | None, int | None] = (None, None)
        for number, line in numbered:
            cells = line.split(separator)
            if len(cells) != width or '"' in line:
                cells = self._split_again(number, line)
                if not cells:
                    if self._header is not header:
                        return
                    continue
            cells.append("")
            try:
                time_s = float(cells[at_time])
                if not -MOST_SECONDS < time_s < MOST_SECONDS:
                    raise ValueError
                text = cells[at_allocated]
                allocated = int(text) if text.isdigit() and len(text) < _DIGITS else parse_size(text)
                text = cells[at_reserved]
                reserved = int(text) if text.isdigit() and len(text) < _DIGITS else parse_size(text)
                text = cells[at_used]
                used = int(text) if text.isdigit() and len(text) < _DIGITS else parse_size(text)
                text = cells[at_total]
                total = int(text) if text.isdigit() and len(text) < _DIGITS else parse_size(text)
                text = cells[at_step]
                step = int(text) if text.isdigit() and len(text) < _DIGITS else parse_step(text)
                if has_peaks:
                    peaks = parse_size(cells[at_peaks[0]]), parse_size(cells[at_peaks[1]])
                device = known.get(cells[at_device]) or self._find_device(cells[at_device])
            except ValueError:
                self._count_unusable(number, line, cells)
                if self._header is not header:
                    return
                continue
            allocated_max, used_max = peaks
            # No device has a capacity of zero: such a value was never measured.
            yield SeriesRecord(
                number,
                time_s,
                device,
                allocated,
                reserved,
                used,
                total or None,
                step,
                allocated_max_bytes=allocated_max,
                used_max_bytes=used_max,
            )

    def _split_again(self, number: int, line: str) -> list[str]:
        """Return the cells of a line that is not plain, or [] if it has no record."""
        if is_skipped(line):
            return []
        try:
            if self._switch_header(line):
                return []
            cells = split_line(line, self._header.separator)
        except RecordError as error:
            self._left_out.add(error.kind, f"line {number}", str(error))
            return []
        width = self._header.width
        if len(cells) != width:
            self._left_out.add("cells", f"line {number}", f"{len(cells)} cells, expected {width}")
            return []
        return cells

    def _find_device(self, cell: str) -> SeriesDevice:
        device = self._devices.find(cell)
        if len(self._known) < _MOST_CELLS_KNOWN:
            self._known[cell] = device
        return device

    def _count_unusable(self, number: int, line: str, cells: list[str]) -> None:
        """Count a record that cannot be used, with the first of its cells that is wrong."""
        if is_skipped(line):
            return
        at = dict(zip(COLUMNS, self._header.positions, strict=True))
        try:
            if self._switch_header(line):
                return
            parse_time(cells[at["time_s"]])
            for column in (*SIZES, *PEAKS):
                parse_size(cells[at[column]], column)
            parse_step(cells[at["step"]])
            self._devices.find(cells[at["device"]])
        except RecordError as error:
            self._left_out.add(error.kind, f"line {number}", str(error))

    def _switch_header(self, line: str) -> bool:
        """Return whether a line is a header, as in joined files; its columns count from there on."""
        header = parse_series_header(line)
        if header is not None and header != self._header:
            self._header = header
        return header is not None

    def _parse_unfinished(self, number: int, line: str) -> Iterator[SeriesRecord]:
        """Yield the record of a last line without a line end, unless its writer was cut off within it."""
        before = "" if _names_columns(self._line_before) else self._line_before
        if is_cut_off(line, before, self._header.separator, self._header.width):
            self._left_out.add("cut", f"line {number}", CUT_OFF)
            return
        yield from self._parse_run(iter([(number, line)]))


def _names_columns(line: str) -> bool:
    """Return whether a line is a header, even one with errors."""
    try:
        return parse_series_header(line) is not None
    except RecordError:
        return True
