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
        self.start_s = 0.0
        self.end_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._records)

    def find(self, uuid: str) -> SeriesRecord | None:
        """Return what a device has said in this tick."""
        return self._records.get(uuid)

    def add(self, record: SeriesRecord) -> None:
        """Take a record; of several of one device the last counts, least and most are those of all."""
        uuid = record.device.uuid
        if not self._records:
            self.start_s = record.time_s
        elif uuid in self._records:
            self._repeated.setdefault(uuid, [self._records[uuid]]).append(record)
        self.end_s = record.time_s
        self._records[uuid] = record

    def read(self, until_s: float = math.inf) -> tuple[float, tuple[DeviceSample, ...]]:
        """Return the end of the tick and its devices in order of index, and begin the next one.

        Records at `until_s` belong to the next one: two ticks must not end at the same time.
        """
        records = sorted(
            (record for record in self._records.values() if record.time_s < until_s),
            key=lambda record: record.device.index,
        )
        end_s = self.end_s if until_s > self.end_s else max(record.time_s for record in records)
        devices = tuple(self._convert(record, end_s) for record in records)
        self._records = {uuid: rest for uuid, rest in self._records.items() if rest.time_s >= until_s}
        self._repeated = {uuid: rest for uuid, rest in self._repeated.items() if uuid in self._records}
        self.start_s = self.end_s = until_s
        return end_s, devices

    def _convert(self, record: SeriesRecord, end_s: float) -> DeviceSample:
        device = record.device
        within = self._repeated.get(device.uuid)
        return DeviceSample(
            uuid=device.uuid,
            index=device.index,
            name=device.name,
            state=record.state,
            reason=record.reason,
            age_s=end_s - record.time_s,
            memory=self._read_memory(record, within),
            allocator=self._read_allocator(record, within) if self._has_allocator else None,
            utilization_percent=record.utilization_percent,
            temperature_c=record.temperature_c,
            power_w=record.power_w,
            step=record.step,
        )

    def _read_memory(self, record: SeriesRecord, within: list[SeriesRecord] | None) -> MemoryReading:
        used = least = most = record.used_bytes
        total = self._capacity_bytes if record.total_bytes is None else record.total_bytes
        free = record.free_bytes
        if free is None and total is not None and used is not None:
            free = max(0, total - used)
        if within is not None:
            known = [each.used_bytes for each in within if each.used_bytes is not None]
            least, most = min(known, default=None), max(known, default=None)
        return MemoryReading(total, used, free, least, most)

    def _read_allocator(self, record: SeriesRecord, within: list[SeriesRecord] | None) -> AllocatorReading:
        most = record.allocated_bytes
        if within is not None:
            most = max(
                (each.allocated_bytes for each in within if each.allocated_bytes is not None), default=None
            )
        return AllocatorReading(record.allocated_bytes, most, record.reserved_bytes)
