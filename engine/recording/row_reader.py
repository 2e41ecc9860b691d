"""Queries of a recording: errors of SQLite become one line, rows that cannot be understood are counted."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..errors import InputFileError
from ..readers.input_file import show_path
from .block import DAMAGES
from .block_reader import DamageCount
from .connection import SQLITE_ERRORS, explain_read_error

PAGE = 256
"""Rows that are held at once."""
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

    def structs(self, table: str, kind: type[_T], query: str, *values: object) -> Iterator[_T]:
        """Yield what the second columns of a query hold; the first ones are keys, by which damage is counted.

        Raises:
            InputFileError: The file is damaged so that what follows cannot be found.
        """
        decoder = msgspec.msgpack.Decoder(kind)
        with self._explaining():
            cursor = self._connection.execute(query, values)
        while True:
            with self._explaining():
                rows = cursor.fetchmany(PAGE)
            if not rows:
                return
            for key, data in rows:
                try:
                    yield decoder.decode(data)
                except DAMAGES:
                    self._damage.add_row(table, key)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise InputFileError(f"{show_path(self._path)}: is closed") from error
        except SQLITE_ERRORS as error:
            raise explain_read_error(self._path, error) from error
