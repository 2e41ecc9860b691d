"""Plays the memory traces of one run as a node: every recorded rank is a device."""

import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path

from ..clock import Clock, SystemClock
from ..errors import InputFileError, UsageError
from ..model import Sample
from ..readers.input_file import show_name, show_path
from ..readers.memory_trace_pair import is_simulated_run
from ..readers.memory_trace_run import TraceFiles
from ..units import format_bytes
from .trace_fold import read_run_ticks
from .trace_rank import TraceRank, name_device
from .trace_ticks import TraceRunTicks, tick_of

TAKE_LIMIT = 64
"""Most samples that one `take` returns; a player that is late catches up over several."""
LEAST_TICK_S, MOST_TICK_S = 0.001, 3600.0
IDLE_S = 1.0
"""What `wait_s` says once nothing more will come."""


class TracePlayer:
    """Yields a recorded run tick by tick, as fast as it was measured or at a chosen speed.

    Args:
        path: Folder of the run, the file of one rank, or the files of one run.
        speed: Seconds of the trace per second of the clock.
        interval_s: Length of one tick in seconds of the trace.
        capacity_bytes: Capacity of every device, which a trace does not record.
        clock: Whose monotonic seconds drive the playing.
        node: Name of the node that the run plays as; None for that of its folder or file.
        on_read: Called while the files are read with the share that was; what it raises ends the reading.

    Raises:
        InputFileError: There is no trace, it is malformed, or it holds no samples.
        UsageError: Speed, interval or capacity make no sense.
    """

    def __init__(
        self,
        path: Path | TraceFiles,
        *,
        speed: float = 1.0,
        interval_s: float = 0.1,
        capacity_bytes: int | None = None,
        clock: Clock | None = None,
        node: str | None = None,
        on_read: Callable[[float], None] | None = None,
    ) -> None:
        _check_settings(speed, interval_s, capacity_bytes)
        run = _read_run(path, interval_s, on_read)
        self.interval_s = interval_s / speed
        """Seconds of the clock from one sample to the next."""
        self.run = run
        self.speed = speed
        self._tick_s = interval_s
        self._clock = clock or SystemClock()
        self._started_s: float | None = None
        self._is_stopped = False
        self._seq = 0
        self._first_tick = self._tick = self._tick_of(run.start_s)
        self._last_tick = self._tick_of(run.end_s)
        folder = path if isinstance(path, Path) else path.path
        self.node = node or show_name(folder.resolve()) or "trace"
        """Name of the node that the run plays as."""
        self.is_simulated = bool(is_simulated_run(folder, run.ranks[0].name))
        """Whether one GPU played each rank in a simulation, as names tell."""
        self._notes = (*run.notes, *self._describe(capacity_bytes))
        self._identity, self._capacity_bytes = _identify(run), capacity_bytes
        self._ranks = self._begin_ranks()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what the figures are and what was left out."""
        return self._notes

    def add_note(self, sentence: str) -> None:
        """Say something more about what the figures are."""
        self._notes = (*self._notes, sentence)

    @property
    def uuids(self) -> dict[int, str]:
        """The devices that ranks play as, by rank."""
        return {rank.name.rank: name_device(self._identity, rank.name.rank) for rank in self.run.ranks}

    @property
    def span_s(self) -> tuple[float, float]:
        """Times of the first and the last sample."""
        return round(self._first_tick * self._tick_s, 6), round(self._last_tick * self._tick_s, 6)

    @property
    def is_ended(self) -> bool:
        """Whether the last sample of the trace was taken."""
        return self._tick > self._last_tick

    def start(self) -> None:
        """Begin to play; the first sample is due at once."""
        if self._started_s is None:
            self._started_s = self._clock.monotonic_s()

    def wait_s(self) -> float:
        """Return the seconds until the next sample is due; 0 when one is."""
        if self._started_s is None or self._is_stopped or self.is_ended:
            return IDLE_S
        due_s = self._started_s + (self._tick - self._first_tick) * self.interval_s
        return max(0.0, due_s - self._clock.monotonic_s())

    def take(self) -> list[Sample]:
        """Return the samples that are due, oldest first and at most `TAKE_LIMIT`; none after the end."""
        samples: list[Sample] = []
        while len(samples) < TAKE_LIMIT and self.wait_s() <= 0:
            samples.append(self._make_sample())
        return samples

    def play_at_once(self) -> Iterator[Sample]:
        """Yield all samples that are left without waiting until they are due."""
        while not self.is_ended:
            yield self._make_sample()

    def seek(self, time_s: float) -> None:
        """Go to the tick that holds a time, back or forth; its sample is as if it had been played up to.

        Args:
            time_s: Seconds of the trace.
        """
        asked = math.inf if math.isnan(time_s) else max(time_s, self._first_tick * self._tick_s)
        end_s = (self._last_tick + 1) * self._tick_s
        self._tick = min(self._last_tick + 1, self._tick_of(min(asked, end_s)))
        self._seq = self._tick - self._first_tick
        self._ranks = self._begin_ranks(self._tick - 1)

    def stop(self) -> None:
        """End; nothing is due any more."""
        self._is_stopped = True

    def _tick_of(self, time_s: float) -> int:
        return tick_of(time_s, self._tick_s)

    def _begin_ranks(self, after_tick: int | None = None) -> list[TraceRank]:
        run, identity, capacity_bytes = self.run, self._identity, self._capacity_bytes
        is_simulated = self.is_simulated
        return [
            TraceRank(rank, run.rows, identity, capacity_bytes, after_tick, is_simulated=is_simulated)
            for rank in run.ranks
        ]

    def _describe(self, capacity_bytes: int | None) -> tuple[str, ...]:
        count = len(self.run.ranks)
        pace = "" if self.speed == 1 else f", played {self.speed:g} times as fast"
        capacity = (
            "capacity was not recorded"
            if capacity_bytes is None
            else f"capacity {format_bytes(capacity_bytes)} is as given, not recorded"
        )
        made = "simulated, not measured: " if self.is_simulated else ""
        return (
            f"{made}recorded figures of {count:,} {'rank' if count == 1 else 'ranks'} from {self.node}{pace}",
            f"used is device used (NVML), everything on the device; allocated is the rank's own; {capacity}",
        )

    def _make_sample(self) -> Sample:
        end_s = round(self._tick * self._tick_s, 6)
        devices = tuple(rank.read(self._tick, end_s) for rank in self._ranks)
        notes, is_last = self._notes, self._tick == self._last_tick
        if is_last:
            notes = (f"trace ended at {self.run.end_s:.1f} s", *notes)
        sample = Sample(
            self.node,
            self._seq,
            end_s,
            self._tick_s,
            devices,
            notes=notes,
            clock="trace",
            is_last=is_last,
        )
        self._seq += 1
        self._tick += 1
        return sample


def _check_settings(speed: float, interval_s: float, capacity_bytes: int | None) -> None:
    if not (math.isfinite(speed) and 0.001 <= speed <= 10_000):
        raise UsageError(
            f"speed {speed:g} is out of range; expected 0.001 to 10,000 times as fast as measured"
        )
    if not (math.isfinite(interval_s) and LEAST_TICK_S <= interval_s <= MOST_TICK_S):
        raise UsageError(
            f"interval {interval_s:g} s is out of range; expected 0.001 to 3,600 seconds of the trace"
        )
    if capacity_bytes is not None and capacity_bytes <= 0:
        raise UsageError(f"capacity {capacity_bytes} bytes is out of range; expected a size such as 80GiB")


def _read_run(
    path: Path | TraceFiles, interval_s: float, on_read: Callable[[float], None] | None
) -> TraceRunTicks:
    run = read_run_ticks(path, interval_s, on_read)
    if not any(rank.samples for rank in run.ranks):
        named = path if isinstance(path, Path) else path.paths[0]
        raise InputFileError(f"{show_path(named)}: no samples in it; expected at least one to play")
    return run


def _identify(run: TraceRunTicks) -> str:
    """Return a short name for a run that stays the same wherever its files lie."""
    digest = hashlib.sha256()
    for trace in run.ranks:
        digest.update(repr((trace.name.rank, trace.name.run)).encode())
        digest.update(trace.digest)
    return digest.hexdigest()[:8]
