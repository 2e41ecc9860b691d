"""SQLite as a recording uses it: what is switched off, how a file is opened, and what its errors mean."""

import fcntl
import os
import sqlite3
import stat
import struct
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from ..errors import InputFileError, OutputFileError
from ..files.base.input_file import lower_first, show_path
from ..text import make_printable
from .schema import MOST_VALUE_BYTES, check_schema, create_schema

# The writer's lock is an open-file-description lock on one byte of the recording itself, far behind its end
# and outside of what SQLite locks: readers are not disturbed, and there is no lock file to remove.

# `struct flock` of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")
_PLACE = 1 << 62


class FileLock:
    """Locks a recording for one writer.

    Args:
        path: The recording; made if absent, for its owner alone: command lines are in it.

    Raises:
        OutputFileError: It is a link, no regular file, cannot be opened, or has a writer already.
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
            self._lock_file()
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._fd).st_size == 0

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._fd).st_size

    @property
    def has_its_name(self) -> bool:
        """False if the file was renamed, removed or replaced."""
        try:
            found = self.path.lstat()
        except OSError:
            return False
        ours = os.fstat(self._fd)
        return (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)

    def find_new_name(self) -> Path | None:
        if os.fstat(self._fd).st_nlink == 0:
            return None
        try:
            return Path(f"/proc/self/fd/{self._fd}").readlink()
        except OSError:
            return None

    def is_opened_elsewhere(self) -> bool:
        """Return whether this process has this very file open a second time, as after SQLite opened it.

        Meanwhile another file could have got the name.
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
        """Unlock, after SQLite has closed the file: its own locks go with this descriptor."""
        if not self.is_released:
            os.close(self._fd)
            self.is_released = True

    def _lock_file(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise OutputFileError(f"{show_path(self.path)}: not a regular file; choose another with -o")
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _PLACE, 1, 0))
        except BlockingIOError:
            raise RecordingTakenError(self.path) from None
        except OSError as error:
            raise OutputFileError(
                f"{show_path(self.path)}: its file system has no locks ({error.strerror}); record on another"
            ) from error


def is_being_recorded(path: Path) -> bool:
    """Return whether a process has the lock of this recording; only reads."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, _PLACE, 1, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK)
    finally:
        os.close(fd)


class RecordingTakenError(OutputFileError):
    def __init__(self, path: Path, pid: int | None = None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{show_path(path)}: {who} is recording into it; choose another file with -o")


def _explain(path: Path, error: OSError) -> str:
    if path.is_symlink():
        return f"{show_path(path)}: a symbolic link; give the file itself with -o"
    reason = lower_first(error.strerror or str(error))
    return f"{show_path(path)}: cannot be written: {reason}; choose another file with -o"


# How long a reader or the writer waits for the other if there is no write-ahead log.
BUSY_S = 5.0
_WAL_KEPT_BYTES = 4 << 20
WRITTEN_PAGE_BYTES = 4096
# A file is written in pages of 4 KiB, which cost a third of the CPU; a small file that has ended gets pages
# of 1 KiB, since each table takes a page at least (56 KiB of the larger ones in all).
KEPT_PAGE_BYTES = 1024
# The last bytes of a rollback journal that names another file, which SQLite would remove.
_SUPER_JOURNAL_MARK = bytes.fromhex("d9d505f920a163d7")
# A log to join or a journal to undo; or a recording with a log in a folder where SQLite may make no files,
# such as a copy of a recording that was not complete yet.
_NEEDS_RECOVERY = ("SQLITE_READONLY", "SQLITE_CANTOPEN")
# Bytes 18 and 19 of a database that has a write-ahead log (sqlite.org/fileformat.html).
_WITH_LOG = b"\x02\x02"
# What a query may raise; the second if SQLite quotes a damaged file in its message, the third also if a
# damaged page makes it ask for more memory than there can be.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError, MemoryError)
_FULL = ("SQLITE_FULL", "SQLITE_IOERR")
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_LENGTH, MOST_VALUE_BYTES),
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100_000),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)


class RecordingStoppedError(OutputFileError):
    """A recording cannot continue: the disk is full, or the file is gone. What is in it stays readable."""


def open_for_writing(lock: FileLock, identity: bytes, *, is_shared: bool) -> sqlite3.Connection:
    """Connect to a recording that this process has locked; an empty file becomes a recording.

    Args:
        is_shared: On a network file system, where there can be no write-ahead log.
    """
    path = lock.path
    is_empty = lock.is_empty
    connection = _connect(path, "rw")
    try:
        if not lock.is_opened_elsewhere():
            raise OutputFileError(f"{show_path(path)}: was replaced while it was opened; try again")
        _harden(connection)
        if is_empty:
            create_schema(connection, identity)
        check_schema(connection, path)
        resize_pages(connection, WRITTEN_PAGE_BYTES)
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA journal_mode = {'TRUNCATE' if is_shared else 'WAL'}").fetchone()
        connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
    except SQLITE_ERRORS as error:
        connection.close()
        raise explain_write_error(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def resize_pages(connection: sqlite3.Connection, page_bytes: int) -> None:
    """Rewrite a recording in pages of another size, if possible; not while it has a log."""
    (present_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    if present_bytes == page_bytes:
        return
    attached = connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 1)  # SQLite's own copy counts as one
    try:
        connection.execute(f"PRAGMA page_size = {page_bytes}")
        with suppress(*SQLITE_ERRORS):  # a reader holds it, or there is no room: the size is no matter then
            connection.execute("VACUUM")
    finally:
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, attached)


def open_for_reading(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Connect read-only; also return whether the newest seconds cannot be read.

    A recording whose writer was killed has its newest seconds in a second file; SQLite joins them if the
    folder is writable.
    """
    _check_regular(path)
    try:
        return _open_checked(path, "ro"), False
    except SQLITE_ERRORS as error:
        if not getattr(error, "sqlite_errorname", "").startswith(_NEEDS_RECOVERY):
            raise explain_read_error(path, error) from error
    with suppress(*SQLITE_ERRORS):
        _recover(path)
        return _open_checked(path, "ro"), False
    try:
        connection = _open_checked(path, "ro&immutable=1")
    except SQLITE_ERRORS as error:
        raise explain_read_error(path, error) from error
    return connection, any(path.with_name(f"{path.name}{end}").exists() for end in ("-wal", "-journal"))


