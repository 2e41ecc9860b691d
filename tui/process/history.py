"""The last minutes of each process with device memory, as far as this viewer has seen them."""

from array import array
from collections.abc import Iterator
from math import isnan, nan
from typing import NamedTuple

from ...engine.model import ProcessReading, Sample

# Device UUID, process id and start time.
HistoryKey = tuple[str, int, float | None]

# Readings of a process; at one every two seconds they span twenty minutes.
MOST_READINGS = 600
# Processes are read as often.
INTERVAL_S = 1.5
# Processes that are followed; of more, those that are gone are forgotten first.
MOST_PROCESSES = 256


class ProcessPoint(NamedTuple):
    time_s: float
    used_bytes: float | None
    sm_percent: float | None
    cpu_percent: float | None
    resident_bytes: float | None


class _Ring:
    """The newest readings of one process, in columns."""

    def __init__(self) -> None:
        self._columns = tuple(array("d") for _ in ProcessPoint._fields)
        self._next = 0

    @property
    def newest_s(self) -> float:
        times = self._columns[0]
        return times[self._next - 1] if times else -1e18

    def add(self, point: ProcessPoint) -> None:
        is_full = len(self._columns[0]) == MOST_READINGS
        for column, value in zip(self._columns, point, strict=True):
            number = nan if value is None else float(value)
            if is_full:
                column[self._next] = number
            else:
                column.append(number)
        self._next = (self._next + 1) % MOST_READINGS

    def __iter__(self) -> Iterator[ProcessPoint]:
        count = len(self._columns[0])
        first = self._next if count == MOST_READINGS else 0
        for step in range(count):
            at = (first + step) % count
            time_s, *values = (column[at] for column in self._columns)
            yield ProcessPoint(time_s, *(None if isnan(value) else value for value in values))


class ProcessHistories:
    def __init__(self) -> None:
        self._rings: dict[HistoryKey, _Ring] = {}

    def add(self, sample: Sample) -> None:
        """Store the readings of a sample, unless the newest ones are as new."""
        if sample.clock != "wall":
            return
        present: set[HistoryKey] = set()
        for device in sample.devices:
            for process in device.processes or ():
                key = key_of(device.uuid, process)
                present.add(key)
                ring = self._rings.get(key)
                if ring is None:
                    if len(self._rings) >= MOST_PROCESSES and not self._forget_one(present):
                        continue
                    ring = self._rings[key] = _Ring()
                if sample.time_s >= ring.newest_s + INTERVAL_S:
                    ring.add(describe_reading(sample.time_s, process))
                elif sample.time_s < ring.newest_s:  # a replay went back
                    self._rings[key] = ring = _Ring()
                    ring.add(describe_reading(sample.time_s, process))

    def of(self, key: HistoryKey) -> tuple[ProcessPoint, ...]:
        """Return the readings of a process, oldest first."""
        return tuple(self._rings.get(key, ()))

    def _forget_one(self, present: set[HistoryKey]) -> bool:
        """Forget the process that has been known longest and is not there; return whether there was one."""
        gone = next((key for key in self._rings if key not in present), None)
        if gone is None:
            return False
        del self._rings[gone]
        return True


def key_of(uuid: str, process: ProcessReading) -> HistoryKey:
    return uuid, process.pid, process.started_s


def describe_reading(time_s: float, process: ProcessReading) -> ProcessPoint:
    return ProcessPoint(
        time_s, process.used_bytes, process.sm_percent, process.cpu_percent, process.resident_bytes
    )
