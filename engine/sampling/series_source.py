"""Opens an input of any known format as a series of samples; several inputs become one."""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from ..errors import InputFileError, UsageError
from ..files.base.input_file import show_path
from ..files.base.series_reader import WALL_CLOCK_FROM_S, SeriesFormat
from ..files.memory_trace.run import TraceFiles
from ..files.series.format import FORMATS, recognize_series
from ..files.series.status_lines import KeptStatus, StatusLines
from ..model import DeviceSample, Sample
from .series_player import LONE_INTERVAL_S, FileSource, PlayedDevices, SeriesPlayer
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
        """None: a trace has no UUIDs."""

    def close(self) -> None:
        """Nothing stays open."""


def _describe_folding(run: TraceRunTicks) -> Iterator[str]:
    """Yield a note on merged readings if a tick has several of them, and how to keep each."""
    readings = sum(rank.samples for rank in run.ranks)
    ticks = sum(rank.stop - rank.start for rank in run.ranks)
    if ticks == readings:
        return
    gap_s = min((rank.least_gap_s for rank in run.ranks), default=0.0)
    kept = "each" if gap_s * (1 + ROUNDING) >= LEAST_TICK_S else "more of them"
    finer_s = max(LEAST_TICK_S, math.floor(1000 * gap_s * (1 + ROUNDING)) / 1000)
    yield (
        f"{readings:,} readings are merged into {ticks:,} ticks of {1000 * run.interval_s:g} ms, each "
        f"with last, minimum and maximum; `vramscope import --interval {1000 * finer_s:g}ms` keeps "
        f"{kept}"
    )


# Statuses at the beginning from which the length of a tick is derived.
HEAD_STATUSES = 64


class StatusPlayer(FileSource):
    """Yields the samples of the first node of a saved stream, each as it was, without their findings.

    Args:
        has_all_nodes: Yield the samples of all nodes, not of the first alone.
    """

    format: SeriesFormat = "status stream"

    def __init__(
        self,
        path: Path,
        *,
        capacity_bytes: int | None,
        interval_s: float | None,
        has_all_nodes: bool = False,
    ) -> None:
        self.path = path
        self._lines = StatusLines(path)
        self._statuses = self._lines.statuses()
        self._head = list(islice(self._statuses, HEAD_STATUSES))
        if not self._head:
            self._lines.close()
            raise InputFileError(self._lines.explain_absence())
        first = self._head[0]
        self.node = first.node
        self._has_all_nodes = has_all_nodes
        self.clock: Literal["wall", "trace"] = "wall" if first.time >= WALL_CLOCK_FROM_S else "trace"
        self.interval_s = interval_s or _derive_interval(self._head) or LONE_INTERVAL_S
        self._devices = PlayedDevices(capacity_bytes)
        self._late_count = 0
        self._other_count = 0

    @property
    def notes(self) -> tuple[str, ...]:
        late = self._late_count
        other = self._other_count
        return (
            *((f"left out: {late:,} statuses not newer than the one before",) if late else ()),
            *((f"left out: {other:,} statuses of other nodes than {self.node}",) if other else ()),
            *self._devices.notes,
            *self._lines.notes,
        )

    @property
    def read_share(self) -> float:
        return self._lines.read_share

    def close(self) -> None:
        self._lines.close()

    def label(self, uuid: str) -> str:
        return self._devices.label(uuid)

    def real_uuid(self, uuid: str) -> str | None:
        return self._devices.real_uuid(uuid)

    def samples(self) -> Iterator[Sample]:
        head = self._head
        self._head = []
        held: Sample | None = None
        for status in self._in_order(chain(head, self._statuses)):
            if held is not None:
                yield held
            held = self._convert(status, 0 if held is None else held.seq + 1)
        if held is not None:
            yield msgspec.structs.replace(held, is_last=True)

    def _in_order(self, statuses: Iterator[KeptStatus]) -> Iterator[KeptStatus]:
        newest_s: dict[str, float] = {}
        for status in statuses:
            if status.node != self.node and not self._has_all_nodes:
                self._other_count += 1
            elif status.time <= newest_s.get(status.node, -math.inf):
                self._late_count += 1
            else:
                newest_s[status.node] = status.time
                yield status

    def _convert(self, status: KeptStatus, seq: int) -> Sample:
        devices = self._devices.complete(status.devices)
        return Sample(
            status.node,
            seq,
            status.time,
            self.interval_s,
            devices,
            host=status.host,
            ranks=status.ranks,
            notes=status.notes,
            clock=self.clock,
        )


