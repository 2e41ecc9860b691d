"""The rows of a recording: what each sample, finding and event becomes in its tables."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..errors import InputFileError
from ..files.base.input_file import show_path
from ..model import Sample
from .block import DAMAGES, MOST_RAW_BYTES, TickedSample, list_columns, pack_samples, pack_told
from .contents import ImportedFile, RecordedDevice, RecordingEvent, RecordingIdentity, Told, describe_device
from .events import FREQUENT, EventFinder
from .overview import OverviewBuilder, merge_minutes, pack_minute, unpack_minute

MOST_JOBS = 64
_encode = msgspec.msgpack.encode


class _Node:
    """What is known of one node while its samples are written."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pending = PendingRows()
        self.finder = EventFinder()
        self.overview = OverviewBuilder()
        self.device_ids: dict[str, int] = {}


class ContentWriter:
    """Fills the tables of one connection; whoever calls it begins and commits transactions.

    Args:
        connection: To a recording, empty or not, within a transaction.
        created_s: Time of what is told before the first sample.
        path: Of the recording, for what is said.

    Raises:
        InputFileError: What is there is damaged.
        sqlite3.Error: It cannot be written.
    """

    def __init__(self, connection: sqlite3.Connection, created_s: float, path: Path) -> None:
        self._run = connection.execute
        self._nodes: dict[str, _Node] = {}
        self.newest_s = created_s
        """Time of the newest sample."""
        try:
            kept = self._run("SELECT value FROM meta WHERE key = 'identity'").fetchone()
            self.identity = msgspec.msgpack.decode(kept[0], type=RecordingIdentity)
            self._put("writer", os.getpid())
            self._layout = self._find_layout()
            self._tick = self._find_last_tick()
            self.continued_s = self._find_last_time()
            """Time of the newest sample that was there before; None where there was none."""
            self._resume()
        except DAMAGES as error:
            raise InputFileError(
                f"{show_path(path)}: damaged, it cannot be continued; name another file with -o"
            ) from error

    def append(self, sample: Sample, data: bytes) -> None:
        """Add a sample as a row, with the events that it tells; rows that are enough become a block.

        Args:
            sample: The sample.
            data: The same as MessagePack.
        """
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
        is_minute_over = self._take_over(node, self._tick, sample)
        if node.pending.is_enough:
            self._compact(node)
        elif is_minute_over:
            self._keep_overview(node)

    def tell(self, name: str, told: Told) -> None:
        """Add what was said after the newest sample, whose number and time are filled in."""
        node = self._node_of(name)
        told = msgspec.structs.replace(told, tick=self._tick, time_s=self.newest_s)
        for finding in told.findings:
            self._run(
                "INSERT INTO findings (id, opened_s, finding) VALUES (?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET finding = excluded.finding",
                (finding.id, finding.opened_s, _encode(finding)),
            )
        row = (node.number, told.time_s, _encode(told))
        self._run("INSERT INTO told (node, time_s, words) VALUES (?, ?, ?)", row)
        node.pending.add_told(told)

    def keep_event(self, event: RecordingEvent) -> None:
        """Add an event."""
        self._run("INSERT INTO events (time_s, event) VALUES (?, ?)", (event.time_s, _encode(event)))

    def note_imported(self, files: Sequence[ImportedFile]) -> None:
        """Say in the identity of what files the recording was made."""
        self.identity = msgspec.structs.replace(self.identity, imported=tuple(files))
        self._put("identity", self.identity)

    def finish(self) -> None:
        """Make blocks of all rows, and say that nobody writes any more."""
        for node in self._nodes.values():
            self._compact(node)
        self._run("DELETE FROM meta WHERE key = 'writer'")

    def _find_layout(self) -> int:
        columns = _encode(list_columns())
        row = self._run("SELECT id FROM layouts WHERE columns = ?", (columns,)).fetchone()
        if row is None:
            return int(self._run("INSERT INTO layouts (columns) VALUES (?)", (columns,)).lastrowid or 0)
        return int(row[0])

    def _find_last_tick(self) -> int:
        (rows,) = self._run("SELECT coalesce(max(tick), 0) FROM ticks").fetchone()
        (blocks,) = self._run("SELECT coalesce(max(last_tick), 0) FROM blocks").fetchone()
        return max(int(rows), int(blocks))

    def _find_last_time(self) -> float | None:
        rows = self._run("SELECT max(time_s) FROM ticks").fetchone()
        blocks = self._run("SELECT max(end_s) FROM blocks INDEXED BY blocks_by_time").fetchone()
        known = [float(time_s) for (time_s,) in (rows, blocks) if time_s is not None]
        return max(known, default=None)

    def _resume(self) -> None:
        """Take over the rows that a killed writer left."""
        names = dict(self._run("SELECT id, name FROM nodes").fetchall())
        for (data,) in self._run("SELECT device FROM devices").fetchall():
            device = msgspec.msgpack.decode(data, type=RecordedDevice)
            self._node_of(device.node).device_ids[device.uuid] = device.id
        for tick, number, data in self._run("SELECT tick, node, sample FROM ticks ORDER BY tick").fetchall():
            sample = msgspec.msgpack.decode(data, type=Sample)
            self.newest_s = sample.time_s
            self._take_over(self._node_of(names[number]), tick, sample)
        for number, words in self._run("SELECT node, words FROM told ORDER BY id").fetchall():
            self._node_of(names[number]).pending.add_told(msgspec.msgpack.decode(words, type=Told))
        for node in self._nodes.values():
            self._compact(node)

    def _take_over(self, node: _Node, tick: int, sample: Sample) -> bool:
        """Hold a sample for its block and its minute; return whether another minute began."""
        node.pending.add(tick, sample)
        return node.overview.add(sample, self._device_ids(node, sample))

    def _compact(self, node: _Node) -> None:
        """Put the rows of a node into blocks."""
        self._keep_overview(node)
        pending = node.pending
        if not pending.samples:
            return
        node.pending = PendingRows()
        self._keep_blocks(node, pending.samples, pending.told)
        first = pending.samples[0].tick
        last = pending.samples[-1].tick
        self._run("DELETE FROM ticks WHERE node = ? AND tick BETWEEN ? AND ?", (node.number, first, last))
        self._run("DELETE FROM told WHERE node = ?", (node.number,))

    def _keep_blocks(self, node: _Node, rows: Sequence[TickedSample], said: Sequence[Told]) -> None:
        """Add a block, or two halves where it would be larger than any reader takes."""
        samples = pack_samples(rows)
        told = pack_told(said)
        if samples.raw_bytes > MOST_RAW_BYTES and len(rows) > 1:
            middle = len(rows) // 2
            self._keep_blocks(node, rows[:middle], ())
            self._keep_blocks(node, rows[middle:], said)
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

    def _keep_overview(self, node: _Node) -> None:
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

    def _device_ids(self, node: _Node, sample: Sample) -> list[int]:
        for device in sample.devices:
            if device.uuid not in node.device_ids:
                (number,) = self._run("SELECT coalesce(max(id), 0) + 1 FROM devices").fetchone()
                node.device_ids[device.uuid] = number
                described = describe_device(number, sample.node, device)
                self._run("INSERT INTO devices VALUES (?, ?)", (number, _encode(described)))
        return [node.device_ids[device.uuid] for device in sample.devices]

    def _note_jobs(self, sample: Sample) -> None:
        known = self.identity.jobs
        new = [rank.job for rank in sample.ranks if rank.job is not None and rank.job not in known]
        if new and len(known) < MOST_JOBS:
            jobs = (*known, *dict.fromkeys(new))[:MOST_JOBS]
            self.identity = msgspec.structs.replace(self.identity, jobs=jobs)
            self._put("identity", self.identity)

    def _put(self, key: str, value: object) -> None:
        self._run("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, _encode(value)))


TARGET_DEVICE_SAMPLES = 2048
"""Of a block: more do not compress better, and make a seek slower, which unpacks one."""
LEAST_BLOCK_TICKS = 8
"""Names and commands of many devices are kept once a block."""
MOST_BLOCK_TICKS = 600
MOST_BLOCK_ROWS = 1 << 15
"""Devices, processes, ranks and assessments of all ticks of a block, unless a single tick has more."""


class PendingRows:
    """Samples of one node in order, what was said of them, and whether they are enough for a block."""

    def __init__(self) -> None:
        self.samples: list[TickedSample] = []
        self.told: list[Told] = []
        self.device_samples = 0
        """Devices of all samples."""
        self._rows = 0

    @property
    def is_enough(self) -> bool:
        """Whether a block should be made of them."""
        ticks = len(self.samples)
        is_large = self.device_samples >= TARGET_DEVICE_SAMPLES and ticks >= LEAST_BLOCK_TICKS
        return ticks > 0 and (is_large or ticks >= MOST_BLOCK_TICKS or self._rows >= MOST_BLOCK_ROWS)

    def add(self, tick: int, sample: Sample) -> None:
        """Take one more sample."""
        self.samples.append(TickedSample(tick, sample))
        self.device_samples += len(sample.devices)
        processes = sum(len(device.processes or ()) for device in sample.devices)
        self._rows += len(sample.devices) + len(sample.ranks) + processes

    def add_told(self, told: Told) -> None:
        """Take what was said."""
        self.told.append(told)
        self._rows += 1 + 8 * len(told.findings) + len(told.assessments or ())
