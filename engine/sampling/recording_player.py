"""Plays a recording (`*.vscope`): one sample after the other, or at the pace at which they were measured."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from ..clock import Clock, SystemClock
from ..errors import InputFileError, UsageError
from ..files.base.input_file import show_path
from ..files.base.series_record import WALL_CLOCK_FROM_S, SeriesFormat
from ..model import Sample
from ..recording import Recording
from .played_devices import PlayedDevices
from .trace_player import IDLE_S, TAKE_LIMIT

LONE_INTERVAL_S = 1.0
"""Length of a tick of a recording whose only sample does not tell it."""
MOST_SPEED = 10_000.0


class RecordingPlayer:
    """Yields the samples of the first node of a recording, or of all; findings are to be found again.

    Samples are numbered anew: those of a recording begin at 1 again where its agent was restarted. A sample
    that is not newer than the one before, because a clock was set back, is left out and counted.

    Args:
        path: The file.
        speed: Seconds of the recording per second of the clock.
        capacity_bytes: Capacity of devices of which none was recorded.
        interval_s: Length of one tick in seconds of the recording, where the recorded one shall not count.
        clock: Whose monotonic seconds drive the playing.
        has_all_nodes: Whether the samples of all nodes are played, in the order in which they were recorded.

    Raises:
        InputFileError: It is no recording, damaged beyond reading, or holds no samples.
        UsageError: The speed makes no sense.
    """

    format: SeriesFormat = "recording"

    def __init__(
        self,
        path: Path,
        *,
        speed: float = 1.0,
        capacity_bytes: int | None = None,
        interval_s: float | None = None,
        clock: Clock | None = None,
        has_all_nodes: bool = False,
    ) -> None:
        if not (math.isfinite(speed) and 0.001 <= speed <= MOST_SPEED):
            raise UsageError(
                f"speed {speed:g} is out of range; expected 0.001 to 10,000 times as fast as measured"
            )
        self.path = path
        self.recording = Recording(path)
        self._has_all_nodes = has_all_nodes
        self._newest_s: dict[str, float] = {}
        try:
            self._begin(capacity_bytes, interval_s)
        except BaseException:
            self.recording.close()
            raise
        self._speed = speed
        self.interval_s /= speed
        self._clock = clock or SystemClock()
        self._started_s: float | None = None
        self._is_stopped = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was left out; complete after the last sample."""
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
        """Share of the recording that was played so far, from 0 to 1."""
        if self._next is None:
            return 1.0
        length_s = self._end_s - self._start_s
        return min(1.0, max(0.0, (self._next.time_s - self._start_s) / length_s)) if length_s > 0 else 0.0

    @property
    def is_ended(self) -> bool:
        """Whether the last sample was taken."""
        return self._next is None

    def samples(self) -> Iterator[Sample]:
        """Yield the samples that are left, without waiting until they are due."""
        while self._next is not None:
            yield self._take_next(self._next)

    play_at_once = samples

    def start(self) -> None:
        """Begin to play; the first sample is due at once."""
        if self._started_s is None:
            self._started_s = self._clock.monotonic_s()

    def wait_s(self) -> float:
        """Return the seconds until the next sample is due; 0 when one is."""
        if self._started_s is None or self._is_stopped or self._next is None:
            return IDLE_S
        due_s = self._started_s + (self._next.time_s - self._start_s) / self._speed
        return max(0.0, due_s - self._clock.monotonic_s())

    def take(self) -> list[Sample]:
        """Return the samples that are due, oldest first and at most `TAKE_LIMIT`; none after the end."""
        samples: list[Sample] = []
        while self._next is not None and len(samples) < TAKE_LIMIT and self.wait_s() <= 0:
            samples.append(self._take_next(self._next))
        return samples

    def stop(self) -> None:
        """End; nothing is due any more."""
        self._is_stopped = True
        self.close()

    def close(self) -> None:
        """Stop before the end."""
        self.recording.close()

    def label(self, uuid: str) -> str:
        """Return a device as people call it."""
        return self._devices.label(uuid)

    def real_uuid(self, uuid: str) -> str | None:
        """Return the UUID of a device of the driver, None where it was made up for a modelled one."""
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
        """Nominal length of one tick in seconds of the clock."""

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
