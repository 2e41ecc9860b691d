"""Tables of training cases in CSV: a header and one run a row, cells as they stand."""

import csv
import io
from pathlib import Path

import msgspec

from ..errors import InputFileError
from .input_file import decode_text, read_input_file, show_path

LIMIT_BYTES = 256 * 1024**2
_MOST_CELL = 4 * 1024**2


class CaseTable(msgspec.Struct, frozen=True):
    """A table: names of columns, and rows of as many cells."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]


def read_case_table(path: Path) -> CaseTable:
    """Return the rows of a CSV file; short rows are filled with empty cells.

    Raises:
        InputFileError: The file cannot be read, is no UTF-8, has no header, or a row has too many cells.
    """
    data = read_input_file(path, LIMIT_BYTES)
    text = decode_text(data, path, "a CSV file in UTF-8")
    csv.field_size_limit(_MOST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        columns = tuple(name.strip() for name in next(reader))
        _check_header(path, columns)
        rows = tuple(_fill_row(path, reader.line_num, columns, cells) for cells in reader if cells)
    except csv.Error as error:
        raise InputFileError(f"{show_path(path)}: line {reader.line_num}: {error}; expected CSV") from error
    return CaseTable(columns, rows)


def _check_header(path: Path, columns: tuple[str, ...]) -> None:
    doubled = next((name for name in columns if name and columns.count(name) > 1), None)
    if doubled is not None:
        raise InputFileError(f"{show_path(path)}: line 1: two columns are called {doubled!r}; rename one")
    if len(columns) < 2:
        raise InputFileError(f"{show_path(path)}: line 1: expected a header with names parted by commas")


def _fill_row(path: Path, line: int, columns: tuple[str, ...], cells: list[str]) -> dict[str, str]:
    if len(cells) > len(columns):
        raise InputFileError(
            f"{show_path(path)}: line {line}: {len(cells)} cells under {len(columns)} columns; "
            "quote a cell that holds a comma"
        )
    cells += [""] * (len(columns) - len(cells))
    return {name: cell.strip() for name, cell in zip(columns, cells, strict=True)}
