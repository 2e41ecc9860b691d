"""What a trace of the PyTorch profiler tells beside its events: devices, rank, and where its clock begins."""

import re
from collections.abc import Iterator

import msgspec

from ..model import RankCoordinates
from .level_ticks import LevelTicks
from .series_record import MOST_BYTES, MOST_SECONDS, SeriesDevice, SeriesRecord

_HEAD_BYTES = 1 << 20
# What follows the digits must be seen too: a chunk may end within them.
_START = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})\s*[,}]')
_START_BYTES = 64
"""The longest text that the pattern above should meet, and which may be split between two chunks."""
_DEVICE = re.compile(
    rb'"id"\s*:\s*(\d{1,6})\s*,\s*"name"\s*:\s*"([^"\\\x00-\x1f\x7f]{0,128})"\s*,\s*"totalGlobalMem"\s*:\s*(\d{1,15})\b'
)
_DISTRIBUTED = re.compile(rb'"distributedInfo"\s*:\s*(\{[^{}]{0,4096})')
_RANK = re.compile(rb'"rank"\s*:\s*(\d{1,9})\b')
_WORLD = re.compile(rb'"world_size"\s*:\s*(\d{1,9})\b')


class TraceHead:
    """Gathers what stands around the events while the bytes of a file pass by."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._start_s = 0.0
        self._has_start = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the clock."""
        return () if self._has_start else ("times are as its events tell them; no base is named",)

    def observe(self, data: bytes) -> None:
        """Take the next bytes of the file."""
        if len(self._head) < _HEAD_BYTES:
            self._head += data[: _HEAD_BYTES - len(self._head)]
        if not self._has_start:
            match = _START.search(self._tail + data)
            self._tail = data[-_START_BYTES:]
            if match is not None and int(match[1]) < MOST_SECONDS * 1e9 / 2:
                self._start_s, self._has_start = int(match[1]) / 1e9, True

    def records(self, device: SeriesDevice, ticks: LevelTicks) -> Iterator[SeriesRecord]:
        """Yield the records of a device, complete with what the head tells of it."""
        known = {int(it[1]): it for it in _DEVICE.finditer(self._head)}.get(device.index)
        total_bytes = None if known is None else int(known[3])
        if known is not None:
            device = msgspec.structs.replace(device, name=known[2].decode("utf-8", "replace"))
        return ticks.records(
            device,
            start_s=self._start_s,
            total_bytes=total_bytes if total_bytes and total_bytes < MOST_BYTES else None,
            rank=self._find_rank(),
        )

    def _find_rank(self) -> RankCoordinates | None:
        told = _DISTRIBUTED.search(self._head)
        rank = None if told is None else _RANK.search(told[1])
        if told is None or rank is None:
            return None
        world = _WORLD.search(told[1])
        return RankCoordinates(int(rank[1]), None if world is None else int(world[1]), source="trace")
