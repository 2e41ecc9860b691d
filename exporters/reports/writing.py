"""Reports as JSON: two spaces deep, not-a-number as null, and on disk whole or not at all."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from ...engine.errors import OutputFileError
from ...engine.readers.input_file import show_path

_ENCODER = msgspec.json.Encoder()


def encode_report(report: msgspec.Struct) -> bytes:
    """Return a report as JSON that people can read, in UTF-8 with a newline at its end."""
    return msgspec.json.format(_ENCODER.encode(report), indent=2) + b"\n"


def write_report(report: msgspec.Struct, path: Path) -> None:
    """Write a report to a file, which holds the old content or the new at any moment.

    Raises:
        OutputFileError: It cannot be written.
    """
    write_whole(encode_report(report), path)


def write_whole(data: bytes, path: Path) -> None:
    """Write a file beside its place and put it there at once.

    What a link leads to is written, not the link; what is no regular file (a pipe, a terminal) is written to
    as it is.

    Raises:
        OutputFileError: It cannot be written.
    """
    try:
        place = path.resolve()
        if place.exists() and not place.is_file():
            path.write_bytes(data)
        else:
            _replace(data, place)
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead in a circle
        raise _refuse(path, error) from error


def write_files(contents: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write files into a folder, which is made where it is missing; return their paths.

    Args:
        contents: By name.
        folder: Where they go.

    Raises:
        OutputFileError: The folder or a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise OutputFileError(
            f"{show_path(folder)}: cannot be made: {reason}; give another folder"
        ) from error
    for name, content in contents.items():
        write_whole(content, folder / name)
    return [folder / name for name in contents]


def _replace(data: bytes, path: Path) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o666 & ~_read_umask())
        Path(name).replace(path)
    finally:
        with suppress(OSError):
            Path(name).unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Find out before a long watch that a report could not be written.

    Raises:
        OutputFileError: Its folder is missing or closed to us, or it is a folder itself.
    """
    folder = path.parent
    if path.is_dir():
        raise OutputFileError(f"{show_path(path)}: is a folder; expected the name of a file to write")
    if not folder.is_dir():
        raise OutputFileError(f"{show_path(path)}: there is no folder {show_path(folder)}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputFileError(f"{show_path(path)}: the folder {show_path(folder)} is not writable for you")


def _refuse(path: Path, error: Exception) -> OutputFileError:
    reason = getattr(error, "strerror", None) or error
    return OutputFileError(f"{show_path(path)}: cannot be written: {reason}")


def _read_umask() -> int:
    """Return the mask of this process, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
