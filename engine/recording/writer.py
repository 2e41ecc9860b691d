"""Writes a recording: what is committed outlives the process, a full disk costs only what follows."""

import math
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ..clock import Clock, SystemClock
from ..errors import InputFileError
from ..files.base.input_file import show_path
from ..model import Assessment, Finding, Sample
from .block import DAMAGES
from .connection import (
    KEPT_PAGE_BYTES,
    SQLITE_ERRORS,
    WRITTEN_PAGE_BYTES,
    RecordingStoppedError,
    explain_write_error,
    open_for_reading,
    open_for_writing,
    resize_pages,
)
from .content_writer import ContentWriter
from .contents import EventKind, ImportedFile, RecordingEvent, RecordingIdentity, Told
from .file_lock import FileLock, RecordingTakenError

_NETWORK = frozenset(
    {
        "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "gfs", "gfs2", "glusterfs", "gpfs", "lustre",
        "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs",
        "wekafs",
    }
)  # fmt: skip
"""Types as in /proc/filesystems whose shared memory or locks do not reach other machines."""
_LOCAL_FUSE = frozenset({"fuseblk", "fuse.fuse-overlayfs", "fuse.lxcfs"})


def find_file_system(path: Path, mounts: str | None = None) -> str | None:
    """Return the type of the file system that holds a path (`ext4`, `nfs4`), or None where it is not known.

    Args:
        path: A file or folder; it need not exist.
        mounts: What /proc/self/mountinfo says (proc(5)); read by default.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
    place = Path(os.path.realpath(path))  # `resolve` raises where links lead in a circle
    found = None
    depth = -1
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        words = fields.split()
        kinds = rest.split()
        if len(words) < 5 or not kinds:
            continue
        mount = Path(_unescape(words[4]))
        # Of two mounts in one place the later one hides the other.
        if len(mount.parts) >= depth and place.is_relative_to(mount):
            found = kinds[0]
            depth = len(mount.parts)
    return found


def is_network(kind: str | None) -> bool:
    """Return whether write-ahead logging must not be used there: its index is memory that processes share."""
    if kind is None:
        return False
    return kind in _NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def _unescape(text: str) -> str:
    """Return a path of mountinfo, in which space, tab, newline and backslash are octal."""
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text


MOST_SAMPLE_BYTES = 16 << 20
"""As between an agent and its viewers: ten thousand devices."""
SMALL_BYTES = 1 << 20
"""Up to this size a file is written anew at its end, in smaller pages."""
UNCOMMITTED_S = 0.5
"""How long a sample may wait to be committed while others arrive."""


class RecordingWriter:
    """Writes samples into one file; use from one thread.

    A recording that is already there is continued. `kill -9` costs what was not committed: `append` commits
    what is older than half a second, `flush` everything.

    Args:
        path: The file.
        identity: Of what it is; of a recording that is continued, its own stays.
        clock: Injected in tests.
        find_type: Tells the type of a file system; injected in tests.

    Raises:
        OutputFileError: It cannot be written, or another process does.
        InputFileError: It is there and is no recording.
    """

    def __init__(
        self,
        path: Path,
        identity: RecordingIdentity,
        *,
        clock: Clock | None = None,
        find_type: Callable[[Path], str | None] = find_file_system,
    ) -> None:
        self.path = path
        self.notes: list[str] = []
        """Sentences about how it is written, for stderr."""
        self.samples = self.device_samples = 0
        """Added by this writer."""
        self.left_out = 0
        """Samples that no file can hold: a time that is no number, text that is none, more than 16 MiB."""
        self.stopped: str | None = None
        """Why nothing more can be written, in one sentence; None while it can."""
        self._clock = clock or SystemClock()
        self._uncommitted_since_s: float | None = None
        self._connection: sqlite3.Connection | None = None
        kind = find_type(path)
        if is_network(kind):
            self.notes.append(
                f"{show_path(path)} is on a network file system ({kind}): recording with a rollback journal "
                "instead of a write-ahead log"
            )
        self._lock = _lock(path)
        self._closed_bytes = self._begun_bytes = 0
        try:
            self._open(identity, is_shared=is_network(kind))
        except BaseException:
            self._release()
            raise

    @property
    def identity(self) -> RecordingIdentity:
        """Of what the recording is."""
        return self._content.identity

    @property
    def continued_s(self) -> float | None:
        """Time of the newest sample of a recording that is continued; None where there was none."""
        return self._content.continued_s

    @property
    def size_bytes(self) -> int:
        """Size of the file, without what is not yet part of it (`-wal`)."""
        return self._closed_bytes if self._lock.is_released else self._lock.size_bytes

    def check_place(self) -> str | None:
        """Return what somebody did to the file while it is written, in a few words; None where nothing.

        What is written into a file that was removed is lost, and nothing else says so: SQLite goes on.

        Raises:
            OutputFileError: The file was emptied; nothing more can be written.
        """
        if self._lock.is_released:
            return None
        if not self._lock.has_its_name:
            place = self._lock.find_new_name()
            return "was removed" if place is None else f"was renamed to {show_path(place)}"
        if self._lock.size_bytes < self._begun_bytes:
            self.stopped = (
                f"{show_path(self.path)}: recording stopped: another program emptied the file; "
                "what was recorded until now is lost"
            )
            raise RecordingStoppedError(self.stopped)
        return None

    def append(
        self,
        sample: Sample,
        findings: Sequence[Finding] = (),
        assessments: Sequence[Assessment] | None = None,
    ) -> None:
        """Add a sample with what analyzers said of it.

        Args:
            sample: It is kept as it is; one that no file can hold is counted in `left_out`.
            findings: Those that opened, changed or closed.
            assessments: All that stand, where any has changed.

        Raises:
            OutputFileError: The disk is full or the file has gone; nothing more can be written.
        """
        data = _encode(sample)
        if data is None:
            self.left_out += 1
            return
        self._write(lambda: self._content.append(sample, data))
        self.samples += 1
        self.device_samples += len(sample.devices)
        if findings or assessments is not None:
            self.tell(sample.node, findings, assessments)
        since_s = self._uncommitted_since_s
        if since_s is not None and self._clock.monotonic_s() - since_s >= UNCOMMITTED_S:
            self.flush()

    def tell(
        self, node: str, findings: Sequence[Finding], assessments: Sequence[Assessment] | None = None
    ) -> None:
        """Add what analyzers said after the newest sample of a node.

        Raises:
            OutputFileError: As `append`.
        """
        told = Told(0, 0.0, tuple(findings), None if assessments is None else tuple(assessments))
        self._write(lambda: self._content.tell(node, told))

    def add_event(self, kind: EventKind, text: str) -> None:
        """Add what happened beside the samples, at the time of the newest one.

        Args:
            kind: What it is.
            text: What happened, in a few words.

        Raises:
            OutputFileError: As `append`.
        """
        self._write(lambda: self._keep_event(kind, text))

    def note_imported(self, files: Sequence[ImportedFile]) -> None:
        """Say of what files the recording was made; in place of what was said before.

        Raises:
            OutputFileError: As `append`.
        """
        self._write(lambda: self._content.note_imported(files))

    def flush(self) -> None:
        """Commit what was added; it outlives this process from then on.

        Raises:
            OutputFileError: As `append`.
        """
        self._guard(self._commit)

    def close(self, reason: str = "ended") -> None:
        """Compact what is left and close the file, which is then a single one; does nothing a second time.

        Args:
            reason: Why the recording ends, for its last event.

        Raises:
            OutputFileError: The disk is full; the file is closed and can be read nevertheless.
        """
        try:
            if not self._lock.is_released and self.stopped is None:
                self._write(lambda: self._finish(reason))
                self.flush()
                self._tidy()
        finally:
            self._release()

    def __enter__(self) -> "RecordingWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, identity: RecordingIdentity, *, is_shared: bool) -> None:
        made = msgspec.msgpack.encode(identity)
        self._connection = open_for_writing(self._lock, made, is_shared=is_shared)
        self._guard(self._begin)
        self._guard(lambda: self._fill(identity))
        self._guard(self._commit)
        self._begun_bytes = min(self._lock.size_bytes, WRITTEN_PAGE_BYTES)

    def _fill(self, identity: RecordingIdentity) -> None:
        self._content = ContentWriter(self._sqlite, identity.created_s, self.path)
        self._keep_event("recording_started", f"vramscope {identity.version} records")

    def _keep_event(self, kind: EventKind, text: str) -> None:
        content = self._content
        content.keep_event(RecordingEvent(kind, content.newest_s, content.identity.node, text))

    def _finish(self, reason: str) -> None:
        self._content.finish()
        self._keep_event("recording_stopped", reason)

    def _tidy(self) -> None:
        """Give back free pages and join the log; a reader that holds the file now, or no room, is no harm."""
        with suppress(*SQLITE_ERRORS):
            self._sqlite.execute("PRAGMA busy_timeout = 200").fetchall()
            self._sqlite.executescript("PRAGMA incremental_vacuum")  # a cursor would free a single page
            self._sqlite.execute("PRAGMA journal_mode = DELETE").fetchall()
            if self.size_bytes <= SMALL_BYTES:
                resize_pages(self._sqlite, KEPT_PAGE_BYTES)

    @property
    def _sqlite(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RecordingStoppedError(f"{show_path(self.path)}: is closed")
        return self._connection

    def _write(self, action: Callable[[], None]) -> None:
        """Do something within a transaction."""
        self._guard(self._begin)
        self._guard(action)

    def _begin(self) -> None:
        if not self._sqlite.in_transaction:
            self._sqlite.execute("BEGIN IMMEDIATE")
            self._uncommitted_since_s = self._clock.monotonic_s()

    def _commit(self) -> None:
        if self._sqlite.in_transaction:
            self._sqlite.execute("COMMIT")
        self._uncommitted_since_s = None

    def _guard(self, action: Callable[[], None]) -> None:
        """Do something with the file; what SQLite refuses ends the recording in one sentence."""
        if self.stopped is not None:
            raise RecordingStoppedError(self.stopped)
        try:
            action()
        except SQLITE_ERRORS as error:
            told = explain_write_error(self.path, error)
            self.stopped = str(told)
            raise told from error

    def _release(self) -> None:
        if self._connection is not None:
            with suppress(*SQLITE_ERRORS):
                self._connection.close()
            self._connection = None
        if not self._lock.is_released:
            self._closed_bytes = self._lock.size_bytes
        self._lock.release()


def _encode(sample: Sample) -> bytes | None:
    """Return a sample as MessagePack, or None where it cannot be kept."""
    try:
        data = msgspec.msgpack.encode(sample)
    except (UnicodeEncodeError, OverflowError):
        return None
    return data if math.isfinite(sample.time_s) and len(data) <= MOST_SAMPLE_BYTES else None


def _lock(path: Path) -> FileLock:
    """Return the lock of a recording.

    Raises:
        OutputFileError: As `FileLock`; the text names the process that has it.
    """
    try:
        return FileLock(path)
    except RecordingTakenError as error:
        pid = find_writer(path)
        raise (error if pid is None else RecordingTakenError(path, pid)) from None


def find_writer(path: Path) -> int | None:
    """Return the pid that the newest writer of a recording wrote into it, or None where there is none."""
    try:
        connection, _ = open_for_reading(path)
    except InputFileError:
        return None
    try:
        (value,) = connection.execute("SELECT value FROM meta WHERE key = 'writer'").fetchone()
        return msgspec.msgpack.decode(value, type=int)
    except (*SQLITE_ERRORS, *DAMAGES):
        return None
    finally:
        connection.close()
