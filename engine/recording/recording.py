"""Reads a recording: its span, its samples by time, the values of whole minutes, findings and events.

Samples are in the order in which they were recorded, with their own times, so a clock that was set leaves a
jump. Nothing in a file is trusted: what cannot be read is left out and counted. A file so damaged that the
rest cannot be found, or that is closed, raises `InputFileError`.
"""

import heapq
import sqlite3
import sys
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..errors import InputFileError
from ..files.base.input_file import show_name, show_path
from ..model import Finding, Sample
from ..soundness import make_msgpack_decoder
from ..text import clean_texts, make_printable
from .block import DAMAGES, BlockError, Body, Names, Part, TickedSample, unpack_samples, unpack_told
from .contents import (
    FREQUENT,
    MINUTE_S,
    Damage,
    EventFinder,
    EventKind,
    Minute,
    OverviewBuilder,
    OverviewMinute,
    RecordedDevice,
    RecordingEvent,
    RecordingIdentity,
    Told,
    merge_minutes,
    minute_of,
    unpack_minute,
)
from .sqlite import SQLITE_ERRORS, explain_read_error, is_without_log, open_for_reading

_KEPT_BLOCKS = 2
_MOST_COUNTED = 100_000
_MOST_COLUMNS = 4096
_SAMPLES = "SELECT layout, raw_bytes, body, samples FROM blocks WHERE id = ?"
_TOLD = "SELECT layout, told_raw_bytes, told_body, told FROM blocks WHERE id = ?"
_NAMES = msgspec.msgpack.Decoder(dict[Part, tuple[str, ...]])


class DamageCount:
    """Counts what was left out, each thing once."""

    def __init__(self, *, is_tail_lost: bool) -> None:
        self._blocks: dict[tuple[str, int], int] = {}
        self._rows: set[tuple[str, object]] = set()
        self._is_tail_lost = is_tail_lost

    @property
    def total(self) -> Damage:
        blocks = {number for _, number in self._blocks}
        return Damage(len(blocks), sum(self._blocks.values()), len(self._rows), self._is_tail_lost)

    def add_block(self, part: str, number: int, samples: int) -> None:
        """Count a block with an unreadable part, and the samples that are missing."""
        if len(self._blocks) < _MOST_COUNTED:
            self._blocks[part, number] = samples

    def add_row(self, table: str, key: object) -> None:
        if len(self._rows) < _MOST_COUNTED:
            self._rows.add((table, key))


class BlockReader:
    """Reads blocks by number; the newest few stay decoded, for going back and forth."""

    def __init__(self, connection: sqlite3.Connection, damage: DamageCount) -> None:
        self._run = connection.execute
        self._damage = damage
        self._layouts: dict[int, Names] = {}
        self._kept: OrderedDict[int, list[TickedSample]] = OrderedDict()

    def samples(self, number: int) -> list[TickedSample]:
        """In order; none if the block is damaged."""
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        try:
            rows = unpack_samples(*self._fetch(_SAMPLES, number))
        except (BlockError, *SQLITE_ERRORS):
            self._damage.add_block("samples", number, self._count_samples(number))
            return []
        self._kept[number] = rows
        if len(self._kept) > _KEPT_BLOCKS:
            self._kept.popitem(last=False)
        return rows

    def told(self, number: int) -> list[Told]:
        """What analyzers reported during a block; nothing if it is damaged."""
        try:
            return unpack_told(*self._fetch(_TOLD, number))
        except (BlockError, *SQLITE_ERRORS):
            self._damage.add_block("told", number, 0)
            return []

    def _fetch(self, query: str, number: int) -> tuple[Body, Names]:
        row = self._run(query, (number,)).fetchone()
        if row is None:
            raise BlockError("it is gone")
        layout, raw_bytes, data, rows = row
        if not (isinstance(data, bytes) and all(isinstance(it, int) for it in (layout, raw_bytes, rows))):
            raise BlockError("values of other types")
        return Body(data, raw_bytes, rows), self._names(layout)

    def _names(self, layout: int) -> Names:
        known = self._layouts.get(layout)
        if known is None:
            query = "SELECT columns FROM layouts WHERE id = ? AND length(columns) < 1000000"
            row = self._run(query, (layout,)).fetchone()
            try:
                known = _NAMES.decode(row[0])
            except DAMAGES as error:
                raise BlockError("columns without names") from error
            if max(map(len, known.values()), default=0) > _MOST_COLUMNS:
                raise BlockError("too many columns")
            self._layouts[layout] = known
        return known

    def _count_samples(self, number: int) -> int:
        query = "SELECT samples FROM blocks INDEXED BY blocks_by_time WHERE id = ?"
        try:
            row = self._run(query, (number,)).fetchone()
        except SQLITE_ERRORS:
            return 0
        return row[0] if row is not None and isinstance(row[0], int) and 0 < row[0] < 1 << 20 else 0


