"""The lock that says who writes a recording; it goes when its holder goes, however.

It is an open-file-description lock on one byte of the recording itself, far behind its end and outside of
what SQLite locks: readers are not disturbed, and nothing lies beside the file that somebody could remove.
"""

import fcntl
import os
import stat
import struct
from pathlib import Path

from ..errors import OutputFileError
from ..files.base.input_file import lower_first, show_path

_FLOCK = struct.Struct("hhqqi4x")
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid."""
_PLACE = 1 << 62


class FileLock:
    """Holds a recording open for one writer.

    Args:
        path: The recording; it is made where it is absent, for its owner alone: command lines are in it.

    Raises:
        OutputFileError: It is a link, no regular file, cannot be opened, or is being written by another.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_released = False
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o600)
        except OSError as error:
            raise OutputFileError(_explain(path, error)) from error
        try:
            self._take()
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in the file."""
        return os.fstat(self._fd).st_size == 0

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return os.fstat(self._fd).st_size

    @property
    def has_its_name(self) -> bool:
        """Whether the file is still found under its name; not where it was renamed, removed or replaced."""
        try:
            found = self.path.lstat()
        except OSError:
            return False
        ours = os.fstat(self._fd)
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def find_new_name(self) -> Path | None:
        """Return where a file is that was renamed; None where it was removed."""
        if os.fstat(self._fd).st_nlink == 0:
            return None
        try:
            return Path(f"/proc/self/fd/{self._fd}").readlink()
        except OSError:
            return None

    def is_opened_elsewhere(self) -> bool:
        """Return whether this process has the very file open once more, as it must after SQLite opened it.

        The name could have been given to another file meanwhile.
        """
        ours = os.fstat(self._fd)
        count = 0
        for entry in os.scandir("/proc/self/fd"):
            try:
                found = Path(entry.path).stat()
            except OSError:
                continue
            count += (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)
        return count > 1

    def release(self) -> None:
        """Give the lock back, after SQLite has closed the file: its own locks go with this descriptor."""
        if not self.is_released:
            os.close(self._fd)
            self.is_released = True

    def _take(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise OutputFileError(f"{show_path(self.path)}: not a regular file; name another with -o")
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _PLACE, 1, 0))
        except BlockingIOError:
            raise RecordingTakenError(self.path) from None
        except OSError as error:
            raise OutputFileError(
                f"{show_path(self.path)}: its file system cannot lock ({error.strerror}); record on another"
            ) from error


class RecordingTakenError(OutputFileError):
    """Another process writes this recording."""

    def __init__(self, path: Path, pid: int | None = None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{show_path(path)}: {who} is recording into it; name another file with -o")


def _explain(path: Path, error: OSError) -> str:
    if path.is_symlink():
        return f"{show_path(path)}: a symbolic link; name the file itself with -o"
    reason = lower_first(error.strerror or str(error))
    return f"{show_path(path)}: cannot be written: {reason}; name another file with -o"