def is_without_log(path: Path) -> bool:
    """Return whether a recording has its newest samples in a log which is not there."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        return False
    with path.open("rb") as file:
        return file.read(20)[18:] == _WITH_LOG


def explain_read_error(path: Path, error: Exception) -> InputFileError:
    """One line about a recording that SQLite cannot read."""
    name = show_path(path)
    code = getattr(error, "sqlite_errorname", "")
    if code == "SQLITE_NOTADB":
        return InputFileError(f"{name}: not a recording, or damaged from its first bytes on")
    if code.startswith("SQLITE_BUSY"):
        return InputFileError(f"{name}: its writer has locked it; try again in a moment")
    if code.startswith("SQLITE_CANTOPEN"):
        return InputFileError(f"{name}: cannot be opened; expected a recording that you may read")
    return InputFileError(f"{name}: damaged and unreadable: {_describe_error(error)}")


def explain_write_error(path: Path, error: Exception) -> OutputFileError:
    """One line about a recording that SQLite cannot write."""
    code = getattr(error, "sqlite_errorname", "")
    name = show_path(path)
    if code == "SQLITE_NOTADB" or code.startswith("SQLITE_CORRUPT"):
        return RecordingStoppedError(f"{name}: damaged, or not a recording; choose another file with -o")
    if code.startswith(_FULL):
        return RecordingStoppedError(
            f"{name}: recording stopped: the disk is full or cannot be written ({_describe_error(error)}); "
            "what was recorded until now can be read"
        )
    if code == "SQLITE_READONLY_DBMOVED":
        return RecordingStoppedError(f"{name}: recording stopped: the file was removed or renamed")
    return RecordingStoppedError(f"{name}: recording stopped: {_describe_error(error)}")


def _describe_error(error: Exception) -> str:
    """SQLite quotes the file in its messages, so they are made printable."""
    if isinstance(error, UnicodeDecodeError):
        return "its tables are not those of a recording"
    if isinstance(error, MemoryError):
        return "there is not as much memory as SQLite asks for"
    return make_printable(lower_first(str(error)))


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # An absolute path in a URI: characters such as ? and # are no part of it.
    address = f"file:{quote(str(path.absolute()))}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None, check_same_thread=False)


def _harden(connection: sqlite3.Connection) -> None:
    """Trust nothing in the file: no functions, views or triggers of its own, bounded values."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    for category, limit in _LIMITS:
        connection.setlimit(category, limit)


def _open_checked(path: Path, mode: str) -> sqlite3.Connection:
    connection = _connect(path, mode)
    try:
        _harden(connection)
        connection.execute("PRAGMA query_only = ON")
        check_schema(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _recover(path: Path) -> None:
    """Make SQLite roll back what a killed writer had half written, as the next writer would."""
    journal = path.with_name(f"{path.name}-journal")
    if journal.exists() and journal.read_bytes()[-8:] == _SUPER_JOURNAL_MARK:
        raise sqlite3.OperationalError("a journal that names another file")
    connection = _connect(path, "rw")
    try:
        _harden(connection)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        connection.close()


def _check_regular(path: Path) -> None:
    """Refuse what is no regular file, without opening it: that could wait, and would end SQLite's locks."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        reason = lower_first(error.strerror or str(error))
        raise InputFileError(f"{show_path(path)}: cannot be read: {reason}") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise InputFileError(f"{show_path(path)}: not a regular file; expected a recording")
        if status.st_size == 0:
            raise InputFileError(f"{show_path(path)}: the file is empty; its writer may not have begun")
    finally:
        os.close(fd)
