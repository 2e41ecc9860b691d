"""Finds samples: first in blocks, then in the rows of the newest seconds, which become blocks meanwhile."""

from collections.abc import Iterator

from ..decoders import make_msgpack_decoder
from ..model import Sample
from ..text import clean_texts
from .block import DAMAGES, TickedSample
from .block_reader import BlockReader, DamageCount
from .row_reader import PAGE, RowReader

_OVERLAPS = 4
"""Blocks that may hold one time, where the clock was set back again and again."""
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
        """Yield the samples of a node whose time is within a span, in the order of recording.

        Raises:
            InputFileError: The file is damaged so that what follows cannot be found.
        """
        block, tick = 0, 0
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
        """Return the newest sample of a node that is not after a time; of equal times the later.

        Raises:
            InputFileError: The file is damaged so that its index cannot be read.
        """
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
        """Return the samples of blocks that are not after a time."""
        return [it for (block,) in blocks for it in self._blocks.samples(block) if it.sample.time_s <= time_s]

    def walk_rows(self, node: int) -> Iterator[Sample]:
        """Yield the samples of a node that stand as rows, in no block yet."""
        tick = 0
        while rows := self.list_rows(node, after=tick):
            for tick, data in rows:
                sample = self._decode(tick, data)
                if sample is not None:
                    yield sample

    def list_blocks(self, node: int, start_s: float, end_s: float, *, after: int) -> list[int]:
        """Return the numbers of the next blocks that hold a time of a span."""
        query = f"SELECT id {_SPAN} AND id > ? ORDER BY id LIMIT ?"
        return [number for (number,) in self._rows.all(query, node, start_s, end_s, after, PAGE)]

    def list_rows(self, node: int, *, after: int) -> list[tuple[int, bytes]]:
        """Return the next ticks that stand as rows, with their samples."""
        query = "SELECT tick, sample FROM ticks WHERE node = ? AND tick > ? ORDER BY tick"
        return [(tick, data) for tick, data in self._rows.page(query, node, after)]

    def _decode(self, tick: int, data: bytes) -> Sample | None:
        try:
            return clean_texts(_SAMPLE.decode(data))
        except DAMAGES:
            self._damage.add_row("ticks", tick)
            return None