def _derive_interval(head: list[KeptStatus]) -> float | None:
    own = [status for status in head if status.node == head[0].node]
    between = [later.time - earlier.time for earlier, later in pairwise(own) if later.time > earlier.time]
    return median(between) if between else None


def open_series(
    path: Path | TraceFiles,
    *,
    capacity_bytes: int | None = None,
    interval_s: float | None = None,
    on_read: Callable[[float], None] | None = None,
    has_all_nodes: bool = False,
) -> FileSource:
    """Open a file of any format that is played as a series, recognized by its content.

    Args:
        capacity_bytes: Of devices whose own is not in the input.
        on_read: Called with the share read, if much is read before the first sample; what it raises ends the
            reading.
        has_all_nodes: Of several nodes in it, yield the samples of all, not of the first alone.
    """
    _check_settings(capacity_bytes, interval_s)
    if isinstance(path, TraceFiles):
        return TraceSource(path, capacity_bytes=capacity_bytes, interval_s=interval_s, on_read=on_read)
    kind = recognize_series(path)
    if kind == "memory trace":
        return TraceSource(path, capacity_bytes=capacity_bytes, interval_s=interval_s, on_read=on_read)
    if kind == "recording":
        from .recording_source import RecordingPlayer  # loads SQLite

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


# Formats that name the node: their samples stay as they are.
_NODE_FORMATS: frozenset[SeriesFormat] = frozenset({"status stream", "recording"})
# Several files of these formats are moments of the same devices.
_SAME_DEVICES: frozenset[SeriesFormat] = frozenset({"memory report"})
_MADE_UP = ("index-", "name-")
_SHOWN_NAMES = 8


