"""Files that only their owner may read: made with mode 0600 in a folder of mode 0700, refused otherwise.

What an administrator mounts read-only is taken too, as Kubernetes mounts a Secret: files of root behind links
within their folder, readable for a group of ours at most.
"""

import errno
import os
import stat
from pathlib import Path

from ..errors import InputFileError, OutputFileError
from ..files.base.output_file import replacing


def read_private(path: Path, most_bytes: int) -> str | None:
    """Return the text of a private file, or None where there is none.

    Args:
        path: The file.
        most_bytes: A longer file is refused.

    Raises:
        InputFileError: It, or its folder, is open to others or somebody else's; or it is no text.
    """
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputFileError(f"{path}: {error.strerror or error}; expected a file of your own") from error
    with os.fdopen(descriptor, "rb") as file:
        if _is_read_only(path.parent):
            _check_mounted(path, os.fstat(descriptor))
        else:
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
    try:
        make_private_folder(path.parent)
        with replacing(path, is_durable=True) as stream:
            stream.write(text.encode())
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


def _open(path: Path) -> int:
    """Return a descriptor of a file; a link is followed only within its folder, and only where nobody writes.

    Raises:
        OSError: It cannot be opened, or is a link that is not followed.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        return os.open(path, flags)
    except OSError as error:
        place = path.resolve()
        is_within = place.is_relative_to(path.parent.resolve())
        if error.errno != errno.ELOOP or not is_within or not _is_read_only(path.parent):
            raise
        return os.open(place, flags)


def _is_read_only(folder: Path) -> bool:
    """Return whether nobody writes to a folder where it is mounted here."""
    return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def _check_mounted(path: Path, found: os.stat_result) -> None:
    """Refuse a file on a read-only mount that others could read, or that neither root nor we own."""
    if not stat.S_ISREG(found.st_mode):
        raise InputFileError(f"{path}: expected a file")
    if found.st_uid not in (0, os.geteuid()):
        raise InputFileError(
            f"{path}: belongs to user id {found.st_uid}: expected a file of yours or of root"
        )
    is_given = found.st_uid == 0 and found.st_gid in (os.getegid(), *os.getgroups())
    if stat.S_IMODE(found.st_mode) & (0o037 if is_given else 0o077):
        raise InputFileError(
            f"{path}: is open to other users (mode {stat.S_IMODE(found.st_mode):04o}, expected 0400, or 0440 "
            "for a group of yours): change it where it is mounted from (`defaultMode: 0400` of a Secret)"
        )


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
