"""Several inputs as one: files of one rank or device each become one node on one clock."""

import heapq
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

import msgspec

from ..errors import InputFileError
from ..files.base.input_file import show_path
from ..files.base.series_record import SeriesFormat
from ..model import DeviceSample, Sample
from .series_player import FileSource

_NODE_FORMATS: frozenset[SeriesFormat] = frozenset({"status stream", "recording"})
"""Formats that say of which node they are: their samples stay as they are."""
_SAME_DEVICES: frozenset[SeriesFormat] = frozenset({"memory report"})
"""Formats of which several files are moments of the same devices."""
_MADE_UP = ("index-", "name-")
_SHOWN_NAMES = 8


class JoinedSeries:
    """Yields the samples of several inputs in order of time, in constant memory.

    Samples of inputs that do not say of which node they are become those of one node: at most one of each
    input within half a tick, its time that of the newest of them. A device that its input only numbers or
    names gets the name of its file as well.

    Args:
        sources: The inputs, with a name for each by which its devices are told apart.
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
        """Share of all inputs that was read so far, from 0 to 1."""
        return sum(source.read_share for source in self._sources) / len(self._sources)

    def samples(self) -> Iterator[tuple[int | None, Sample]]:
        """Yield samples with the number of their input, None for those that were joined; to be called once.

        Raises:
            InputFileError: A file is damaged so that it cannot be read on.
        """
        walks = [_number(number, source) for number, source in enumerate(self._sources)]
        for number, sample in heapq.merge(*walks, key=lambda it: it[1].time_s):
            if self._sources[number].format in _NODE_FORMATS:
                yield number, sample
            else:
                for joined in self._tick.take(number, sample):
                    yield None, joined
        for joined in self._tick.end():
            yield None, joined

    def close(self) -> None:
        """Stop before the end."""
        for source in self._sources:
            source.close()


class _JoinedTick:
    """Gathers samples of one tick, at most one an input."""

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
        """Sentences about which device is which."""
        if not self._renamed:
            return ()
        shown = ", ".join(self._renamed[:_SHOWN_NAMES])
        count = len(self._renamed)
        more = f" and {count - _SHOWN_NAMES:,} more" if count > _SHOWN_NAMES else ""
        return (f"devices of several files were told apart by their files: {shown}{more}",)

    def take(self, number: int, sample: Sample) -> Iterator[Sample]:
        """Take a sample in order of time; yield the tick before it where it begins another."""
        is_late = sample.time_s - self._start_s > self._interval_s / 2
        if self._taken and (number in self._taken or is_late):
            yield self._emit(sample.time_s)
        if not self._taken:
            self._start_s = sample.time_s
        self._taken[number] = sample

    def end(self) -> Iterator[Sample]:
        """Yield the last tick, if there is any."""
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
        # Of two reports of one device within a tick the later one counts.
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
                f"{show_path(trace.path)}: counts from a start of its own, {show_path(wall.path)} from 1970; "
                "expected one clock: import each into a recording of its own"
            )
    return first.clock
