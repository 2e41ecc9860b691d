"""Plays the memory traces of one run as a node: every recorded rank is a device."""

import hashlib
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import sub
from pathlib import Path

from ..clock import Clock, SystemClock
from ..errors import InputFileError, UsageError
from ..files.base.input_file import explain_refusal, show_name, show_path
from ..files.memory_trace.reading import (
    SIZE_LIMIT_BYTES,
    TraceName,
    TraceSpan,
    TraceSpans,
    mebibytes,
    read_trace_name,
    read_whole,
)
from ..files.memory_trace.run import TraceFiles, find_trace_files, is_simulated_run, note_ranks
from ..files.memory_trace.stream import stream_trace
from ..model import SIMULATED_TRACE, AllocatorReading, DeviceSample, DeviceState, MemoryReading, Sample
from ..units import MIB, format_bytes
from .trace_ticks import ROUNDING, RankTicks, TickRow, TraceIterations, TraceRows, TraceRunTicks, tick_of

# Seconds of the trace after its own last sample from which a rank's values count as stale.
STALE_AFTER_S = 1.0


class TraceRank:
    """A cursor on the ticks of one rank, which only goes forward."""

    def __init__(
        self,
        rank: RankTicks,
        rows: TraceRows,
        run_identity: str,
        capacity_bytes: int | None,
        after_tick: int | None = None,
        *,
        is_simulated: bool = False,
    ) -> None:
        self._rank = rank
        self._name = SIMULATED_TRACE if is_simulated else "recorded"
        self._uuid = name_device(run_identity, rank.name.rank)
        self._coordinates = rank.coordinates
        self._capacity_bytes = capacity_bytes
        self._is_used_known = not rank.is_device_foreign
        start = rank.start
        if after_tick is not None:
            start = bisect_right(range(rank.start, rank.stop), after_tick, key=rows.tick) + rank.start
        self._upcoming: Iterator[TickRow] = rows.rows(max(rank.start, start - 1), rank.stop)
        self._row = next(self._upcoming, None) if start > rank.start else None
        self._next = next(self._upcoming, None)

    def read(self, tick: int, end_s: float) -> DeviceSample:
        """Return the device at the end of a tick, later than all that were read before."""
        while self._next is not None and self._next.tick <= tick:
            self._row, self._next = self._next, next(self._upcoming, None)
        row = self._row
        is_within = row is not None and row.tick == tick
        state, reason = self._judge(end_s, is_within)
        return DeviceSample(
            uuid=self._uuid,
            index=self._rank.name.rank,
            name=self._name,
            kind="trace",
            state=state,
            reason=reason,
            age_s=None if row is None else max(0.0, round(end_s - row.newest_s, 6)),
            memory=self._read_memory(row, is_within),
            allocator=None if row is None else _read_allocator(row, is_within),
            rank=self._coordinates,
            step=None if row is None else row.iteration,
        )

    def _judge(self, end_s: float, is_within: bool) -> tuple[DeviceState, str | None]:
        if not self._rank.samples:
            return "stale", "the trace of this rank has no samples"
        ended_s = self._rank.end_s
        if self._next is None and not is_within and end_s - ended_s > STALE_AFTER_S:
            return "stale", f"the trace of this rank ended at {ended_s:.1f} s"
        return "ok", None

    def _read_memory(self, row: TickRow | None, is_within: bool) -> MemoryReading:
        if row is None or not self._is_used_known:
            return MemoryReading(total_bytes=self._capacity_bytes)
        used_bytes = row.used_bytes
        return MemoryReading(
            total_bytes=self._capacity_bytes,
            used_bytes=used_bytes,
            free_bytes=None if self._capacity_bytes is None else max(0, self._capacity_bytes - used_bytes),
            used_min_bytes=row.used_min_bytes if is_within else None,
            used_max_bytes=row.used_max_bytes if is_within else None,
        )


def name_device(run_identity: str, rank: int) -> str:
    return f"trace-{run_identity}-rank{rank}"


def _read_allocator(row: TickRow, is_within: bool) -> AllocatorReading:
    return AllocatorReading(
        allocated_bytes=row.allocated_bytes,
        allocated_max_bytes=row.allocated_max_bytes if is_within else None,
    )


# Most samples that one `take` returns; a player that is late catches up over several.
TAKE_LIMIT = 64
LEAST_TICK_S = 0.001
MOST_TICK_S = 3600.0
# Result of `wait_s` once nothing more will come.
IDLE_S = 1.0


