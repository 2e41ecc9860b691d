"""Tables of training cases in CSV: a header, one run a row, cells as they stand."""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from ..errors import InputFileError
from .base.input_file import decode_text, read_input_file, show_path, show_text

LIMIT_BYTES = 64 * 1024**2
MOST_COLUMNS = 1000
MOST_ROWS = 100_000
# Short rows are filled up: a few bytes of them could take gigabytes.
MOST_CELLS = 2_000_000
# A table that has one of them describes models.
MODEL_COLUMNS = frozenset({"num_layers", "hidden", "arguments"})
_MOST_CELL = 1 << 20


class _Reader(Protocol):
    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...


class CaseTable(msgspec.Struct, frozen=True):
    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]


def read_case_table(path: Path) -> CaseTable:
    """Read a CSV file; short rows are filled with empty cells."""
    data = read_input_file(path, LIMIT_BYTES)
    text = decode_text(data, path, "a CSV file in UTF-8")
    end = text.find("\n")
    _check_count(path, text.count(",", 0, len(text) if end < 0 else end) + 1, MOST_COLUMNS, "columns")
    csv.field_size_limit(_MOST_CELL)
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        columns = tuple(name.strip() for name in next(reader, []))
        _check_header(path, columns)
        rows = tuple(_read_rows(path, reader, columns))
    except csv.Error as error:
        raise InputFileError(f"{show_path(path)}: line {reader.line_num}: {error}; expected CSV") from error
    return CaseTable(columns, rows)


def _read_rows(path: Path, reader: _Reader, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    count = 0
    for cells in reader:
        if cells:
            count += 1
            _check_count(path, count, MOST_ROWS, "rows")
            _check_count(path, count * len(columns), MOST_CELLS, "cells")
            if len(cells) > len(columns):
                raise InputFileError(
                    f"{show_path(path)}: line {reader.line_num}: {len(cells)} cells for {len(columns)} "
                    "columns; quote cells that contain a comma"
                )
            filled = [*cells, *[""] * (len(columns) - len(cells))]
            yield {name: cell.strip() for name, cell in zip(columns, filled, strict=True)}


def _check_count(path: Path, count: int, most: int, what: str) -> None:
    if count > most:
        raise InputFileError(
            f"{show_path(path)}: more than {most:,} {what}; expected a table of cases, split"
        )


def _check_header(path: Path, columns: tuple[str, ...]) -> None:
    _check_count(path, len(columns), MOST_COLUMNS, "columns")
    doubled = next((name for name, count in Counter(columns).items() if name and count > 1), None)
    if doubled is not None:
        name = show_text(doubled)
        raise InputFileError(f"{show_path(path)}: line 1: two columns are named {name!r}; rename one")
    if len(columns) < 2:
        raise InputFileError(f"{show_path(path)}: line 1: expected a header with names separated by commas")
