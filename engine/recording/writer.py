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
from .block import DAMAGES, MOST_RAW_BYTES, TickedSample, list_columns, pack_samples, pack_told
from .contents import (
    FREQUENT,
    EventFinder,
    EventKind,
    ImportedFile,
    OverviewBuilder,
    RecordedDevice,
    RecordingEvent,
    RecordingIdentity,
    Told,
    describe_device,
    merge_minutes,
    pack_minute,
    unpack_minute,
)
from .sqlite import (
    KEPT_PAGE_BYTES,
    SQLITE_ERRORS,
    WRITTEN_PAGE_BYTES,
    FileLock,
    RecordingStoppedError,
    RecordingTakenError,
    explain_write_error,
    open_for_reading,
    open_for_writing,
    resize_pages,
)

MOST_JOBS = 64
_pack = msgspec.msgpack.encode


class _Node:
    """State of one node while its samples are written."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pending = PendingRows()
        self.finder = EventFinder()
        self.overview = OverviewBuilder()
        self.device_ids: dict[str, int] = {}


class ContentWriter:
    """Fills the tables of one connection; the caller begins and commits transactions.

    Args:
        connection: To a recording, empty or not, within a transaction.
        created_s: Time of what comes before the first sample.
        path: For errors.
    """

    def __init__(self, connection: sqlite3.Connection, created_s: float, path: Path) -> None:
        self._run = connection.execute
        self._nodes: dict[str, _Node] = {}
        self.newest_s = created_s
        try:
            kept = self._run("SELECT value FROM meta WHERE key = 'identity'").fetchone()
            self.identity = msgspec.msgpack.decode(kept[0], type=RecordingIdentity)
            self._write_meta("writer", os.getpid())
            self._layout = self._find_layout()
            (rows,) = self._run("SELECT coalesce(max(tick), 0) FROM ticks").fetchone()
            (blocks,) = self._run("SELECT coalesce(max(last_tick), 0) FROM blocks").fetchone()
            self._tick = max(int(rows), int(blocks))
            self.continued_s = self._find_last_time()
            """Time of the newest sample that was there before; None where there was none."""
            self._resume()
        except DAMAGES as error:
            raise InputFileError(
                f"{show_path(path)}: damaged, cannot be continued; choose another file with -o"
            ) from error

    def append(self, sample: Sample, data: bytes) -> None:
        """Add a sample as a row, with its events; enough rows become a block."""
        node = self._node_of(sample.node)
        self._tick += 1
        self._run(
            "INSERT INTO ticks (tick, node, time_s, sample) VALUES (?, ?, ?, ?)",
            (self._tick, node.number, sample.time_s, data),
        )
        self.newest_s = sample.time_s
        for event in node.finder.observe(sample):
            if event.kind not in FREQUENT:
                self.keep_event(event)
        self._note_jobs(sample)
        is_minute_over = self._add_row(node, self._tick, sample)
        if node.pending.is_enough:
            self._compact(node)
        elif is_minute_over:
            self._write_overview(node)

    def tell(self, name: str, told: Told) -> None:
        """Add what analyzers reported after the newest sample, and fill in its number and time."""
        node = self._node_of(name)
        told = msgspec.structs.replace(told, tick=self._tick, time_s=self.newest_s)
        for finding in told.findings:
            self._run(
                "INSERT INTO findings (id, opened_s, finding) VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET finding = excluded.finding",
                (finding.id, finding.opened_s, _pack(finding)),
            )
        row = (node.number, told.time_s, _pack(told))
        self._run("INSERT INTO told (node, time_s, words) VALUES (?, ?, ?)", row)
        node.pending.add_told(told)

    def keep_event(self, event: RecordingEvent) -> None:
        self._run("INSERT INTO events (time_s, event) VALUES (?, ?)", (event.time_s, _pack(event)))

    def note_imported(self, files: Sequence[ImportedFile]) -> None:
        """Store in the identity from which files the recording was made."""
        self.identity = msgspec.structs.replace(self.identity, imported=tuple(files))
        self._write_meta("identity", self.identity)

    def finish(self) -> None:
        """Make blocks of all rows, and remove the mark of a writer."""
        for node in self._nodes.values():
            self._compact(node)
        self._run("DELETE FROM meta WHERE key = 'writer'")

    def _find_layout(self) -> int:
        columns = _pack(list_columns())
        row = self._run("SELECT id FROM layouts WHERE columns = ?", (columns,)).fetchone()
        if row is None:
            return int(self._run("INSERT INTO layouts (columns) VALUES (?)", (columns,)).lastrowid or 0)
        return int(row[0])

    def _find_last_time(self) -> float | None:
        rows = self._run("SELECT max(time_s) FROM ticks").fetchone()
        blocks = self._run("SELECT max(end_s) FROM blocks INDEXED BY blocks_by_time").fetchone()
        known = [float(time_s) for (time_s,) in (rows, blocks) if time_s is not None]
        return max(known, default=None)

    def _resume(self) -> None:
        """Load the rows that a killed writer left."""
        names = dict(self._run("SELECT id, name FROM nodes").fetchall())
        for (data,) in self._run("SELECT device FROM devices").fetchall():
            device = msgspec.msgpack.decode(data, type=RecordedDevice)
            self._node_of(device.node).device_ids[device.uuid] = device.id
        for tick, number, data in self._run("SELECT tick, node, sample FROM ticks ORDER BY tick").fetchall():
            sample = msgspec.msgpack.decode(data, type=Sample)
            self.newest_s = sample.time_s
            self._add_row(self._node_of(names[number]), tick, sample)
        for number, words in self._run("SELECT node, words FROM told ORDER BY id").fetchall():
            self._node_of(names[number]).pending.add_told(msgspec.msgpack.decode(words, type=Told))
        for node in self._nodes.values():
            self._compact(node)

    def _add_row(self, node: _Node, tick: int, sample: Sample) -> bool:
        """Add a sample to its block and its minute; return whether another minute began."""
        node.pending.add(tick, sample)
        for device in sample.devices:
            if device.uuid not in node.device_ids:
                (number,) = self._run("SELECT coalesce(max(id), 0) + 1 FROM devices").fetchone()
                node.device_ids[device.uuid] = number
                described = describe_device(number, sample.node, device)
                self._run("INSERT INTO devices VALUES (?, ?)", (number, _pack(described)))
        return node.overview.add(sample, [node.device_ids[device.uuid] for device in sample.devices])

    def _compact(self, node: _Node) -> None:
        self._write_overview(node)
        pending = node.pending
        if not pending.samples:
            return
        node.pending = PendingRows()
        self._write_blocks(node, pending.samples, pending.told)
        first = pending.samples[0].tick
        last = pending.samples[-1].tick
        self._run("DELETE FROM ticks WHERE node = ? AND tick BETWEEN ? AND ?", (node.number, first, last))
        self._run("DELETE FROM told WHERE node = ?", (node.number,))

    def _write_blocks(self, node: _Node, rows: Sequence[TickedSample], said: Sequence[Told]) -> None:
        """Add a block, or two halves if it would be larger than any reader accepts."""
        samples = pack_samples(rows)
        told = pack_told(said)
        if samples.raw_bytes > MOST_RAW_BYTES and len(rows) > 1:
            middle = len(rows) // 2
            self._write_blocks(node, rows[:middle], ())
            self._write_blocks(node, rows[middle:], said)
            return
        times = [it.sample.time_s for it in rows]
        device_samples = sum(len(it.sample.devices) for it in rows)
        self._run(
            "INSERT INTO blocks (node, first_tick, last_tick, start_s, end_s, samples, device_samples, "
            "layout, raw_bytes, body, told, told_raw_bytes, told_body) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(node.number, rows[0].tick, rows[-1].tick, min(times), max(times), len(rows)),
                *(device_samples, self._layout, samples.raw_bytes, samples.data),
                *(told.rows, told.raw_bytes, told.data),
            ),
        )

    def _write_overview(self, node: _Node) -> None:
        for minute, figures in node.overview.take().items():
            key = (minute, node.number)
            row = self._run("SELECT figures FROM overview WHERE minute = ? AND node = ?", key).fetchone()
            merged = figures if row is None else merge_minutes(unpack_minute(row[0]), figures)
            self._run("INSERT OR REPLACE INTO overview VALUES (?, ?, ?)", (*key, pack_minute(merged)))

    def _node_of(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            row = self._run("SELECT id FROM nodes WHERE name = ?", (name,)).fetchone()
            number = None if row is None else row[0]
            if number is None:
                number = self._run("INSERT INTO nodes (name) VALUES (?)", (name,)).lastrowid
            node = self._nodes[name] = _Node(int(number or 0))
        return node

    def _note_jobs(self, sample: Sample) -> None:
        known = self.identity.jobs
        new = [rank.job for rank in sample.ranks if rank.job is not None and rank.job not in known]
        if new and len(known) < MOST_JOBS:
            jobs = (*known, *dict.fromkeys(new))[:MOST_JOBS]
            self.identity = msgspec.structs.replace(self.identity, jobs=jobs)
            self._write_meta("identity", self.identity)

    def _write_meta(self, key: str, value: object) -> None:
        self._run("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, _pack(value)))


# Size of a block: more do not compress better, and make seeking slower, which unpacks a whole block.
TARGET_DEVICE_SAMPLES = 2048
# Names and commands of many devices are stored once a block.
LEAST_BLOCK_TICKS = 8
MOST_BLOCK_TICKS = 600
# Devices, processes, ranks and assessments of all ticks of a block, unless a single tick has more.
MOST_BLOCK_ROWS = 1 << 15


class PendingRows:
    """Samples of one node in order, what analyzers reported, and whether that is enough for a block."""

    def __init__(self) -> None:
        self.samples: list[TickedSample] = []
        self.told: list[Told] = []
        # Devices of all samples.
        self.device_samples = 0
        self._rows = 0

    @property
    def is_enough(self) -> bool:
        ticks = len(self.samples)
        is_large = self.device_samples >= TARGET_DEVICE_SAMPLES and ticks >= LEAST_BLOCK_TICKS
        return ticks > 0 and (is_large or ticks >= MOST_BLOCK_TICKS or self._rows >= MOST_BLOCK_ROWS)

    def add(self, tick: int, sample: Sample) -> None:
        self.samples.append(TickedSample(tick, sample))
        self.device_samples += len(sample.devices)
        processes = sum(len(device.processes or ()) for device in sample.devices)
        self._rows += len(sample.devices) + len(sample.ranks) + processes

    def add_told(self, told: Told) -> None:
        self.told.append(told)
        self._rows += 1 + 8 * len(told.findings) + len(told.assessments or ())


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
    """Return the type of the file system of a path (`ext4`, `nfs4`), or None if it is not known."""
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
        # The later of two mounts in one place hides the other.
        if len(mount.parts) >= depth and place.is_relative_to(mount):
            found = kinds[0]
            depth = len(mount.parts)
    return found


def is_network(kind: str | None) -> bool:
    """Return whether write-ahead logging must not be used: its index is memory that processes share."""
    if kind is None:
        return False
    return kind in _NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def _unescape(text: str) -> str:
    """In mountinfo, space, tab, newline and backslash are octal."""
    for code in ("040", "011", "012", "134"):
        text = text.replace(f"\\{code}", chr(int(code, 8)))
    return text


# As between an agent and its viewers: ten thousand devices.
MOST_SAMPLE_BYTES = 16 << 20
# Up to this size a file is rewritten at its end, in smaller pages.
SMALL_BYTES = 1 << 20
# How long a sample may wait to be committed while others arrive.
UNCOMMITTED_S = 0.5


class RecordingWriter:
    """Writes samples into one file; use from one thread.

    An existing recording is continued. `kill -9` costs what was not committed: `append` commits what is older
    than half a second, `flush` everything.

    Args:
        identity: Of a new file; a recording that is continued keeps its own.
        find_type: Returns the type of a file system; injected in tests.
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
        # Sentences for stderr.
        self.notes: list[str] = []
        # Added by this writer.
        self.samples = self.device_samples = 0
        # Samples that no file can hold: their time is not finite, their text is invalid, or they
        # exceed 16 MiB.
        self.left_out = 0
        # Why nothing more can be written, in one sentence; None while it can.
        self.stopped: str | None = None
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
        return self._content.identity

    @property
    def continued_s(self) -> float | None:
        """Time of the newest sample of a recording that is continued, or None."""
        return self._content.continued_s

    @property
    def size_bytes(self) -> int:
        """Without what is not yet part of the file (`-wal`)."""
        return self._closed_bytes if self._lock.is_released else self._lock.size_bytes

    def check_place(self) -> str | None:
        """Return what somebody did to the file meanwhile, in a few words; None if nothing.

        What is written into a removed file is lost, and nothing else says so: SQLite continues. An emptied
        file raises `OutputFileError`.
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
        """Add a sample with what analyzers reported of it.

        Args:
            sample: Stored as it is; one that no file can hold is counted in `left_out`.
            findings: Those that opened, changed or closed.
            assessments: All that are open, if any has changed.

        Raises:
            OutputFileError: The disk is full or the file is gone; nothing more can be written.
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
        """Add what analyzers reported after the newest sample of a node; raises as `append`."""
        told = Told(0, 0.0, tuple(findings), None if assessments is None else tuple(assessments))
        self._write(lambda: self._content.tell(node, told))

    def add_event(self, kind: EventKind, text: str) -> None:
        """Add an event that is not in the samples, at the time of the newest one; raises as `append`."""
        self._write(lambda: self._write_event(kind, text))

    def note_imported(self, files: Sequence[ImportedFile]) -> None:
        """Store from which files the recording was made, in place of what was stored before."""
        self._write(lambda: self._content.note_imported(files))

    def flush(self) -> None:
        """Commit: what was added outlives this process from then on; raises as `append`."""
        self._guard(self._commit)

    def close(self, reason: str = "ended") -> None:
        """Compact what is left and close the file, which is then a single one; a second call does nothing.

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
        self._write_event("recording_started", f"vramscope {identity.version} records")

    def _write_event(self, kind: EventKind, text: str) -> None:
        content = self._content
        content.keep_event(RecordingEvent(kind, content.newest_s, content.identity.node, text))

    def _finish(self, reason: str) -> None:
        self._content.finish()
        self._write_event("recording_stopped", reason)

    def _tidy(self) -> None:
        """Join the log and free pages; what is not possible, as the disk is full, does no harm.

        While a reader has the file, its log can be joined but not removed.
        """
        with suppress(*SQLITE_ERRORS):
            self._sqlite.execute("PRAGMA busy_timeout = 200").fetchall()
            self._sqlite.executescript("PRAGMA incremental_vacuum")  # a cursor would free a single page
            # Whoever copies the file leaves a log behind.
            self._sqlite.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._sqlite.execute("PRAGMA journal_mode = DELETE").fetchall()
            if self.size_bytes <= SMALL_BYTES:
                resize_pages(self._sqlite, KEPT_PAGE_BYTES)

    @property
    def _sqlite(self) -> sqlite3.Connection:
        if self._connection is None:
            raise RecordingStoppedError(f"{show_path(self.path)}: is closed")
        return self._connection

    def _write(self, action: Callable[[], None]) -> None:
        """Run `action` within a transaction."""
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
        """Run `action`; what SQLite refuses ends the recording in one sentence."""
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
    """None if it cannot be stored."""
    try:
        data = msgspec.msgpack.encode(sample)
    except (UnicodeEncodeError, OverflowError):
        return None
    return data if math.isfinite(sample.time_s) and len(data) <= MOST_SAMPLE_BYTES else None


def _lock(path: Path) -> FileLock:
    """Lock a recording; the error names the process that has it."""
    try:
        return FileLock(path)
    except RecordingTakenError as error:
        pid = find_writer(path)
        raise (error if pid is None else RecordingTakenError(path, pid)) from None


def find_writer(path: Path) -> int | None:
    """Return the pid that the newest writer of a recording wrote into it, or None."""
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