class TracePlayer:
    """Yields a recorded run tick by tick, as fast as it was measured or at a chosen speed.

    Args:
        path: Folder of the run, the file of one rank, or the files of one run.
        speed: Seconds of the trace per second of the clock.
        capacity_bytes: Of every device, since a trace does not record it.
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
        # Seconds of the clock from one sample to the next.
        self.interval_s = interval_s / speed
        # What is recorded is produced when it is due, whoever watches.
        self.is_calm = False
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
        # Whether one GPU played each rank in a simulation; file names say so.
        self.is_simulated = bool(is_simulated_run(folder, run.ranks[0].name))
        self._notes = (*run.notes, *self._describe(capacity_bytes))
        self._identity = _identify(run)
        self._capacity_bytes = capacity_bytes
        self._ranks = self._begin_ranks()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the meaning of the values, and what was left out."""
        return self._notes

    def add_note(self, sentence: str) -> None:
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
        return self._tick > self._last_tick

    def start(self) -> None:
        """The first sample is due at once."""
        if self._started_s is None:
            self._started_s = self._clock.monotonic_s()

    def wait_s(self) -> float:
        """Seconds until the next sample is due; 0 if one is."""
        if self._started_s is None or self._is_stopped or self.is_ended:
            return IDLE_S
        due_s = self._started_s + (self._tick - self._first_tick) * self.interval_s
        return max(0.0, due_s - self._clock.monotonic_s())

    def take(self) -> list[Sample]:
        samples: list[Sample] = []
        while len(samples) < TAKE_LIMIT and self.wait_s() <= 0:
            samples.append(self._make_sample())
        return samples

    def play_at_once(self) -> Iterator[Sample]:
        """Yield all remaining samples without waiting until they are due."""
        while not self.is_ended:
            yield self._make_sample()

    def seek(self, time_s: float) -> None:
        """Go to the tick of a time, back or forth; its sample is as if it had been played up to."""
        asked = math.inf if math.isnan(time_s) else max(time_s, self._first_tick * self._tick_s)
        end_s = (self._last_tick + 1) * self._tick_s
        self._tick = min(self._last_tick + 1, self._tick_of(min(asked, end_s)))
        self._seq = self._tick - self._first_tick
        self._ranks = self._begin_ranks(self._tick - 1)

    def stop(self) -> None:
        self._is_stopped = True

    def _tick_of(self, time_s: float) -> int:
        return tick_of(time_s, self._tick_s)

    def _begin_ranks(self, after_tick: int | None = None) -> list[TraceRank]:
        run = self.run
        identity = self._identity
        capacity_bytes = self._capacity_bytes
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
            else f"capacity {format_bytes(capacity_bytes)} is given, not recorded"
        )
        made = "simulated, not measured: " if self.is_simulated else ""
        return (
            f"{made}recorded values of {count:,} {'rank' if count == 1 else 'ranks'} from {self.node}{pace}",
            f"used is device used (NVML), everything on the device; allocated is the rank's own; {capacity}",
        )

    def _make_sample(self) -> Sample:
        end_s = round(self._tick * self._tick_s, 6)
        devices = tuple(rank.read(self._tick, end_s) for rank in self._ranks)
        notes = self._notes
        is_last = self._tick == self._last_tick
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
    """Short name of a run that does not depend on the folder of its files."""
    digest = hashlib.sha256()
    for trace in run.ranks:
        digest.update(repr((trace.name.rank, trace.name.run)).encode())
        digest.update(trace.digest)
    return digest.hexdigest()[:8]


def read_run_ticks(
    path: Path | TraceFiles, interval_s: float, on_read: Callable[[float], None] | None = None
) -> TraceRunTicks:
    """Read a run from its folder, the file of one rank or files that were found, in bounded memory.

    Args:
        path: The folder or file, or the files of one run.
        interval_s: Length of one tick in seconds of the trace.
        on_read: Called now and then with the share read; what it raises ends the reading.

    Raises:
        InputFileError: There is no trace, a file is malformed, or the files are of different runs.
        OutputFileError: The rows are too many for memory, and there is no room for them on disk.
    """
    files = find_trace_files(path) if isinstance(path, Path) else path
    progress = _Progress(files.paths, on_read)
    rows = TraceRows()
    ranks = tuple(_read_rank(file, rows, interval_s, progress) for file in files.paths)
    return TraceRunTicks(files.path, ranks, rows, interval_s, (*files.notes, *note_ranks(ranks)))


