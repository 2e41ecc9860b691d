"""Samples of recordings (`*.vscope`) and of exported status lines."""

import math
from collections.abc import Iterator
from itertools import chain, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from ..errors import InputFileError
from ..files.base.input_file import show_path
from ..files.base.series_record import WALL_CLOCK_FROM_S, SeriesFormat
from ..files.series.status_lines import KeptStatus, StatusLines
from ..model import DeviceSample, Sample
from ..recording import Recording
from ..units import format_bytes
from .series_player import LONE_INTERVAL_S, FileSource

REAL_KINDS = frozenset({"gpu", "mig", "unified", "vgpu"})
"""Kinds of devices that a driver knows; others were modelled."""


class PlayedDevices:
    """Devices as they were last played.

    Args:
        capacity_bytes: Capacity of devices of which none was recorded.
    """

    def __init__(self, capacity_bytes: int | None) -> None:
        self._capacity_bytes = capacity_bytes
        self._is_capacity_used = False
        self._devices: dict[str, DeviceSample] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was not recorded."""
        given = f"capacity {format_bytes(self._capacity_bytes)} is as given, not recorded"
        return (given,) if self._is_capacity_used else ()

    def complete(self, devices: tuple[DeviceSample, ...]) -> tuple[DeviceSample, ...]:
        """Return the devices of one sample, with the capacity that was given where they tell none."""
        completed = tuple(map(self._complete, devices))
        self._devices.update((device.uuid, device) for device in completed)
        return completed

    def label(self, uuid: str) -> str:
        """Return a device as people call it."""
        return self._devices[uuid].label

    def real_uuid(self, uuid: str) -> str | None:
        """Return the UUID of a device of the driver, None where it was made up for a modelled one."""
        return uuid if self._devices[uuid].kind in REAL_KINDS else None

    def _complete(self, device: DeviceSample) -> DeviceSample:
        if self._capacity_bytes is None or device.memory.total_bytes is not None:
            return device
        self._is_capacity_used = True
        memory = msgspec.structs.replace(device.memory, total_bytes=self._capacity_bytes)
        return msgspec.structs.replace(device, memory=memory)


class RecordingPlayer(FileSource):
    """Yields the samples of the first node of a recording, or of all; findings are to be found again.

    Samples are numbered anew: those of a recording begin at 1 again where its agent was restarted. A sample
    that is not newer than the one before, because a clock was set back, is left out and counted.

    Args:
        path: The file.
        capacity_bytes: Capacity of devices of which none was recorded.
        interval_s: Length of one tick where the recorded one shall not count.
        has_all_nodes: Whether the samples of all nodes are yielded, in the order in which they were recorded.

    Raises:
        InputFileError: It is no recording, damaged beyond reading, or holds no samples.
    """

    format: SeriesFormat = "recording"

    def __init__(
        self,
        path: Path,
        *,
        capacity_bytes: int | None = None,
        interval_s: float | None = None,
        has_all_nodes: bool = False,
    ) -> None:
        self.path = path
        self.recording = Recording(path)
        self._has_all_nodes = has_all_nodes
        self._newest_s: dict[str, float] = {}
        try:
            self._begin(capacity_bytes, interval_s)
        except BaseException:
            self.recording.close()
            raise

    @property
    def notes(self) -> tuple[str, ...]:
        others = self._others
        late = self._late
        nodes = "1 other node" if others == 1 else f"{others:,} other nodes"
        damage = self.recording.damage.sentence
        return (
            *((f"samples of {nodes} than {self.node} were left out",) if others else ()),
            *((f"samples not newer than the one before were left out: {late:,}",) if late else ()),
            *self._devices.notes,
            *((damage,) if damage is not None else ()),
        )

    @property
    def read_share(self) -> float:
        if self._next is None:
            return 1.0
        length_s = self._end_s - self._start_s
        return min(1.0, max(0.0, (self._next.time_s - self._start_s) / length_s)) if length_s > 0 else 0.0

    def samples(self) -> Iterator[Sample]:
        while self._next is not None:
            yield self._take_next(self._next)

    def close(self) -> None:
        self.recording.close()

    def label(self, uuid: str) -> str:
        return self._devices.label(uuid)

    def real_uuid(self, uuid: str) -> str | None:
        return self._devices.real_uuid(uuid)

    def _begin(self, capacity_bytes: int | None, interval_s: float | None) -> None:
        self._devices = PlayedDevices(capacity_bytes)
        self._late = self._seq = 0
        nodes = self.recording.nodes
        self._others = 0 if self._has_all_nodes else len(nodes) - 1
        span = self.recording.span
        self.node = nodes[0] if nodes else ""
        self._recorded = self.recording.samples(node=None if self._has_all_nodes else self.node)
        self._next = next(self._recorded, None)
        if self._next is None or span is None:
            damage = self.recording.damage.sentence
            why = "expected at least one to play" if damage is None else damage
            raise InputFileError(f"{show_path(self.path)}: no samples in it; {why}")
        self._start_s = self._next.time_s
        self._end_s = span[1]
        self.clock: Literal["wall", "trace"] = "wall" if self._start_s >= WALL_CLOCK_FROM_S else "trace"
        recorded_s = self._next.interval_s
        self._given_interval_s = interval_s
        known_s = recorded_s if math.isfinite(recorded_s) and recorded_s > 0 else LONE_INTERVAL_S
        self.interval_s = known_s if interval_s is None else interval_s

    def _take_next(self, sample: Sample) -> Sample:
        """Return a sample as it is played, and look at the one after it: there may be none."""
        self._newest_s[sample.node] = sample.time_s
        self._next = self._find_newer()
        devices = self._devices.complete(sample.devices)
        interval_s = sample.interval_s if self._given_interval_s is None else self._given_interval_s
        played = msgspec.structs.replace(
            sample, seq=self._seq, devices=devices, interval_s=interval_s, is_last=self._next is None
        )
        self._seq += 1
        return played

    def _find_newer(self) -> Sample | None:
        """Return the next sample that is newer than the one before of its node."""
        for sample in self._recorded:
            if sample.time_s > self._newest_s.get(sample.node, -math.inf):
                return sample
            self._late += 1
        return None


HEAD_STATUSES = 64
"""Statuses at the beginning from which the length of a tick is told."""


class StatusPlayer(FileSource):
    """Yields the samples of the first node of a kept stream, each as it was; findings are to be found again.

    Args:
        path: The file.
        capacity_bytes: Capacity of devices whose status does not tell it.
        interval_s: Length of one tick, where it shall not be told from the times.
        has_all_nodes: Whether the samples of all nodes are yielded, and not of the first alone.

    Raises:
        InputFileError: The file cannot be read, or there is no status in it that can be used.
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
        self.interval_s = interval_s or _tell_interval(self._head) or LONE_INTERVAL_S
        self._devices = PlayedDevices(capacity_bytes)
        self._late_count = 0
        self._other_count = 0

    @property
    def notes(self) -> tuple[str, ...]:
        late = self._late_count
        other = self._other_count
        return (
            *((f"statuses not newer than the one before were left out: {late:,}",) if late else ()),
            *((f"statuses of other nodes than {self.node} were left out: {other:,}",) if other else ()),
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


def _tell_interval(head: list[KeptStatus]) -> float | None:
    own = [status for status in head if status.node == head[0].node]
    between = [later.time - earlier.time for earlier, later in pairwise(own) if later.time > earlier.time]
    return median(between) if between else None
