"""Samples of recordings (`*.vscope`)."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from ..errors import InputFileError
from ..files.base.input_file import show_path
from ..files.base.series_reader import WALL_CLOCK_FROM_S, SeriesFormat
from ..model import Sample
from ..recording import Recording
from .series_player import LONE_INTERVAL_S, FileSource, PlayedDevices


class RecordingPlayer(FileSource):
    """Yields the samples of the first node of a recording, or of all, without their findings.

    Samples are renumbered: those of a recording begin at 1 again where its agent was restarted. A sample that
    is not newer than the one before, because a clock was set back, is left out and counted.

    Args:
        interval_s: Length of one tick, instead of the recorded one.
        has_all_nodes: Yield the samples of all nodes, in the order in which they were recorded.
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
            *((f"left out: samples of {nodes} than {self.node}",) if others else ()),
            *((f"left out: {late:,} samples not newer than the one before",) if late else ()),
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
            yield self._play_next(self._next)

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
            raise InputFileError(f"{show_path(self.path)}: no samples in it; {self.recording.why_empty}")
        self._start_s = self._next.time_s
        self._end_s = span[1]
        self.clock: Literal["wall", "trace"] = "wall" if self._start_s >= WALL_CLOCK_FROM_S else "trace"
        recorded_s = self._next.interval_s
        self._given_interval_s = interval_s
        known_s = recorded_s if math.isfinite(recorded_s) and recorded_s > 0 else LONE_INTERVAL_S
        self.interval_s = known_s if interval_s is None else interval_s

    def _play_next(self, sample: Sample) -> Sample:
        """Return a sample as it is played, and look ahead for the one after it: there may be none."""
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
