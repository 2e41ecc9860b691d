"""Folds memory traces into ticks while they are read: newest, least and most of each tick and rank."""

import hashlib
import math
from array import array
from bisect import bisect_right
from collections.abc import Callable
from operator import sub
from pathlib import Path

from ..errors import InputFileError
from ..readers.input_file import explain_refusal
from ..readers.memory_trace import read_trace_name
from ..readers.memory_trace_name import TraceName
from ..readers.memory_trace_records import mebibytes
from ..readers.memory_trace_run import TraceFiles, find_trace_files, note_ranks
from ..readers.memory_trace_spans import TraceSpan, TraceSpans
from ..readers.memory_trace_stream import stream_trace
from ..readers.memory_trace_whole import SIZE_LIMIT_BYTES, read_whole
from ..units import MIB
from .trace_rows import TickRow, TraceRows
from .trace_ticks import ROUNDING, RankTicks, TraceIterations, TraceRunTicks, tick_of


def read_run_ticks(
    path: Path | TraceFiles, interval_s: float, on_read: Callable[[float], None] | None = None
) -> TraceRunTicks:
    """Read a run from its folder, the file of one rank or files that were found, in bounded memory.

    Args:
        path: The folder or file, or the files of one run.
        interval_s: Length of one tick in seconds of the trace.
        on_read: Called now and then with the share that was read; what it raises ends the reading.

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
    """Says how much of all files was read."""

    def __init__(self, paths: tuple[Path, ...], on_read: Callable[[float], None] | None) -> None:
        self._on_read, self._read_bytes = on_read, 0
        self._all_bytes = sum(map(_size_of, paths))

    def note(self, count: int) -> None:
        """Count bytes that were read."""
        self._read_bytes += count
        if self._on_read is not None:
            self._on_read(min(1.0, self._read_bytes / max(1, self._all_bytes)))


def _read_rank(path: Path, rows: TraceRows, interval_s: float, progress: _Progress) -> RankTicks:
    """Fold one file, piece by piece; one of another shape whole, which also finds better words for it."""
    name, start = read_trace_name(path), rows.count
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
    """Makes the rows of one rank."""

    def __init__(self, path: Path, name: TraceName, rows: TraceRows, interval_s: float) -> None:
        self._path, self._name, self._rows, self._interval_s = path, name, rows, interval_s
        self._start = rows.count
        self._pending: TickRow | None = None
        """Of the newest tick, which may go on; figures are bytes already."""
        self._newest_s = 0.0
        self._iterations = TraceIterations()
        self._samples = 0
        self._start_s = 0.0
        self._least_gap_s = math.inf
        self._highest_used = self._highest_allocated = 0.0
        self._times_digest, self._allocated_digest = hashlib.sha256(), hashlib.sha256()

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
        used, allocated = max(span.device_used_mib), max(span.allocated_mib)
        self._highest_used = max(self._highest_used, used)
        self._highest_allocated = max(self._highest_allocated, allocated)
        self._newest_s = times_s[-1]
        at, count, interval_s = 0, len(times_s), self._interval_s
        while at < count:
            tick = tick_of(times_s[at], interval_s)
            stop = max(at + 1, bisect_right(times_s, (tick + ROUNDING) * interval_s, at))
            self._merge(_fold_tick(tick, span, at, stop))
            at = stop

    def _merge(self, row: TickRow) -> None:
        """Take what one span tells of a tick; the tick before is over where it is another."""
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
    """Return the row of the samples of one tick that stand in one span."""
    used, allocated = span.device_used_mib[start:stop], span.allocated_mib[start:stop]
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
