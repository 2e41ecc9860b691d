"""Fetches and decodes the blocks of a recording; what cannot be read is counted and passed over."""

import sqlite3
from collections import OrderedDict

import msgspec

from .block import DAMAGES, BlockError, Body, Names, Part, TickedSample, unpack_samples, unpack_told
from .connection import SQLITE_ERRORS
from .contents import Damage, Told

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
        """What was left out so far."""
        blocks = {number for _, number in self._blocks}
        return Damage(len(blocks), sum(self._blocks.values()), len(self._rows), self._is_tail_lost)

    def add_block(self, part: str, number: int, samples: int) -> None:
        """Count a block of which a part cannot be read, with the samples that are missing."""
        if len(self._blocks) < _MOST_COUNTED:
            self._blocks[part, number] = samples

    def add_row(self, table: str, key: object) -> None:
        """Count a row of a table."""
        if len(self._rows) < _MOST_COUNTED:
            self._rows.add((table, key))


class BlockReader:
    """Reads blocks by number; the newest few stay decoded, for whoever goes back and forth."""

    def __init__(self, connection: sqlite3.Connection, damage: DamageCount) -> None:
        self._run = connection.execute
        self._damage = damage
        self._layouts: dict[int, Names] = {}
        self._kept: OrderedDict[int, list[TickedSample]] = OrderedDict()

    def samples(self, number: int) -> list[TickedSample]:
        """Return the samples of a block, in order; none of one that is damaged."""
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
        """Return what was said while a block was filled; nothing of one that is damaged."""
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
        """Return how many samples the index says a block has."""
        query = "SELECT samples FROM blocks INDEXED BY blocks_by_time WHERE id = ?"
        try:
            row = self._run(query, (number,)).fetchone()
        except SQLITE_ERRORS:
            return 0
        return row[0] if row is not None and isinstance(row[0], int) and 0 < row[0] < 1 << 20 else 0
