"""Memory snapshots of PyTorch as a series: the allocation trace of each device, anchored at the end.

Without recorded history there is the state at one moment, which the file does not tell.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from ..model.memory_snapshot import (
    BlockState,
    FinalState,
    MemorySnapshot,
    TraceAction,
    TraceColumns,
    compute_levels,
)
from ..units import format_bytes
from .base.input_file import show_path
from .base.series_record import MOST_BYTES, MOST_SECONDS, LeftOut, SeriesDevice, SeriesFormat, SeriesRecord
from .framework.oom_notes import OomNotes
from .memory_snapshot import read_memory_snapshot
from .memory_trace.level_ticks import MOST_DEVICES_OF_PROCESS, SHORTEST_TICK_S, LevelTicks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NO_HISTORY = (
    "no history of allocations in it (torch.cuda.memory._record_memory_history): one sample, of a moment "
    "that the file does not tell and that stands at 0 s"
)
_NO_TIMES = "events without times: they stand in their order, 1 ms from each to the next"


class SnapshotSeries:
    """Reads the records of one snapshot, once.

    Args:
        path: A pickle of `torch.cuda.memory._dump_snapshot`, plain or gzip.
        interval_s: Length of a tick; None for one that suits its length.
        on_read: Called with the share that was read; what it raises ends the reading.

    Raises:
        InputFileError: The file cannot be read or is no snapshot.
    """

    format: SeriesFormat = "memory snapshot"
    has_allocator = True
    read_share = 1.0
    """A snapshot is read whole before it plays."""

    def __init__(
        self,
        path: Path,
        interval_s: float | None = None,
        on_read: Callable[[float], None] | None = None,
    ) -> None:
        self._path = path
        self._interval_s = interval_s
        try:
            self._snapshot = read_memory_snapshot(path)
        finally:
            # Ctrl-C ends the process that decodes too; that it was asked for comes before what became of it.
            if on_read is not None:
                on_read(1.0)
        self._has_times = all(min(trace.time_us, default=0) >= 0 for trace in self._snapshot.traces)
        self._left_out = LeftOut(show_path(path))
        self._ooms = OomNotes()
        self._starts: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what the trace covers and what was left out; complete after the last record."""
        return (
            *(() if self._snapshot.traces else (_NO_HISTORY,)),
            *(() if self._has_times else (_NO_TIMES,)),
            *self._starts[:4],
            *self._ooms.notes,
            *self._snapshot.notes,
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        """Return one line that says why there is no record at all, and what was expected."""
        why = self._left_out.first or "neither segments nor events in it; nothing was allocated"
        return f"{show_path(self._path)}: {why}"

    def close(self) -> None:
        """Stop before the end: nothing is held open."""

    def records(self) -> Iterator[SeriesRecord]:
        """Yield the records of all devices in order of time."""
        known = {trace.device for trace in self._snapshot.traces}
        series = [self._read(it) for it in self._snapshot.traces if it.device < MOST_DEVICES_OF_PROCESS]
        taken_s = 0.0
        for record in heapq.merge(*series, key=attrgetter("time_s")):
            yield record
            taken_s = record.time_s
        for number in self._snapshot.devices:
            if number >= MOST_DEVICES_OF_PROCESS:
                self._left_out.add("device", f"device {number}", "expected numbers from 0 to 127")
                continue
            final = _find_final(self._snapshot, number)
            if number not in known and self._is_sound(number, final.reserved_bytes):
                ticks = LevelTicks(self._interval_s)
                ticks.add(taken_s - SHORTEST_TICK_S / 2, final.allocated_bytes, final.reserved_bytes)
                yield from self._describe(number, ticks)

    def _read(self, trace: TraceColumns) -> Iterator[SeriesRecord]:
        final = _find_final(self._snapshot, trace.device)
        largest_bytes = max(trace.size_bytes)
        if not self._is_sound(trace.device, max(final.reserved_bytes, largest_bytes)):
            return
        levels = compute_levels(trace, final)
        times_s = self._find_times(trace)
        allocated = levels.allocated_bytes
        reserved = levels.reserved_bytes
        if not self._is_sound(trace.device, max(int(allocated.max()), int(reserved.max()))):
            return
        ticks = LevelTicks(self._interval_s)
        is_oom = [action == TraceAction.OOM for action in trace.action]
        for row, (time_s, size, held) in enumerate(
            zip(times_s.tolist(), allocated.tolist(), reserved.tolist(), strict=True)
        ):
            ticks.add(time_s, size, held, is_oom=is_oom[row])
            if is_oom[row]:
                self._note_oom(trace, row)
        self._note_start(trace, times_s[0])
        yield from self._describe(trace.device, ticks)

    def _describe(self, number: int, ticks: LevelTicks) -> Iterator[SeriesRecord]:
        card = self._snapshot.simulated
        device = SeriesDevice(
            f"index-{number}",
            number,
            str(number),
            name=None if card is None else card.name,
            kind="gpu" if card is None else "simulated",
        )
        return ticks.records(device, total_bytes=None if card is None else card.total_bytes)

    def _find_times(self, trace: TraceColumns) -> NDArray[np.float64]:
        """Return the times of the events in seconds, never going back."""
        import numpy as np

        if not self._has_times:
            return np.arange(len(trace), dtype=np.float64) * SHORTEST_TICK_S
        most_us = int(MOST_SECONDS) * 1_000_000 - 1
        times_us = np.maximum.accumulate(np.minimum(np.asarray(trace.time_us), most_us))
        return times_us.astype(np.float64) / 1e6

    def _is_sound(self, number: int, size_bytes: int) -> bool:
        if size_bytes < MOST_BYTES:
            return True
        self._left_out.add("bytes", f"device {number}", f"{size_bytes:,} bytes, expected memory of a device")
        return False

    def _note_oom(self, trace: TraceColumns, row: int) -> None:
        size = format_bytes(trace.size_bytes[row])
        free = format_bytes(trace.address[row])
        self._ooms.add(f"device {trace.device} ran out of memory: {size} were asked for, {free} free on it")

    def _note_start(self, trace: TraceColumns, start_s: float) -> None:
        before = {
            True: "older ones were dropped",
            False: "from when their recording began",
            None: "the file does not tell whether older ones were dropped",
        }[trace.is_overflowed]
        since = f" since {_show_time(start_s)}" if self._has_times else ""
        self._starts.append(f"device {trace.device}: the last {len(trace):,} events{since}; {before}")


def _find_final(snapshot: MemorySnapshot, number: int) -> FinalState:
    """Return a device as it was when the snapshot was taken."""
    import numpy as np

    segments = snapshot.segments
    blocks = snapshot.blocks
    is_own = np.asarray(segments.device) == number
    of_block = np.repeat(is_own, np.diff(np.asarray(segments.first_block)))
    is_live = of_block & (np.asarray(blocks.state) == int(BlockState.ALLOCATED))
    live_bytes = np.asarray(blocks.size_bytes)[is_live]
    return FinalState(
        live_address=np.asarray(blocks.address)[is_live],
        live_bytes=live_bytes,
        # Python's integers do not overflow, whatever sizes a file makes up.
        allocated_bytes=sum(live_bytes.tolist()),
        reserved_bytes=sum(np.asarray(segments.total_bytes)[is_own].tolist()),
    )


def _show_time(time_s: float) -> str:
    return datetime.fromtimestamp(time_s).isoformat(sep=" ", timespec="seconds")
