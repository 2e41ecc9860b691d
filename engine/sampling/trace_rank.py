"""One recorded rank as a device: what its trace says of each tick."""

from bisect import bisect_right
from collections.abc import Iterator

from ..model import SIMULATED_TRACE, AllocatorReading, DeviceSample, DeviceState, MemoryReading
from .trace_rows import TickRow, TraceRows
from .trace_ticks import RankTicks

STALE_AFTER_S = 1.0
"""Seconds of the trace after its own last sample from which a rank's figures count as stale."""


class TraceRank:
    """A cursor on the ticks of one rank, which only goes forward.

    Args:
        rank: The rank.
        rows: Of its run.
        run_identity: Short name of the run.
        capacity_bytes: Capacity of the device, which a trace does not record.
        after_tick: Begin as if all up to this tick had been read.
        is_simulated: Whether one GPU played the rank in a simulation.
    """

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
        """Return the device at the end of a tick, later than all that were read before.

        Args:
            tick: Its number.
            end_s: Its end, to which the age refers.
        """
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
            return "stale", "the trace of this rank holds no samples"
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
    """Return the UUID of the device that a rank plays as."""
    return f"trace-{run_identity}-rank{rank}"


def _read_allocator(row: TickRow, is_within: bool) -> AllocatorReading:
    return AllocatorReading(
        allocated_bytes=row.allocated_bytes,
        allocated_max_bytes=row.allocated_max_bytes if is_within else None,
    )
