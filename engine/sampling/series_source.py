"""Opens what a person hands over as a series of samples, whichever of the known formats it is in."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from ..errors import UsageError
from ..files.base.series_record import SeriesFormat
from ..files.memory_trace.run import TraceFiles
from ..files.series.format import FORMATS, recognize_series
from ..model import Sample
from .recording_player import StatusPlayer
from .series_player import FileSource, SeriesPlayer
from .trace_player import LEAST_TICK_S, TracePlayer
from .trace_ticks import ROUNDING, TraceRunTicks

_LONGEST_INTERVAL_S = 86400.0


class TraceSource(FileSource):
    """The samples of a run of memory traces."""

    format: SeriesFormat = "memory trace"
    clock: Literal["wall", "trace"] = "trace"

    def __init__(
        self,
        path: Path | TraceFiles,
        *,
        capacity_bytes: int | None,
        interval_s: float | None,
        on_read: Callable[[float], None] | None = None,
    ) -> None:
        self.path = path if isinstance(path, Path) else path.path
        self.interval_s = 0.1 if interval_s is None else interval_s
        self._player = TracePlayer(
            path, interval_s=self.interval_s, capacity_bytes=capacity_bytes, on_read=on_read
        )
        self.node = self._player.node
        self._labels: dict[str, str] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._player.notes, *_describe_folding(self._player.run))

    @property
    def read_share(self) -> float:
        return 1.0  # traces are read before they play

    def samples(self) -> Iterator[Sample]:
        for sample in self._player.play_at_once():
            self._labels.update((device.uuid, device.label) for device in sample.devices)
            yield sample

    def label(self, uuid: str) -> str:
        return self._labels[uuid]

    def real_uuid(self, uuid: str) -> None:
        """Return None: a trace does not tell UUIDs."""

    def close(self) -> None:
        """Stop before the end: nothing is held open."""


def _describe_folding(run: TraceRunTicks) -> Iterator[str]:
    """Yield what became of the readings where a tick holds several of them, and how to keep each."""
    readings = sum(rank.samples for rank in run.ranks)
    ticks = sum(rank.stop - rank.start for rank in run.ranks)
    if ticks == readings:
        return
    gap_s = min((rank.least_gap_s for rank in run.ranks), default=0.0)
    kept = "each" if gap_s * (1 + ROUNDING) >= LEAST_TICK_S else "more of them"
    finer_s = max(LEAST_TICK_S, math.floor(1000 * gap_s * (1 + ROUNDING)) / 1000)
    yield (
        f"{readings:,} readings are folded into {ticks:,} ticks of {1000 * run.interval_s:g} ms, each with "
        f"its newest, least and most; `vramscope import --interval {1000 * finer_s:g}ms` keeps {kept}"
    )


def open_series(
    path: Path | TraceFiles,
    *,
    capacity_bytes: int | None = None,
    interval_s: float | None = None,
    on_read: Callable[[float], None] | None = None,
    has_all_nodes: bool = False,
) -> FileSource:
    """Open a file of any format that is played as a series; which one it is, its content says.

    Args:
        path: A file, or the folder or files of a run of memory traces.
        capacity_bytes: Capacity of devices whose input does not tell it.
        interval_s: Length of one tick, where it shall not be told from the times.
        on_read: Called with the share that was read, where much is read before the first sample; what it
            raises ends the reading.
        has_all_nodes: Of several nodes in it, yield the samples of all, and not of the first alone.

    Raises:
        InputFileError: It cannot be read, is none of these, or holds no record that can be used.
        UsageError: Interval or capacity make no sense.
    """
    _check_settings(capacity_bytes, interval_s)
    if isinstance(path, TraceFiles):
        return TraceSource(path, capacity_bytes=capacity_bytes, interval_s=interval_s, on_read=on_read)
    kind = recognize_series(path)
    if kind == "memory trace":
        return TraceSource(path, capacity_bytes=capacity_bytes, interval_s=interval_s, on_read=on_read)
    if kind == "recording":
        from .recording_player import RecordingPlayer  # loads SQLite

        return RecordingPlayer(
            path, capacity_bytes=capacity_bytes, interval_s=interval_s, has_all_nodes=has_all_nodes
        )
    open_reader = FORMATS[kind].open
    if open_reader is None:
        return StatusPlayer(
            path, capacity_bytes=capacity_bytes, interval_s=interval_s, has_all_nodes=has_all_nodes
        )
    reader = open_reader(path, interval_s, on_read)
    return SeriesPlayer(reader, path, capacity_bytes=capacity_bytes, interval_s=interval_s)


def _check_settings(capacity_bytes: int | None, interval_s: float | None) -> None:
    if capacity_bytes is not None and capacity_bytes <= 0:
        raise UsageError(f"capacity {capacity_bytes} bytes is out of range; expected a size such as 80GiB")
    if interval_s is not None and not 0.001 <= interval_s <= _LONGEST_INTERVAL_S:
        raise UsageError(f"interval {interval_s:g} s is out of range; expected 0.001 s to a day")
