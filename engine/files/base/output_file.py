"""Files that vramscope writes: there whole or not at all, and readable for their owner alone unless asked.

Output never goes through a symbolic link: whoever may write in a folder, as anybody can in `/tmp`, could
choose by one what is overwritten. `/dev/stdout` and other links to pipes, terminals and devices are written
to, and `-` is standard output. A file that is replaced keeps its mode.
"""

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ...errors import OutputFileError
from .input_file import show_path
from .output_route import adding_by_helper, make_folder, replacing_by_helper

PRIVATE_MODE = 0o600
STANDARD_OUTPUT = Path("-")
_OF_SQLITE = ("-wal", "-shm", "-journal")
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_whole(data: bytes, path: Path) -> None:
    """Write a file; at any moment it has the old content or the new.

    A pipe, terminal or device is written to as it is.
    """
    with open_output(path) as stream:
        stream.write(data)


@contextmanager
def open_output(path: Path, *, mode: int = PRIVATE_MODE) -> Iterator[BinaryIO]:
    """Yield a stream; its content becomes the file at the end, unless something is raised before.

    A pipe, terminal or device is written to as it is.

    Args:
        mode: Of a file that did not exist before.
    """
    with explaining_writes(path):
        place = _refuse_link(path)
        if path == STANDARD_OUTPUT:
            # A terminal gets printable text alone; a pipe or file the bytes that a file of a name would have.
            guarded = sys.stdout
            stream = guarded if guarded.isatty() else getattr(guarded, "unguarded", guarded)
            yield stream.buffer
            stream.flush()
        elif _is_special(place):
            with os.fdopen(os.open(place, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY), "wb") as stream:
                yield stream
        else:
            with (
                replacing_by_helper(place, mode) as (near, its_mode),
                replacing(near, mode=its_mode) as stream,
            ):
                yield stream


@contextmanager
def place_output(path: Path) -> Iterator[Path]:
    """Yield the path of an empty file that becomes the output at the end, unless something is raised."""
    if path == STANDARD_OUTPUT:
        raise OutputFileError("-: standard output cannot hold a database; give the name of a file")
    with (
        explaining_writes(path),
        replacing_by_helper(_refuse_link(path), PRIVATE_MODE) as (near, mode),
        _drafted(near, mode) as (draft, descriptor),
    ):
        os.close(descriptor)
        yield draft


@contextmanager
def replacing(path: Path, *, is_durable: bool = False, mode: int = PRIVATE_MODE) -> Iterator[BinaryIO]:
    """Yield a stream whose content replaces a file in one step; a link there is not followed."""
    with _drafted(path, mode) as (_, descriptor), os.fdopen(descriptor, "wb") as stream:
        yield stream
        stream.flush()
        if is_durable:
            os.fsync(descriptor)


def write_new(data: bytes, path: Path) -> None:
    """Write a file that must not exist yet.

    Raises:
        FileExistsError: It exists.
        OSError: It cannot be written.
    """
    with adding_by_helper(path) as near, os.fdopen(os.open(near, _NEW, PRIVATE_MODE), "wb") as stream:
        stream.write(data)


def write_files(contents: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Write files into a folder, which is made if missing, and return their paths."""
    try:
        make_folder(folder, parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise OutputFileError(
            f"{show_path(folder)}: cannot create the folder: {reason}; choose another folder"
        ) from error
    for name, content in contents.items():
        write_whole(content, folder / name)
    return [folder / name for name in contents]


def check_writable(path: Path) -> None:
    """Fail before a long watch, not after it, if a file cannot be written."""
    if path == STANDARD_OUTPUT:
        return
    with explaining_writes(path):
        place = _refuse_link(path)
        folder = place.parent
        if place.is_dir():
            raise OutputFileError(f"{show_path(path)}: is a folder; expected the name of a file to write")
        if not folder.is_dir():
            raise OutputFileError(
                f"{show_path(path)}: there is no folder {show_path(folder)}; create it first"
            )
        if not _is_special(place) and not os.access(folder, os.W_OK | os.X_OK):
            raise OutputFileError(f"{show_path(path)}: you cannot write to the folder {show_path(folder)}")


@contextmanager
def explaining_writes(path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into an OutputFileError that says what and where."""
    try:
        yield
    except OSError as error:
        raise OutputFileError(f"{show_path(path)}: cannot be written: {error.strerror or error}") from error


def _refuse_link(path: Path) -> Path:
    """Refuse a link to a file, to a folder or to nothing; a link to a device passes."""
    if path.is_symlink() and not _is_special(path):
        raise OutputFileError(
            f"{show_path(path)}: a symbolic link to {show_path(path.readlink())}, and output is not "
            "written through links; give the file itself"
        )
    return path


def _is_special(place: Path) -> bool:
    try:
        mode = place.stat().st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@contextmanager
def _drafted(path: Path, mode: int = PRIVATE_MODE) -> Iterator[tuple[Path, int]]:
    """Yield a new file in the same folder, by path and descriptor; at the end it replaces `path`."""
    # Not named after the file: a name of 255 bytes has no room for more, and nobody can guess this one.
    draft = path.with_name(f".vramscope-{os.urandom(8).hex()}.part")
    descriptor = os.open(draft, _NEW, PRIVATE_MODE)
    try:
        with suppress(FileNotFoundError):
            before = path.lstat().st_mode
            mode = before & 0o777 if stat.S_ISREG(before) else mode
        if mode != PRIVATE_MODE:
            os.fchmod(descriptor, mode)
        yield draft, descriptor
        draft.replace(path)
    finally:
        for ending in ("", *_OF_SQLITE):
            with suppress(OSError):
                draft.with_name(f"{draft.name}{ending}").unlink()