class _Progress:
    """Reports how much of all files was read."""

    def __init__(self, paths: tuple[Path, ...], on_read: Callable[[float], None] | None) -> None:
        self._on_read = on_read
        self._read_bytes = 0
        self._all_bytes = sum(map(_size_of, paths))

    def note(self, count: int) -> None:
        self._read_bytes += count
        if self._on_read is not None:
            self._on_read(min(1.0, self._read_bytes / max(1, self._all_bytes)))


def _read_rank(path: Path, rows: TraceRows, interval_s: float, progress: _Progress) -> RankTicks:
    """Fold one file, piece by piece; one of another shape whole, which also gives better errors."""
    name = read_trace_name(path)
    start = rows.count
    try:
        return _Fold(path, name, rows, interval_s).run(
            TraceSpans(path, stream_trace(path, on_read=progress.note))
        )
    except InputFileError:
        if _size_of(path) > SIZE_LIMIT_BYTES:
            raise
    rows.truncate(start)
    return _Fold(path, name, rows, interval_s).run(TraceSpans(path, read_whole(path)))


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError) as error:
        raise InputFileError(explain_refusal(path, error)) from error


class _Fold:
    def __init__(self, path: Path, name: TraceName, rows: TraceRows, interval_s: float) -> None:
        self._path = path
        self._name = name
        self._rows = rows
        self._interval_s = interval_s
        self._start = rows.count
        # The newest tick, which more events may still join; values are bytes already.
        self._pending: TickRow | None = None
        self._newest_s = 0.0
        self._iterations = TraceIterations()
        self._samples = 0
        self._start_s = 0.0
        self._least_gap_s = math.inf
        self._highest_used = self._highest_allocated = 0.0
        self._times_digest = hashlib.sha256()
        self._allocated_digest = hashlib.sha256()

    def run(self, spans: TraceSpans) -> RankTicks:
        for span in spans:
            self._iterations.add(span)
            if span.times_s:
                self._add(span)
        if self._pending is not None:
            self._rows.append(self._pending)
        return RankTicks(
            path=self._path,
            name=self._name,
            start=self._start,
            stop=self._rows.count,
            samples=self._samples,
            start_s=self._start_s,
            end_s=self._newest_s,
            used_max_bytes=mebibytes(self._highest_used),
            allocated_max_bytes=mebibytes(self._highest_allocated),
            least_gap_s=self._least_gap_s,
            iterations=self._iterations,
            digest=self._times_digest.digest() + self._allocated_digest.digest(),
            notes=spans.describe(self._name.rank),
        )

    def _add(self, span: TraceSpan) -> None:
        times_s = span.times_s
        if self._samples:
            self._least_gap_s = min(self._least_gap_s, times_s[0] - self._newest_s)
        else:
            self._start_s = times_s[0]
        self._least_gap_s = min(self._least_gap_s, min(map(sub, times_s[1:], times_s), default=math.inf))
        self._samples += len(times_s)
        self._times_digest.update(array("d", times_s))
        self._allocated_digest.update(array("d", span.allocated_mib))
        used = max(span.device_used_mib)
        allocated = max(span.allocated_mib)
        self._highest_used = max(self._highest_used, used)
        self._highest_allocated = max(self._highest_allocated, allocated)
        self._newest_s = times_s[-1]
        at = 0
        count = len(times_s)
        interval_s = self._interval_s
        while at < count:
            tick = tick_of(times_s[at], interval_s)
            stop = max(at + 1, bisect_right(times_s, (tick + ROUNDING) * interval_s, at))
            self._merge(_fold_tick(tick, span, at, stop))
            at = stop

    def _merge(self, row: TickRow) -> None:
        """Merge one span's part of a tick; a new tick ends the one before."""
        pending = self._pending
        if pending is not None and pending.tick == row.tick:
            row = row._replace(
                used_min_bytes=min(pending.used_min_bytes, row.used_min_bytes),
                used_max_bytes=max(pending.used_max_bytes, row.used_max_bytes),
                allocated_max_bytes=max(pending.allocated_max_bytes, row.allocated_max_bytes),
            )
        elif pending is not None:
            self._rows.append(pending)
        self._pending = row


def _fold_tick(tick: int, span: TraceSpan, start: int, stop: int) -> TickRow:
    used = span.device_used_mib[start:stop]
    allocated = span.allocated_mib[start:stop]
    return TickRow(
        tick,
        span.times_s[stop - 1],
        round(used[-1] * MIB),
        round(min(used) * MIB),
        round(max(used) * MIB),
        round(allocated[-1] * MIB),
        round(max(allocated) * MIB),
        span.index,
    )
