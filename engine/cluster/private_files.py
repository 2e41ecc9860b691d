"""Files that only their owner may read: made with mode 0600 in a folder of mode 0700, refused otherwise."""

import os
import stat
from pathlib import Path

from ..errors import InputFileError, OutputFileError


def read_private(path: Path, most_bytes: int) -> str | None:
    """Return the text of a private file, or None where there is none.

    Args:
        path: The file.
        most_bytes: A longer file is refused.

    Raises:
        InputFileError: It, or its folder, is open to others or somebody else's; or it is no text.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; expected a file of your own") from error
    with os.fdopen(descriptor, "rb") as file:
        _check(path.parent, path.parent.stat(), 0o700)
        _check(path, os.fstat(descriptor), 0o600)
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise InputFileError(f"{path}: longer than {most_bytes} bytes; expected a file that vramscope wrote")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path}: not UTF-8 text at byte {error.start}") from error


def write_private(path: Path, text: str) -> None:
    """Replace a private file at once and whole; its folder is made where it is missing.

    Raises:
        InputFileError: The folder is open to others or somebody else's.
        OutputFileError: The file cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        make_private_folder(path.parent)
        descriptor = os.open(
            draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise OutputFileError(f"{path}: {error.strerror or error}") from error


def make_private_folder(folder: Path) -> None:
    """Make a private folder where it is missing.

    Raises:
        InputFileError: It is there, and open to others or somebody else's.
        OutputFileError: It cannot be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check(folder, folder.stat(), 0o700)
    except OSError as error:
        raise OutputFileError(f"{folder}: {error.strerror or error}") from error


def _check(path: Path, found: os.stat_result, mode: int) -> None:
    kind = "folder" if mode == 0o700 else "file"
    if not (stat.S_ISDIR(found.st_mode) if kind == "folder" else stat.S_ISREG(found.st_mode)):
        raise InputFileError(f"{path}: expected a {kind}")
    if found.st_uid != os.geteuid():
        raise InputFileError(
            f"{path}: belongs to user id {found.st_uid}, not to you ({os.geteuid()}): expected a {kind} "
            "of your own"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise InputFileError(
            f"{path}: is open to other users (mode {stat.S_IMODE(found.st_mode):04o}, expected {mode:04o}): "
            f"run chmod {mode:o} on it"
        )
