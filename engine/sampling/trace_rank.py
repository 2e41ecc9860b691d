"""One recorded rank as a device: what its trace says of each tick."""

from array import array
from bisect import bisect_right

from ..model import AllocatorReading, DeviceSample, DeviceState, MemoryReading
from ..readers import MemoryTrace

STALE_AFTER_S = 1.0
"""Seconds of the trace after its own last sample from which a rank's figures count as stale."""


class TraceRank:
    """A cursor on the trace of one rank, which only goes forward."""

    def __init__(self, trace: MemoryTrace, run_identity: str, capacity_bytes: int | None) -> None:
        self._trace = trace
        self._uuid = f"trace-{run_identity}-rank{trace.name.rank}"
        self._capacity_bytes = capacity_bytes
        self._is_used_known = not trace.is_device_foreign
        self._position = 0
        self._iteration = 0

    def read(self, time_s: float, limit_s: float) -> DeviceSample:
        """Return the device at the end of a tick, from the samples since the last call.

        Args:
            time_s: End of the tick, to which the age refers.
            limit_s: Samples up to here belong to the tick.
        """
        start = self._position
        stop = self._position = bisect_right(self._trace.times_s, limit_s, lo=start)
        age_s = max(0.0, round(time_s - self._trace.times_s[stop - 1], 6)) if stop else None
        state, reason = self._judge(time_s, start, stop)
        return DeviceSample(
            uuid=self._uuid,
            index=self._trace.name.rank,
            name="recorded",
            kind="trace",
            state=state,
            reason=reason,
            age_s=age_s,
            memory=self._read_memory(start, stop),
            allocator=self._read_allocator(start, stop),
            rank=self._trace.coordinates,
            step=self._find_step(stop),
        )

    def _judge(self, time_s: float, start: int, stop: int) -> tuple[DeviceState, str | None]:
        times_s = self._trace.times_s
        if not times_s:
            return "stale", "the trace of this rank holds no samples"
        if start == stop == len(times_s) and time_s - times_s[-1] > STALE_AFTER_S:
            return "stale", f"the trace of this rank ended at {times_s[-1]:.1f} s"
        return "ok", None

    def _read_memory(self, start: int, stop: int) -> MemoryReading:
        if not stop or not self._is_used_known:
            return MemoryReading(total_bytes=self._capacity_bytes)
        used_bytes = self._trace.device_used_bytes[stop - 1]
        within = self._trace.device_used_bytes[start:stop]
        return MemoryReading(
            total_bytes=self._capacity_bytes,
            used_bytes=used_bytes,
            free_bytes=None if self._capacity_bytes is None else max(0, self._capacity_bytes - used_bytes),
            used_min_bytes=min(within, default=None),
            used_max_bytes=max(within, default=None),
        )

    def _read_allocator(self, start: int, stop: int) -> AllocatorReading | None:
        if not stop:
            return None
        within: array[int] = self._trace.allocated_bytes[start:stop]
        return AllocatorReading(
            allocated_bytes=self._trace.allocated_bytes[stop - 1],
            allocated_max_bytes=max(within, default=None),
        )

    def _find_step(self, stop: int) -> int | None:
        """Return the iteration of the newest sample."""
        iterations = self._trace.iterations
        if not stop:
            return None
        while iterations[self._iteration].stop < stop:
            self._iteration += 1
        return iterations[self._iteration].index