# Rows in memory at once.
PAGE = 256
# Bytes of rows in memory at once, except the last.
PAGE_BYTES = 32 << 20
# No finding, event, device or minute is longer.
MOST_ROW_BYTES = 1 << 20
# All of what is read as a whole, such as the findings of a recording.
MOST_HELD_BYTES = 256 << 20
_T = TypeVar("_T")


class RowReader:
    """Runs queries on one connection, and counts what is left out."""

    def __init__(self, connection: sqlite3.Connection, path: Path, damage: DamageCount) -> None:
        self._connection = connection
        self._path = path
        self._damage = damage

    @contextmanager
    def reading(self) -> Iterator[None]:
        """See one state of the file within the block, whatever its writer does meanwhile."""
        with self._explaining():
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def one(self, query: str, *values: object) -> tuple[Any, ...]:
        with self._explaining():
            row: tuple[Any, ...] = self._connection.execute(query, values).fetchone()
        return row

    def all(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._explaining():
            return self._connection.execute(query, values).fetchall()

    def page(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the first rows of a query whose last column is a blob, as many as fit `PAGE` and
        `PAGE_BYTES`.
        """
        rows: list[tuple[Any, ...]] = []
        held_bytes = 0
        with self._explaining():
            for row in self._connection.execute(query, values):
                rows.append(row)
                held_bytes += len(row[-1]) if isinstance(row[-1], bytes) else 0
                if len(rows) >= PAGE or held_bytes >= PAGE_BYTES:
                    break
        return rows

    def structs(
        self, table: str, kind: type[_T], query: str, *values: object, is_held: bool = True
    ) -> Iterator[_T]:
        """Yield the decoded second column of a query; the first one is a key, by which damage is counted.

        Args:
            is_held: All are in memory at once, and therefore bounded.
        """
        decoder = make_msgpack_decoder(kind)
        for key, data in self.blobs(query, *values, is_held=is_held):
            try:
                if len(data) > MOST_ROW_BYTES:
                    raise ValueError(f"{len(data)} bytes")
                yield clean_texts(decoder.decode(data))
            except DAMAGES:
                self._damage.add_row(table, key)

    def blobs(self, query: str, *values: object, is_held: bool = True) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query whose last column is a blob; `is_held` as in `structs`."""
        with self._explaining():
            cursor = self._connection.execute(query, values)
        held_bytes = 0
        while True:
            with self._explaining():
                row = cursor.fetchone()
            if row is None:
                return
            held_bytes += len(row[-1]) if isinstance(row[-1], bytes) else 0
            if is_held and held_bytes > MOST_HELD_BYTES:
                raise InputFileError(
                    f"{show_path(self._path)}: needs {MOST_HELD_BYTES >> 20} MiB of memory or more; "
                    "ask for a shorter span"
                )
            yield row

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.ProgrammingError as error:
            raise InputFileError(f"{show_path(self._path)}: is closed") from error
        except SQLITE_ERRORS as error:
            raise explain_read_error(self._path, error) from error


MOST_NODES = 4096
MOST_DEVICES = 1 << 16
MOST_FINDINGS = 1 << 17
# Minutes times devices in memory at once: six weeks of 64 devices.
MOST_FIGURES = 1 << 22
_LEAST_S = -sys.float_info.max
# Any time; a damaged file may have values beyond.
_MOST_S = sys.float_info.max
_MinuteKey = tuple[int, int]


class Recording:
    """One file, open for reading; it may be written meanwhile. Use from one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection, is_tail_lost = open_for_reading(path)
        self._count = DamageCount(is_tail_lost=is_tail_lost)
        self._rows = RowReader(self._connection, path, self._count)
        self._blocks = BlockReader(self._connection, self._count)
        self._samples = SampleReader(self._rows, self._blocks, self._count)
        try:
            self._identity = self._read_identity()
            writers = self._rows.all("SELECT 1 FROM meta WHERE key = 'writer' LIMIT 1")
        except BaseException:
            self._connection.close()
            raise
        # Whether it was being written when it was opened, or its writer was killed.
        self.is_unfinished = bool(writers)

    @property
    def identity(self) -> RecordingIdentity:
        return self._identity

    @property
    def damage(self) -> Damage:
        """What was left out by all reading so far."""
        return self._count.total

    @property
    def why_empty(self) -> str:
        """Why no sample can be read, in a few words."""
        if self.damage.sentence is not None:
            return self.damage.sentence
        if is_without_log(self.path):
            log = f"{show_name(self.path)}-wal"
            return f"it was copied while it was written; copy {log} too, or copy it again"
        return "expected at least one"

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self._node_ids)

    @property
    def devices(self) -> tuple[RecordedDevice, ...]:
        """All devices that were ever recorded, as they were first."""
        query = "SELECT id, device FROM devices ORDER BY id LIMIT ?"
        return tuple(self._rows.structs("devices", RecordedDevice, query, MOST_DEVICES))

    @property
    def span(self) -> tuple[float, float] | None:
        """Least and greatest time in seconds of the samples' own clock; None without samples."""
        with self._rows.reading():
            found = [
                self._rows.one(
                    "SELECT min(start_s), max(end_s) FROM blocks INDEXED BY blocks_by_time "
                    "WHERE start_s >= ? AND end_s <= ?",
                    *_any_time(),
                ),
                self._rows.one(
                    "SELECT min(time_s), max(time_s) FROM ticks WHERE time_s BETWEEN ? AND ?", *_any_time()
                ),
            ]
        known = [(low, high) for low, high in found if isinstance(low, float) and isinstance(high, float)]
        return (min(low for low, _ in known), max(high for _, high in known)) if known else None

    @property
    def sample_count(self) -> int:
        """Samples of all nodes, by the index."""
        with self._rows.reading():
            (blocks,) = self._rows.one("SELECT total(samples) FROM blocks INDEXED BY blocks_by_time")
            (rows,) = self._rows.one("SELECT count(*) FROM ticks")
        return int(blocks) + int(rows)

    def samples(
        self, start_s: float | None = None, end_s: float | None = None, *, node: str | None = None
    ) -> Iterator[Sample]:
        """Yield samples from `start_s` to `end_s`, both included, in the order of recording.

        Of a live recording up to its present end.
        """
        span_s = _span_of(start_s, end_s)
        walks = [self._samples.walk(number, *span_s) for number in self._choose_nodes(node)]
        return (it.sample for it in heapq.merge(*walks, key=attrgetter("tick")))

    def sample_at(self, time_s: float, *, node: str | None = None) -> Sample | None:
        """Return the newest sample that is not after a time; of equal times the later.

        Args:
            time_s: Seconds of the samples' own clock.
            node: By default the recording's first node.
        """
        ids = self._node_ids
        name = next(iter(ids), None) if node is None else node
        return self._samples.find(ids[name], time_s) if name in ids else None

    def overview(
        self, start_s: float | None = None, end_s: float | None = None, *, node: str | None = None
    ) -> list[OverviewMinute]:
        """Return least and most of every device in every minute, in order of time; no block is read."""
        low, high = map(minute_of, _span_of(start_s, end_s))
        devices = {device.id: device for device in self.devices}
        names = {number: name for name, number in self._node_ids.items() if node in (None, name)}
        minutes = self._read_minutes(low, high, names)
        for key, minute in self._fold_rows(devices, names.values()).items():
            if low <= key[0] <= high:
                minutes[key] = merge_minutes(minutes.get(key, {}), minute)
        return [
            OverviewMinute(minute * MINUTE_S, names[node], devices[number].uuid, *figures)
            for minute, node in sorted(minutes)
            for number, figures in minutes[minute, node].items()
            if number in devices and node in names
        ]

    def findings(self) -> tuple[Finding, ...]:
        """Return the newest state of every finding, in the order in which they opened."""
        query = "SELECT id, finding FROM findings ORDER BY opened_s LIMIT ?"
        return tuple(self._rows.structs("findings", Finding, query, MOST_FINDINGS))

    def told(
        self, start_s: float | None = None, end_s: float | None = None, *, node: str | None = None
    ) -> Iterator[Told]:
        low, high = _span_of(start_s, end_s)
        for number in self._choose_nodes(node):
            for told in self._walk_told(number):
                if low <= told.time_s <= high:
                    yield told

    def events(
        self,
        start_s: float | None = None,
        end_s: float | None = None,
        *,
        kinds: Collection[EventKind] | None = None,
    ) -> Iterator[RecordingEvent]:
        """Yield what happened from `start_s` to `end_s`, in the order of recording.

        Args:
            kinds: Only these; by default all but steps and phases. Those are in the samples: asking for them
                reads all samples of the span.
        """
        query = "SELECT id, event FROM events WHERE time_s BETWEEN ? AND ? ORDER BY id"
        span_s = _span_of(start_s, end_s)
        kept = self._rows.structs("events", RecordingEvent, query, *span_s, is_held=False)
        if kinds is None:
            return kept
        chosen = (event for event in kept if event.kind in kinds)
        if FREQUENT.isdisjoint(kinds):
            return chosen
        found = self._find_frequent(self.samples(start_s, end_s), kinds)
        return heapq.merge(chosen, found, key=attrgetter("time_s"))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _node_ids(self) -> dict[str, int]:
        rows = self._rows.all(
            "SELECT id, name FROM nodes WHERE length(name) < 4096 ORDER BY id LIMIT ?", MOST_NODES
        )
        ids: dict[str, int] = {}
        for number, name in rows:
            if isinstance(name, str):
                shown = make_printable(name)
                ids[f"{shown} #{number}" if shown in ids else shown] = number
        return ids

    def _choose_nodes(self, node: str | None) -> list[int]:
        ids = self._node_ids
        return list(ids.values()) if node is None else [ids[node]] if node in ids else []

    def _read_identity(self) -> RecordingIdentity:
        query = "SELECT value FROM meta WHERE key = 'identity' AND length(value) < 1000000"
        rows = self._rows.all(query)
        try:
            return clean_texts(msgspec.msgpack.decode(rows[0][0], type=RecordingIdentity))
        except DAMAGES as error:
            raise InputFileError(f"{show_path(self.path)}: damaged, its identity is missing") from error

    def _read_minutes(self, low: int, high: int, nodes: Collection[int]) -> dict[_MinuteKey, Minute]:
        query = "SELECT minute, node, figures FROM overview WHERE minute BETWEEN ? AND ? ORDER BY minute"
        minutes: dict[_MinuteKey, Minute] = {}
        left = MOST_FIGURES
        for minute, node, data in self._rows.blobs(query, low, high):
            if node not in nodes:
                continue
            try:
                figures = minutes[minute, node] = unpack_minute(data)
            except DAMAGES:
                self._count.add_row("overview", (minute, node))
                continue
            left -= len(figures)
            if left < 0:
                raise InputFileError(
                    f"{show_path(self.path)}: more than {MOST_FIGURES:,} device minutes; ask for a "
                    "shorter span"
                )
        return minutes

    def _fold_rows(
        self, devices: dict[int, RecordedDevice], nodes: Collection[str]
    ) -> dict[_MinuteKey, Minute]:
        """Return the minutes of the newest samples, which may not be in the overview yet."""
        ids = {(device.node, device.uuid): device.id for device in devices.values()}
        minutes: dict[_MinuteKey, Minute] = {}
        for name, node in self._node_ids.items():
            if name not in nodes:
                continue
            builder = OverviewBuilder()
            for sample in self._samples.walk_rows(node):
                builder.add(sample, [ids.get((name, device.uuid), -1) for device in sample.devices])
            minutes |= {(minute, node): figures for minute, figures in builder.take().items()}
        return minutes

    def _walk_told(self, node: int) -> Iterator[Told]:
        last = 0
        while blocks := self._samples.list_blocks(node, *_any_time(), after=last):
            for last in blocks:
                yield from self._blocks.told(last)
        yield from self._rows.structs(
            "told", Told, "SELECT id, words FROM told WHERE node = ? ORDER BY id", node
        )

    def _find_frequent(
        self, samples: Iterator[Sample], kinds: Collection[EventKind]
    ) -> Iterator[RecordingEvent]:
        finders: dict[str, EventFinder] = {}
        for sample in samples:
            finder = finders.setdefault(sample.node, EventFinder())
            yield from (it for it in finder.observe(sample) if it.kind in FREQUENT and it.kind in kinds)


def _any_time() -> tuple[float, float]:
    return _LEAST_S, _MOST_S


def _span_of(start_s: float | None, end_s: float | None) -> tuple[float, float]:
    return _LEAST_S if start_s is None else start_s, _MOST_S if end_s is None else end_s


# Blocks that may contain one time, if the clock was set back again and again.
_OVERLAPS = 4
_SPAN = "FROM blocks INDEXED BY blocks_by_time WHERE node = ? AND end_s >= ? AND start_s <= ?"
_AROUND = f"SELECT id {_SPAN} ORDER BY first_tick DESC"
_BEFORE = "SELECT id FROM blocks INDEXED BY blocks_by_time WHERE node = ? AND end_s < ? ORDER BY end_s DESC"
_NEWEST_ROW = "SELECT tick, sample FROM ticks WHERE node = ? AND time_s <= ? ORDER BY time_s DESC, tick DESC"
_SAMPLE = make_msgpack_decoder(Sample)


class SampleReader:
    """Reads the samples of one recording, node by node."""

    def __init__(self, rows: RowReader, blocks: BlockReader, damage: DamageCount) -> None:
        self._rows = rows
        self._blocks = blocks
        self._damage = damage

    def walk(self, node: int, start_s: float, end_s: float) -> Iterator[TickedSample]:
        """Yield the samples of a node whose time is within a span, in the order of recording."""
        block = 0
        tick = 0
        while True:
            # One state of the file: rows that are not there any more are in a block that is.
            with self._rows.reading():
                blocks = self.list_blocks(node, start_s, end_s, after=block)
                found = [] if blocks else self.list_rows(node, after=tick)
            if not blocks and not found:
                return
            for block in blocks:
                for it in self._blocks.samples(block):
                    if it.tick > tick:
                        tick = it.tick
                        if start_s <= it.sample.time_s <= end_s:
                            yield it
            for number, data in found:
                tick = number
                sample = self._decode(number, data)
                if sample is not None and start_s <= sample.time_s <= end_s:
                    yield TickedSample(number, sample)

    def find(self, node: int, time_s: float) -> Sample | None:
        """Return the newest sample of a node that is not after a time; of equal times the later."""
        with self._rows.reading():
            around = self._rows.all(f"{_AROUND} LIMIT ?", node, time_s, time_s, _OVERLAPS)
            before = self._rows.all(f"{_BEFORE} LIMIT 1", node, time_s)
            rows = self._rows.all(f"{_NEWEST_ROW} LIMIT 1", node, time_s)
        found = self._list_past(around, time_s) or self._list_past(before, time_s)
        for number, data in rows:
            sample = self._decode(number, data)
            found += [] if sample is None else [TickedSample(number, sample)]
        best = max(found, key=lambda it: (it.sample.time_s, it.tick), default=None)
        return None if best is None else best.sample

    def _list_past(self, blocks: list[tuple[int]], time_s: float) -> list[TickedSample]:
        return [it for (block,) in blocks for it in self._blocks.samples(block) if it.sample.time_s <= time_s]

    def walk_rows(self, node: int) -> Iterator[Sample]:
        """Yield the samples of a node that are rows, in no block yet."""
        tick = 0
        while rows := self.list_rows(node, after=tick):
            for tick, data in rows:
                sample = self._decode(tick, data)
                if sample is not None:
                    yield sample

    def list_blocks(self, node: int, start_s: float, end_s: float, *, after: int) -> list[int]:
        """Return the numbers of the next blocks that overlap a span."""
        query = f"SELECT id {_SPAN} AND id > ? ORDER BY id LIMIT ?"
        rows = self._rows.all(query, node, start_s, end_s, after, PAGE)
        return [number for (number,) in self._keep_rising("blocks", rows, after)]

    def list_rows(self, node: int, *, after: int) -> list[tuple[int, bytes]]:
        query = "SELECT tick, sample FROM ticks WHERE node = ? AND tick > ? ORDER BY tick"
        rows = self._keep_rising("ticks", self._rows.page(query, node, after), after)
        return [(tick, data) for tick, data in rows]

    def _keep_rising(self, table: str, rows: list[tuple[Any, ...]], after: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows whose number exceeds all before; a damaged table returns others again and again."""
        for row in rows:
            if row[0] > after:
                after = row[0]
                yield row
            else:
                self._damage.add_row(table, row[0])

    def _decode(self, tick: int, data: bytes) -> Sample | None:
        try:
            return clean_texts(_SAMPLE.decode(data))
        except DAMAGES:
            self._damage.add_row("ticks", tick)
            return None
