"""Turns the records of a series into samples, as fast as they can be read and in constant memory."""

import math
from abc import ABC, abstractmethod
from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec

from ..errors import InputFileError
from ..files.base.input_file import show_name
from ..files.base.series_reader import (
    WALL_CLOCK_FROM_S,
    SeriesDevice,
    SeriesFormat,
    SeriesReader,
    SeriesRecord,
)
from ..model import REAL_KINDS, AllocatorReading, DeviceSample, MemoryReading, Sample
from ..units import format_bytes

# Records at the beginning from which the length of a tick is derived.
HEAD_RECORDS = 4096
# Length of a tick if no device was seen twice.
LONE_INTERVAL_S = 1.0

_LEAST_INTERVAL_S = 1e-6


class FileSource(ABC):
    """Samples of one input, from its first to its last, without waiting."""

    path: Path
    format: SeriesFormat
    node: str
    # `wall`: seconds since the epoch; `trace`: the input's own time.
    clock: Literal["wall", "trace"]
    # Nominal length of one tick in seconds.
    interval_s: float

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """Sentences about what limits the values; complete after the last sample."""

    @property
    @abstractmethod
    def read_share(self) -> float: ...

    @abstractmethod
    def samples(self) -> Iterator[Sample]:
        """Yield the samples in order of time; call it once."""

    @abstractmethod
    def label(self, uuid: str) -> str:
        """The device as in the input, or as people call it."""

    @abstractmethod
    def real_uuid(self, uuid: str) -> str | None:
        """The UUID of a device if the input has it, None if it was made up."""

    @abstractmethod
    def close(self) -> None: ...


class SeriesPlayer(FileSource):
    """Yields the samples of one input; records of several devices at about one time are one sample."""

    def __init__(
        self,
        reader: SeriesReader,
        path: Path,
        *,
        capacity_bytes: int | None = None,
        interval_s: float | None = None,
    ) -> None:
        self.path = path
        self.format = reader.format
        self.node = show_name(path.resolve())
        self._reader = reader
        self._order = RecordOrder()
        self._records = self._order.sort(reader.records())
        self._head = list(islice(self._records, HEAD_RECORDS))
        if not self._head:
            reader.close()
            raise InputFileError(reader.explain_absence())
        self.clock: Literal["wall", "trace"] = (
            "wall" if self._head[len(self._head) // 2].time_s >= WALL_CLOCK_FROM_S else "trace"
        )
        self._is_interval_given = interval_s is not None
        self.interval_s = interval_s or _derive_interval(self._head) or LONE_INTERVAL_S
        self._tick = SeriesTick(capacity_bytes, has_allocator=reader.has_allocator)
        self._track = SeriesTrack(capacity_bytes)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._reader.notes, *self._order.notes, *self._track.notes)

    @property
    def read_share(self) -> float:
        return self._reader.read_share

    def close(self) -> None:
        self._reader.close()

    def label(self, uuid: str) -> str:
        return self._track.devices[uuid].label

    def real_uuid(self, uuid: str) -> str | None:
        return uuid if self._track.devices[uuid].is_uuid_real else None

    def samples(self) -> Iterator[Sample]:
        tick = self._tick
        track = self._track
        held = None
        head = self._head
        self._head = []
        for record in chain(head, self._records):
            if not tick.add(record, self.interval_s / 2):
                if held is not None:
                    yield held
                held = self._make_sample(track.tick_count, record.time_s)
                tick.add(record, self.interval_s / 2)
            track.observe(record, self.interval_s)
        if held is not None:
            yield held
        yield self._make_sample(track.tick_count, is_last=True)

    def _make_sample(self, seq: int, until_s: float = math.inf, *, is_last: bool = False) -> Sample:
        end_s, devices = self._tick.read(until_s)
        sample = Sample(self.node, seq, end_s, self.interval_s, devices, clock=self.clock, is_last=is_last)
        pace_s = self._track.end_tick()
        if pace_s is not None and not self._is_interval_given and _is_other_pace(pace_s, self.interval_s):
            self.interval_s = pace_s
        return sample


