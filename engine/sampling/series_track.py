"""What is remembered of a series while it plays: its devices, pace, gaps, repetitions and capacities."""

from collections import deque
from statistics import median

from ..readers.series_record import SeriesDevice, SeriesRecord
from ..units import format_bytes

RECENT_RECORDS = 64
"""Records whose distances tell the pace anew, so that a logger that changes it is followed."""
GAP_TICKS = 3.5
"""A silence of a device that is longer than so many ticks is a gap."""


class SeriesTrack:
    """Follows the records of one series.

    Args:
        capacity_bytes: Capacity of devices whose input does not tell it.
    """

    def __init__(self, capacity_bytes: int | None) -> None:
        self.devices: dict[str, SeriesDevice] = {}
        self.tick_count = 0
        self._capacity_bytes = capacity_bytes
        self._recent_s: deque[float] = deque(maxlen=RECENT_RECORDS)
        self._since_pace = 0
        self._last: dict[str, SeriesRecord] = {}
        self._totals: dict[str, int] = {}
        self._repeated_count = 0
        self._gap_count = 0
        self._longest_gap = (0.0, 0.0)
        self._resized: list[str] = []
        self._resized_count = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about repeated times, gaps and capacities."""
        return (*self._describe_repeated(), *self._describe_gaps(), *self._describe_capacity())

    def observe(self, record: SeriesRecord, interval_s: float) -> None:
        """Take a record, in order of time."""
        uuid, last = record.device.uuid, self._last.get(record.device.uuid)
        if last is None:
            self.devices[uuid] = record.device
        else:
            between_s = record.time_s - last.time_s
            if between_s > 0:
                self._recent_s.append(between_s)
                self._since_pace += 1
                if between_s > GAP_TICKS * interval_s:
                    self._gap_count += 1
                    self._longest_gap = max(self._longest_gap, (between_s, last.time_s))
            else:
                self._repeated_count += 1
        self._last[uuid] = record
        if record.total_bytes is not None and record.total_bytes != self._totals.get(uuid):
            self._resize(record, record.total_bytes)

    def end_tick(self) -> float | None:
        """Count a tick; return the pace of late in seconds now and then, else None."""
        self.tick_count += 1
        if self._since_pace < RECENT_RECORDS:
            return None
        self._since_pace = 0
        return median(self._recent_s)

    def _resize(self, record: SeriesRecord, total_bytes: int) -> None:
        before = self._totals.get(record.device.uuid)
        self._totals[record.device.uuid] = total_bytes
        if before is None:
            return
        self._resized_count += 1
        if len(self._resized) < 3:
            self._resized.append(
                f"the capacity of device {ascii(record.device.label)[1:-1]} changed from "
                f"{format_bytes(before)} to {format_bytes(total_bytes)} at {record.time_s:.10g} s"
            )

    def _describe_repeated(self) -> tuple[str, ...]:
        count = self._repeated_count
        if not count:
            return ()
        which = "1 record repeats" if count == 1 else f"{count:,} records repeat"
        return (f"{which} a time of the same device: the last one counts, least and most are those of all",)

    def _describe_gaps(self) -> tuple[str, ...]:
        if not self._gap_count:
            return ()
        length_s, from_s = self._longest_gap
        which = "1 gap" if self._gap_count == 1 else f"{self._gap_count:,} gaps"
        return (
            f"{which} of more than {GAP_TICKS:g} ticks, the longest of {length_s:,.6g} s "
            f"from {from_s:.10g} s on",
        )

    def _describe_capacity(self) -> tuple[str, ...]:
        more = self._resized_count - len(self._resized)
        changes = (*self._resized, *((f"capacity changed {more:,} times more",) if more else ()))
        if len(self._totals) == len(self.devices):
            return changes
        if self._capacity_bytes is None:
            return (*changes, "capacity was not recorded")
        return (*changes, f"capacity {format_bytes(self._capacity_bytes)} is as given, not recorded")
