"""Queries of a recording: errors of SQLite become one line, rows that cannot be understood are counted."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..decoders import make_msgpack_decoder
from ..errors import InputFileError
from ..readers.input_file import show_path
from ..text import clean_texts
from .block import DAMAGES
from .block_reader import DamageCount
from .connection import SQLITE_ERRORS, explain_read_error

PAGE = 256
"""Rows that are held at once."""
PAGE_BYTES = 32 << 20
"""Bytes of rows that are held at once, but for the last."""
MOST_ROW_BYTES = 1 << 20
"""No finding, event, device or minute is longer."""
MOST_HELD_BYTES = 256 << 20
"""All of what is read as a whole, such as the findings of a recording."""
_T = TypeVar("_T")


class RowReader:
    """Runs queries on one connection.

    Args:
        connection: To the recording.
        path: Of the recording, for what is said.
        damage: Counts what is left out.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, damage: DamageCount) -> None:
        self._connection = connection
        self._path = path
        self._damage = damage

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See one state of the file within the block, whatever its writer does meanwhile.

        Raises:
            InputFileError: The file is damaged there, or its writer holds it for too long.
        """
        with self._explaining():
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def one(self, query: str, *values: object) -> tuple[Any, ...]:
        """Return the row of a query that has exactly one.

        Raises:
            InputFileError: The file is damaged there.
        """
        with self._explaining():
            row: tuple[Any, ...] = self._connection.execute(query, values).fetchone()
        return row

    def all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return all rows of a query that limits them.

        Raises:
            InputFileError: The file is damaged there.
        """
        with self._explaining():
            return self._connection.execute(query, values).fetchall()

    def page(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the first rows of a query whose last column is a blob, as many as may be held at once.

        Raises:
            InputFileError: The file is damaged there.
        """
        rows: list[tuple[Any, ...]] = []
        held_bytes = 0
        with self._explaining():
            for row in self._connection.execute(query, values):
                rows.append(row)
                held_bytes += len(row[-1]) if isinstance(row[-1], bytes) else 0
                if len(rows) >= PAGE or held_bytes >= PAGE_BYTES:
                    break
        return rows

    def structs(
        self, table: str, kind: type[_T], query: str, *values: object, is_held: bool = True
    ) -> Iterator[_T]:
        """Yield what the second columns of a query hold; the first ones are keys, by which damage is counted.

        Args:
            table: Whose rows they are.
            kind: What they hold.
            query: The query.
            values: Of its parameters.
            is_held: Whether they are held all at once, and therefore bounded.

        Raises:
            InputFileError: The file is damaged so that what follows cannot be found, or holds too much.
        """
        decoder = make_msgpack_decoder(kind)
        for key, data in self.blobs(query, *values, is_held=is_held):
            try:
                if len(data) > MOST_ROW_BYTES:
                    raise ValueError(f"{len(data)} bytes")
                yield clean_texts(decoder.decode(data))
            except DAMAGES:
                self._damage.add_row(table, key)

    def blobs(self, query: str, *values: object, is_held: bool = True) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, of which the last column is a blob.

        Args:
            query: The query.
            values: Of its parameters.
            is_held: Whether they are held all at once, and therefore bounded.

        Raises:
            InputFileError: The file is damaged there, or holds too much.
        """
        with self._explaining():
            cursor = self._connection.execute(query, values)
        held_bytes = 0
        while True:
            with self._explaining():
                row = cursor.fetchone()
            if row is None:
                return
            held_bytes += len(row[-1]) if isinstance(row[-1], bytes) else 0
            if is_held and held_bytes > MOST_HELD_BYTES:
                raise InputFileError(
                    f"{show_path(self._path)}: {MOST_HELD_BYTES >> 20} MiB and more would have to be held at "
                    "once; ask for a shorter span"
                )
            yield row

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise InputFileError(f"{show_path(self._path)}: is closed") from error
        except SQLITE_ERRORS as error:
            raise explain_read_error(self._path, error) from error