def _derive_interval(head: list[SeriesRecord]) -> float | None:
    """Return the median time between two records of one device, or None if no device came twice."""
    times_s: dict[str, list[float]] = {}
    for record in head:
        times_s.setdefault(record.device.uuid, []).append(record.time_s)
    between = [later - earlier for times in times_s.values() for earlier, later in pairwise(times)]
    positive = [each for each in between if each > 0]
    # Times of today leave less than a microsecond of a second to a float.
    return max(round(median(positive), 6), _LEAST_INTERVAL_S) if positive else None


def _is_other_pace(pace_s: float, interval_s: float) -> bool:
    """Distinguish a new pace from the unsteadiness of one."""
    return not interval_s / 1.5 <= pace_s <= interval_s * 1.5


# Records that are held back, so that a late one can still be put in its place.
WINDOW_RECORDS = 256


class RecordOrder:
    """Yields records in order of time; counts those that it moved, and those that came too late for it."""

    def __init__(self) -> None:
        self.moved_count = 0
        self.late_count = 0
        self._first_late: tuple[int, float] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        notes = []
        if self.moved_count:
            notes.append(f"{_count(self.moved_count)} out of order and sorted by time")
        if self._first_late is not None:
            line, back_s = self._first_late
            notes.append(
                f"{_count(self.late_count)} too far out of order and left out: from line {line} on the "
                f"clock goes back by {back_s:,.6g} s; later records are read once it catches up; split "
                "the file there to see all"
            )
        return tuple(notes)

    def sort(self, records: Iterable[SeriesRecord]) -> Iterator[SeriesRecord]:
        """Yield records in order of time, each a window later than it came."""
        window: deque[SeriesRecord] = deque()
        newest_s = released_s = float("-inf")
        for record in records:
            time_s = record.time_s
            if time_s >= newest_s:
                newest_s = time_s
                window.append(record)
            elif time_s >= released_s:
                self.moved_count += 1
                insort(window, record, key=_time_of)
            else:
                self.late_count += 1
                if self._first_late is None:
                    self._first_late = (record.line, released_s - time_s)
                continue
            if len(window) > WINDOW_RECORDS:
                oldest = window.popleft()
                released_s = oldest.time_s
                yield oldest
        yield from window


def _time_of(record: SeriesRecord) -> float:
    return record.time_s


def _count(count: int) -> str:
    return "1 record was" if count == 1 else f"{count:,} records were"


# The pace is derived from so many distances between records, so that a logger may change it.
RECENT_RECORDS = 64
# A longer silence of a device is a gap.
GAP_TICKS = 3.5


class SeriesTrack:
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
        uuid = record.device.uuid
        last = self._last.get(record.device.uuid)
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
        """Count a tick; now and then return the recent pace in seconds, else None."""
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
        return (f"{which} a time of the same device: the last one counts, minimum and maximum are of all",)

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
        count = len(self.devices)
        missing = count - len(self._totals)
        if not missing:
            return changes
        of = "" if missing == count else f" of {missing} of {count} devices"
        if self._capacity_bytes is None:
            return (*changes, f"capacity{of} was not recorded")
        return (*changes, f"capacity {format_bytes(self._capacity_bytes)}{of} is given, not recorded")