class JoinedSeries:
    """Yields the samples of several inputs in order of time, in constant memory.

    Samples of inputs that do not name a node become those of one node: at most one of each input within half
    a tick, its time that of the newest of them. A device that its input only numbers or names gets the name
    of its file as well.

    Args:
        sources: The inputs, with a name for each that distinguishes its devices.
        node: Name of the node that they are joined to.

    Raises:
        InputFileError: Some count from 1970 on and some from a start of their own.
    """

    def __init__(self, sources: Sequence[tuple[str, FileSource]], node: str) -> None:
        self._names = [name for name, _ in sources]
        self._sources = [source for _, source in sources]
        self.clock = _check_clock(self._sources)
        self.interval_s = min(source.interval_s for source in self._sources)
        self._tick = _JoinedTick(self._sources, self._names, node, self.clock, self.interval_s)
        own = [source.node for source in self._sources if source.format in _NODE_FORMATS]
        self.node = node if len(own) < len(self._sources) else own[0]

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about which device is which; complete after the last sample."""
        return self._tick.notes

    @property
    def read_share(self) -> float:
        return sum(source.read_share for source in self._sources) / len(self._sources)

    def samples(self) -> Iterator[tuple[int | None, Sample]]:
        """Yield samples with the number of their input, None for joined ones; call it once."""
        walks = [_number(number, source) for number, source in enumerate(self._sources)]
        for number, sample in heapq.merge(*walks, key=lambda it: it[1].time_s):
            if self._sources[number].format in _NODE_FORMATS:
                yield number, sample
            else:
                for joined in self._tick.add(number, sample):
                    yield None, joined
        for joined in self._tick.end():
            yield None, joined

    def close(self) -> None:
        for source in self._sources:
            source.close()


class _JoinedTick:
    """Collects samples of one tick, at most one an input."""

    def __init__(
        self,
        sources: Sequence[FileSource],
        names: Sequence[str],
        node: str,
        clock: Literal["wall", "trace"],
        interval_s: float,
    ) -> None:
        self._sources = sources
        self._names = names
        self._node = node
        self._clock = clock
        self._interval_s = interval_s
        self._taken: dict[int, Sample] = {}
        self._start_s = 0.0
        self._seq = 0
        self._places: dict[tuple[int, str], tuple[str, int]] = {}
        self._uuids: set[str] = set()
        self._indexes: set[int] = set()
        self._renamed: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        if not self._renamed:
            return ()
        shown = ", ".join(self._renamed[:_SHOWN_NAMES])
        count = len(self._renamed)
        more = f" and {count - _SHOWN_NAMES:,} more" if count > _SHOWN_NAMES else ""
        return (f"devices of several files were named by their files: {shown}{more}",)

    def add(self, number: int, sample: Sample) -> Iterator[Sample]:
        """Add a sample in order of time; yield the tick before it if it begins another."""
        is_late = sample.time_s - self._start_s > self._interval_s / 2
        if self._taken and (number in self._taken or is_late):
            yield self._emit(sample.time_s)
        if not self._taken:
            self._start_s = sample.time_s
        self._taken[number] = sample

    def end(self) -> Iterator[Sample]:
        if self._taken:
            yield self._emit(float("inf"))

    def _emit(self, until_s: float) -> Sample:
        """Return the tick; samples at `until_s` belong to the next one: no two end at the same time."""
        taken = {number: it for number, it in sorted(self._taken.items()) if it.time_s < until_s}
        self._taken = {number: it for number, it in self._taken.items() if number not in taken}
        self._start_s = until_s
        end_s = max(sample.time_s for sample in taken.values())
        devices = [
            self._place(number, it, each, end_s) for number, it in taken.items() for each in it.devices
        ]
        self._seq += 1
        # The later of two reports of one device within a tick counts.
        newest = {device.uuid: device for device in sorted(devices, key=lambda it: -(it.age_s or 0.0))}
        return Sample(
            self._node,
            self._seq - 1,
            end_s,
            self._interval_s,
            tuple(sorted(newest.values(), key=lambda device: device.index)),
            notes=tuple(dict.fromkeys(chain.from_iterable(it.notes for it in taken.values()))),
            clock=self._clock,
        )

    def _place(self, number: int, sample: Sample, device: DeviceSample, end_s: float) -> DeviceSample:
        key = -1 if self._sources[number].format in _SAME_DEVICES else number, device.uuid
        if key not in self._places:
            self._places[key] = self._choose_place(number, device)
        uuid, index = self._places[key]
        age_s = None if device.age_s is None else device.age_s + (end_s - sample.time_s)
        name = device.name or (self._names[number] if uuid != device.uuid else None)
        return msgspec.structs.replace(device, uuid=uuid, index=index, age_s=age_s, name=name)

    def _choose_place(self, number: int, device: DeviceSample) -> tuple[str, int]:
        uuid = device.uuid
        is_shared = self._sources[number].format in _SAME_DEVICES
        if (uuid.startswith(_MADE_UP) and not is_shared) or uuid in self._uuids:
            uuid = f"name-{self._names[number]}/{self._sources[number].label(device.uuid)}"
        index = device.index
        if index in self._indexes:
            index = next(it for it in range(len(self._indexes) + 1) if it not in self._indexes)
        self._uuids.add(uuid)
        self._indexes.add(index)
        if uuid != device.uuid:
            self._renamed.append(f"{uuid.removeprefix('name-')} is {index}")
        return uuid, index


def _number(number: int, source: FileSource) -> Iterator[tuple[int, Sample]]:
    return ((number, sample) for sample in source.samples())


def _check_clock(sources: Sequence[FileSource]) -> Literal["wall", "trace"]:
    first = sources[0]
    for other in sources:
        if other.clock != first.clock:
            wall, trace = (first, other) if first.clock == "wall" else (other, first)
            raise InputFileError(
                f"{show_path(trace.path)}: its times count from its own start, those of "
                f"{show_path(wall.path)} from 1970; expected one clock: import each into its own "
                "recording"
            )
    return first.clock
