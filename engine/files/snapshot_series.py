"""Memory snapshots of PyTorch as a series: the allocation trace of each device, anchored at the end.

Without recorded history there is the state at one moment, whose time is not in the file.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from ..model import RankCoordinates
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
from .base.series_reader import (
    MOST_BYTES,
    MOST_SECONDS,
    SeriesDevice,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
)
from .framework.oom_text import OomNotes
from .memory_snapshot import read_memory_snapshot

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# An event says what the level is from then on, so a tick without one has the level of the tick before, and
# the most of a tick is at least what was there at its begin. Where a file spans more ticks than are kept,
# ticks are joined in pairs until it does not: the last level and the most of a pair are those of the joined
# tick.

SHORTEST_TICK_S = 0.001
# A time of today is no multiple of a tick to the last bit; one so close to the end of a tick is at it.
_TOLERANCE_S = 1e-6
# Ticks of one device: a minute in steps of 16 ms.
MOST_TICKS = 4096
# PyTorch numbers the devices of a process in eight bits with a sign (`c10::DeviceIndex`).
MOST_DEVICES_OF_PROCESS = 128
# The same if a person gave the length of a tick: a day of seconds.
MOST_GIVEN_TICKS = 1 << 17


class LevelTicks:
    """Collects the levels of one device.

    Args:
        interval_s: Length of a tick that a person asked for; None for the shortest that suits.
    """

    def __init__(self, interval_s: float | None = None) -> None:
        self._shortest_s = SHORTEST_TICK_S if interval_s is None else interval_s
        self._joins = 0
        self._most_ticks = MOST_TICKS if interval_s is None else MOST_GIVEN_TICKS
        self._ticks: dict[int, _Tick] = {}
        self._first = self._last = 0
        self.events = 0

    def __len__(self) -> int:
        """Ticks in which there were events."""
        return len(self._ticks)

    @property
    def interval_s(self) -> float:
        """Grows when ticks are joined."""
        return self._shortest_s * (1 << self._joins)

    def add(
        self, time_s: float, allocated_bytes: int | None, reserved_bytes: int | None, *, is_oom: bool = False
    ) -> None:
        """Add an event: the levels right after it; None leaves a level as it was.

        Args:
            time_s: Below 10^10, so that ticks can be numbered.
        """
        self.events += 1
        number = math.floor((time_s + _TOLERANCE_S) / self._shortest_s) >> self._joins
        tick = self._ticks.get(number)
        if tick is None:
            number = self._make_room(number)
            tick = self._ticks.setdefault(number, _Tick())
        tick.add(time_s, allocated_bytes, reserved_bytes)
        tick.ooms += is_oom

    def records(
        self,
        device: SeriesDevice,
        *,
        start_s: float = 0.0,
        total_bytes: int | None = None,
        rank: RankCoordinates | None = None,
    ) -> Iterator[SeriesRecord]:
        """Yield a record for each tick from the first event to the last, at its end.

        Args:
            start_s: What the times of the events count from.
        """
        if not self._ticks:
            return
        allocated: int | None = None
        reserved: int | None = None
        ooms = 0
        for place, number in enumerate(range(self._first, self._last + 1), 1):
            tick = self._ticks.get(number)
            most = allocated
            if tick is not None:
                known = [it for it in (allocated, tick.allocated_max_bytes) if it is not None]
                most = max(known, default=None)
                allocated = allocated if tick.allocated_bytes is None else tick.allocated_bytes
                reserved = reserved if tick.reserved_bytes is None else tick.reserved_bytes
                ooms += tick.ooms
            yield SeriesRecord(
                place,
                round(start_s + (number + 1) * self.interval_s, 6),
                device,
                allocated,
                reserved,
                allocated_max_bytes=most,
                ooms=ooms or None,
                total_bytes=total_bytes,
                rank=rank,
            )

    def _make_room(self, number: int) -> int:
        """Join ticks until one more fits, and return its number then."""
        if not self._ticks:
            self._first = self._last = number
        while max(self._last, number) - min(self._first, number) >= self._most_ticks:
            self._join()
            number //= 2
        self._first, self._last = min(self._first, number), max(self._last, number)
        return number

    def _join(self) -> None:
        joined: dict[int, _Tick] = {}
        for number in sorted(self._ticks):
            into = joined.setdefault(number // 2, self._ticks[number])
            if into is not self._ticks[number]:
                into.join(self._ticks[number])
        self._ticks = joined
        self._first = self._first // 2
        self._last = self._last // 2
        self._joins += 1


class _Tick:
    __slots__ = ("allocated_bytes", "allocated_max_bytes", "newest_s", "ooms", "reserved_bytes")

    def __init__(self) -> None:
        self.newest_s = float("-inf")
        self.allocated_bytes: int | None = None
        self.allocated_max_bytes: int | None = None
        self.reserved_bytes: int | None = None
        self.ooms = 0

    def add(self, time_s: float, allocated_bytes: int | None, reserved_bytes: int | None) -> None:
        """Add an event; of two at one time the one that came later counts."""
        if allocated_bytes is not None and allocated_bytes > (self.allocated_max_bytes or -1):
            self.allocated_max_bytes = allocated_bytes
        is_newest = time_s >= self.newest_s
        if allocated_bytes is not None and (is_newest or self.allocated_bytes is None):
            self.allocated_bytes = allocated_bytes
        if reserved_bytes is not None and (is_newest or self.reserved_bytes is None):
            self.reserved_bytes = reserved_bytes
        self.newest_s = max(self.newest_s, time_s)

    def join(self, later: _Tick) -> None:
        if later.allocated_max_bytes is not None:
            most = self.allocated_max_bytes
            self.allocated_max_bytes = max(later.allocated_max_bytes, -1 if most is None else most)
        if later.allocated_bytes is not None:
            self.allocated_bytes = later.allocated_bytes
        if later.reserved_bytes is not None:
            self.reserved_bytes = later.reserved_bytes
        self.newest_s = later.newest_s
        self.ooms += later.ooms


def describe_folding(gathered: Iterable[LevelTicks]) -> Iterator[str]:
    """Yield a note on merged events if a tick has several of them."""
    devices = [it for it in gathered if it]
    events = sum(it.events for it in devices)
    ticks = sum(len(it) for it in devices)
    if ticks < events:
        longest_s = max(it.interval_s for it in devices)
        is_shortest = longest_s <= SHORTEST_TICK_S
        finer = (
            "no tick is shorter" if is_shortest else "`vramscope import --interval 1ms` keeps more of them"
        )
        yield (
            f"{events:,} events are merged into {ticks:,} ticks of {1000 * longest_s:g} ms, each with "
            f"last and maximum; {finer}"
        )


_NO_HISTORY = (
    "no history of allocations in it (torch.cuda.memory._record_memory_history): one sample, of an "
    "unknown time, shown at 0 s"
)
_NO_TIMES = "events without times: shown in their order, 1 ms apart"


class SnapshotSeries(SeriesReader):
    """Reads the records of one pickle of `torch.cuda.memory._dump_snapshot`, plain or gzip, once."""

    format: SeriesFormat = "memory snapshot"

    def __init__(
        self,
        path: Path,
        interval_s: float | None = None,
        on_read: Callable[[float], None] | None = None,
    ) -> None:
        super().__init__(path)
        self._interval_s = interval_s
        try:
            self._snapshot = read_memory_snapshot(path)
        finally:
            # Ctrl-C ends the process that decodes too; that it was asked for comes before what became of it.
            if on_read is not None:
                on_read(1.0)
        self._has_times = all(min(trace.time_us, default=0) >= 0 for trace in self._snapshot.traces)
        self._ooms = OomNotes()
        self._starts: list[str] = []
        self._gathered: list[LevelTicks] = []

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            *(() if self._snapshot.traces else (_NO_HISTORY,)),
            *(() if self._has_times else (_NO_TIMES,)),
            *self._starts[:4],
            *self._ooms.notes,
            *self._snapshot.notes,
            *describe_folding(self._gathered),
            *self._left_out.notes(),
        )

    def explain_absence(self) -> str:
        why = self._left_out.first or (
            "the memory snapshot is empty: no segments and no events; expected one that was made while "
            "tensors were allocated, or with torch.cuda.memory._record_memory_history() on"
        )
        return f"{show_path(self._path)}: {why}"

    def records(self) -> Iterator[SeriesRecord]:
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
        self._gathered.append(ticks)
        is_oom = [action == TraceAction.OOM for action in trace.action]
        for row, (time_s, size, held) in enumerate(
            zip(times_s.tolist(), allocated.tolist(), reserved.tolist(), strict=True)
        ):
            ticks.add(time_s, size, held, is_oom=is_oom[row])
            if is_oom[row]:
                asked = format_bytes(trace.size_bytes[row])
                free = format_bytes(trace.address[row])
                self._ooms.add(
                    f"device {trace.device} ran out of memory: {asked} were asked for, {free} free on it"
                )
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

    def _note_start(self, trace: TraceColumns, start_s: float) -> None:
        before = {
            True: "older ones were dropped",
            False: "from when their recording began",
            None: "whether older ones were dropped is unknown",
        }[trace.is_overflowed]
        since = ""
        if self._has_times:
            since = f" since {datetime.fromtimestamp(start_s).isoformat(sep=' ', timespec='seconds')}"
        self._starts.append(f"device {trace.device}: the last {len(trace):,} events{since}; {before}")


def _find_final(snapshot: MemorySnapshot, number: int) -> FinalState:
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
