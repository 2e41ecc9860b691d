"""Files that a person hands over: read whole under a size cap, refused in one line that says why."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import InputFileError
from ..units import format_bytes

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def show_path(path: Path) -> str:
    """Return a path as it may be printed: as it is, or quoted where it would disturb a terminal."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def show_name(path: Path) -> str:
    """Return the last part of a path as it may be printed."""
    return path.name if path.name.isprintable() else ascii(path.name)


def locate_byte(data: bytes, offset: int) -> str:
    """Return the line and column of a byte, both counted from 1."""
    before = data[:offset]
    column = offset - (before.rfind(b"\n") + 1) + 1
    return f"line {before.count(10) + 1}, column {column}"


def read_input_file(path: Path, limit_bytes: int) -> bytes:
    """Return the content of a regular file, without a byte order mark.

    Raises:
        InputFileError: The file is absent, empty, not readable, not a regular file, or too large.
    """
    with open_input_file(path, limit_bytes) as (file, _):
        data = file.read(limit_bytes + 1)
    if not data.strip():
        raise InputFileError(f"{show_path(path)}: the file is empty; its writer may not have finished")
    return data.removeprefix(_BYTE_ORDER_MARK)


@contextmanager
def open_input_file(path: Path, limit_bytes: int) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file for reading and give it with its size in bytes.

    Raises:
        InputFileError: The file is absent, not readable, not a regular file, or too large.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputFileError(
                    f"{show_path(path)}: not a regular file; expected a file with data in it"
                )
            if status.st_size > limit_bytes:
                raise InputFileError(
                    f"{show_path(path)}: {format_bytes(status.st_size)} is too large; "
                    f"expected at most {format_bytes(limit_bytes)}"
                )
            yield file, status.st_size
    except (OSError, ValueError) as error:
        raise InputFileError(explain_refusal(path, error)) from error


def _open_at_once(path: str, flags: int) -> int:
    # A named pipe would wait for a writer.
    return os.open(path, flags | os.O_NONBLOCK)


def explain_refusal(path: Path, error: OSError | ValueError) -> str:
    """Return one line about a path that the operating system would not open."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{show_path(path)}: cannot be read: {lower_first(reason)}"


def lower_first(text: str) -> str:
    """Return a sentence as it stands after a colon; an abbreviation such as JSON keeps its capitals."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
