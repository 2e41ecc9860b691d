"""A file that is written piece by piece, and is there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..engine.errors import OutputFileError
from ..engine.readers.input_file import show_path
from .reports.writing import check_writable


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """Give a stream whose content becomes the file at the end, unless something is raised before.

    What is no regular file (a pipe, a terminal) is written to as it is.

    Raises:
        OutputFileError: It cannot be written.
    """
    check_writable(path)
    try:
        place = path.resolve()
        if place.exists() and not place.is_file():
            with place.open("wb") as stream:
                yield stream
            return
        with _replacing(place) as stream:
            yield stream
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
        reason = getattr(error, "strerror", None) or error
        raise OutputFileError(f"{show_path(path)}: cannot be written: {reason}") from error


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    try:
        with part.open("xb") as stream:
            yield stream
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
