"""Files that a person hands over: read whole under a size cap, refused in one line that says why."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ...errors import InputFileError
from ...text import make_printable
from ...units import format_bytes

# More than any file that a person writes by hand.
SMALL_TEXT_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def show_path(path: Path) -> str:
    return make_printable(str(path))


def show_name(path: Path) -> str:
    return make_printable(path.name)


def show_text(text: str, most: int = 80) -> str:
    """Shorten a word of a file for an error, without what a terminal would obey."""
    return make_printable(text, most)


def locate_byte(data: bytes, offset: int) -> str:
    """Line and column, both from 1."""
    before = data[:offset]
    column = offset - (before.rfind(b"\n") + 1) + 1
    return f"line {before.count(10) + 1}, column {column}"


def read_input_file(path: Path, limit_bytes: int) -> bytes:
    """Read a regular file; the byte order mark is dropped."""
    with open_input_file(path, limit_bytes) as (file, _):
        data = file.read(limit_bytes + 1)
    if not data.strip():
        raise InputFileError(f"{show_path(path)}: the file is empty; its writer may not have finished")
    return data.removeprefix(_BYTE_ORDER_MARK)


def read_text_file(path: Path, expected: str, limit_bytes: int = SMALL_TEXT_BYTES) -> str:
    """Read a small text that a person wrote: settings, a list of hosts, a configuration. It may be empty."""
    with open_input_file(path, limit_bytes, expected) as (file, _):
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:  # it has grown since it was opened
        raise InputFileError(_explain_size(path, len(data), limit_bytes))
    return decode_text(data, path, expected)


def decode_text(data: bytes, path: Path, expected: str) -> str:
    """Decode UTF-8, with or without a byte order mark; `expected` is what it should be, for the error."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputFileError(
            f"{show_path(path)}: {locate_byte(data, error.start)}: not UTF-8 text; expected {expected}"
        ) from None


@contextmanager
def open_input_file(
    path: Path, limit_bytes: int, expected: str | None = None
) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file and yield it with its size in bytes."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise InputFileError(
                    f"{show_path(path)}: not a regular file; expected {expected or 'a file with data in it'}"
                )
            if status.st_size > limit_bytes:
                raise InputFileError(_explain_size(path, status.st_size, limit_bytes))
            yield file, status.st_size
    except (OSError, ValueError) as error:
        hint = "" if expected is None else f"; expected {expected}"
        raise InputFileError(f"{explain_refusal(path, error)}{hint}") from error


def _explain_size(path: Path, size_bytes: int, limit_bytes: int) -> str:
    return (
        f"{show_path(path)}: {format_bytes(size_bytes)} is too large; "
        f"expected at most {format_bytes(limit_bytes)}"
    )


def _open_at_once(path: str, flags: int) -> int:
    # A named pipe would wait for a writer.
    return os.open(path, flags | os.O_NONBLOCK)


def explain_refusal(path: Path, error: OSError | ValueError) -> str:
    """One line about a path that the operating system would not open."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{show_path(path)}: cannot be read: {lower_first(reason)}"


def lower_first(text: str) -> str:
    """Make a sentence fit after a colon; an abbreviation such as JSON keeps its capitals."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
