"""One tick of a series: what each device said within it, as a live sampler would have told it."""

import math

from ..model import AllocatorReading, DeviceSample, MemoryReading
from ..readers.series_record import SeriesRecord


class SeriesTick:
    """Gathers the records of one tick, at most one a device, or several of exactly one time.

    Args:
        capacity_bytes: Capacity of devices whose input does not tell it.
        has_allocator: Whether the input has figures of the allocator.
    """

    def __init__(self, capacity_bytes: int | None, *, has_allocator: bool) -> None:
        self._capacity_bytes = capacity_bytes
        self._has_allocator = has_allocator
        self._records: dict[str, SeriesRecord] = {}
        self._repeated: dict[str, list[SeriesRecord]] = {}
        self._start_s = 0.0
        self._end_s = 0.0

    def take(self, record: SeriesRecord, most_s: float) -> bool:
        """Take a record; tell whether it is of this tick, which is left as it was where it is of a later one.

        Args:
            record: At the time of those before it, or later.
            most_s: Seconds within which records of different devices are of one tick.
        """
        records, uuid, time_s = self._records, record.device.uuid, record.time_s
        same = records.get(uuid)
        if not records:
            self._start_s = time_s
        elif same is None:
            if time_s - self._start_s > most_s:
                return False
        elif time_s > same.time_s:
            return False
        else:
            # Of several of one device and time the last counts; least and most are those of all.
            self._repeated.setdefault(uuid, [same]).append(record)
        records[uuid] = record
        self._end_s = time_s
        return True

    def read(self, until_s: float = math.inf) -> tuple[float, tuple[DeviceSample, ...]]:
        """Return the end of the tick and its devices in order of index, and begin the next one.

        Records at `until_s` belong to the next one: two ticks must not end at the same time.
        """
        taken, end_s = list(self._records.values()), self._end_s
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