class SeriesTick:
    """Collects the records of one tick, at most one a device, or several of exactly one time."""

    def __init__(self, capacity_bytes: int | None, *, has_allocator: bool) -> None:
        self._capacity_bytes = capacity_bytes
        self._has_allocator = has_allocator
        self._records: dict[str, SeriesRecord] = {}
        self._repeated: dict[str, list[SeriesRecord]] = {}
        self._start_s = 0.0
        self._end_s = 0.0

    def add(self, record: SeriesRecord, most_s: float) -> bool:
        """Add a record; False if it is of a later tick, and this one is left as it was.

        Args:
            most_s: Seconds within which records of different devices are of one tick.
        """
        records = self._records
        uuid = record.device.uuid
        time_s = record.time_s
        same = records.get(uuid)
        if not records:
            self._start_s = time_s
        elif same is None:
            if time_s - self._start_s > most_s:
                return False
        elif time_s > same.time_s:
            return False
        else:
            # The last of several records of one device and time counts; minimum and maximum are of all.
            self._repeated.setdefault(uuid, [same]).append(record)
        records[uuid] = record
        self._end_s = time_s
        return True

    def read(self, until_s: float = math.inf) -> tuple[float, tuple[DeviceSample, ...]]:
        """Return the end of the tick and its devices in order of index, and begin the next one.

        Records at `until_s` belong to the next one: two ticks must not end at the same time.
        """
        taken = list(self._records.values())
        end_s = self._end_s
        rest = []
        if until_s <= end_s:
            rest = [record for record in taken if record.time_s >= until_s]
            taken = [record for record in taken if record.time_s < until_s]
            end_s = max(record.time_s for record in taken)
        taken.sort(key=_index_of)
        devices = tuple([self._convert(record, end_s) for record in taken])
        self._records = {record.device.uuid: record for record in rest}
        self._repeated = {uuid: within for uuid, within in self._repeated.items() if uuid in self._records}
        self._start_s = until_s
        return end_s, devices

    def _convert(self, record: SeriesRecord, end_s: float) -> DeviceSample:
        device = record.device
        within = self._repeated.get(device.uuid)
        return DeviceSample(
            uuid=device.uuid,
            index=device.index,
            name=device.name,
            kind=device.kind,
            state=record.state,
            reason=record.reason,
            age_s=end_s - record.time_s,
            memory=self._read_memory(record, within),
            allocator=self._read_allocator(record, within) if self._has_allocator else None,
            utilization_percent=record.utilization_percent,
            temperature_c=record.temperature_c,
            power_w=record.power_w,
            rank=record.rank,
            step=record.step,
        )

    def _read_memory(self, record: SeriesRecord, within: list[SeriesRecord] | None) -> MemoryReading:
        used = least = record.used_bytes
        most = _most_used(record)
        total = self._capacity_bytes if record.total_bytes is None else record.total_bytes
        free = record.free_bytes
        if free is None and total is not None and used is not None:
            free = max(0, total - used)
        if within is not None:
            least = min((each.used_bytes for each in within if each.used_bytes is not None), default=None)
            most = max((size for each in within if (size := _most_used(each)) is not None), default=None)
        return MemoryReading(total, used, free, least, most)

    def _read_allocator(self, record: SeriesRecord, within: list[SeriesRecord] | None) -> AllocatorReading:
        most = _most_allocated(record)
        if within is not None:
            most = max((size for each in within if (size := _most_allocated(each)) is not None), default=None)
        return AllocatorReading(
            record.allocated_bytes,
            most,
            record.reserved_bytes,
            active_bytes=record.active_bytes,
            retries=record.retries,
            ooms=record.ooms,
        )


def _most_allocated(record: SeriesRecord) -> int | None:
    return record.allocated_bytes if record.allocated_max_bytes is None else record.allocated_max_bytes


def _most_used(record: SeriesRecord) -> int | None:
    return record.used_bytes if record.used_max_bytes is None else record.used_max_bytes


def _index_of(record: SeriesRecord) -> int:
    return record.device.index


class PlayedDevices:
    def __init__(self, capacity_bytes: int | None) -> None:
        self._capacity_bytes = capacity_bytes
        self._is_capacity_used = False
        self._devices: dict[str, DeviceSample] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        given = f"capacity {format_bytes(self._capacity_bytes)} is given, not recorded"
        return (given,) if self._is_capacity_used else ()

    def complete(self, devices: tuple[DeviceSample, ...]) -> tuple[DeviceSample, ...]:
        """Return the devices of one sample, with the given capacity where none was recorded."""
        completed = tuple(map(self._complete, devices))
        self._devices.update((device.uuid, device) for device in completed)
        return completed

    def label(self, uuid: str) -> str:
        return self._devices[uuid].label

    def real_uuid(self, uuid: str) -> str | None:
        """The UUID of a device of the driver, None if it was made up for a simulated one."""
        return uuid if self._devices[uuid].kind in REAL_KINDS else None

    def _complete(self, device: DeviceSample) -> DeviceSample:
        if self._capacity_bytes is None or device.memory.total_bytes is not None:
            return device
        self._is_capacity_used = True
        memory = msgspec.structs.replace(device.memory, total_bytes=self._capacity_bytes)
        return msgspec.structs.replace(device, memory=memory)
