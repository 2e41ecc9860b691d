"""Who held the device when a request failed."""

from collections.abc import Callable

from ...engine.model.flight_record import FlightRecord, FlightSample
from ..segment_summary import find_stranded
from .model import DeviceShares


def share_device(record: FlightRecord) -> DeviceShares:
    """Return who held the device, as far as the record tells."""
    allocated = _read(record, "allocated_bytes", lambda sample: sample.allocated_bytes)
    active = _read(record, "active_bytes", lambda sample: sample.active_bytes)
    reserved = _read(record, "reserved_bytes", lambda sample: sample.reserved_bytes)
    stranded = find_all_stranded(record)
    total, free = record.device.total_bytes, record.failure.device_free_bytes
    used = record.failure.device_used_bytes
    if used is None:
        used = subtract(total, free)
    return DeviceShares(
        total_bytes=total,
        allocated_bytes=allocated,
        awaiting_bytes=subtract(active, allocated),
        stranded_bytes=stranded,
        cached_bytes=subtract(subtract(reserved, active), stranded),
        unallocated_bytes=subtract(reserved, allocated) if active is None and stranded is None else None,
        other_bytes=subtract(used, reserved),
        free_bytes=free,
        reserved_bytes=reserved,
    )


def subtract(whole: int | None, part: int | None) -> int | None:
    """Return a difference, None where a part of it is unknown or the figures contradict each other."""
    return None if whole is None or part is None or part > whole else whole - part


def _read(record: FlightRecord, name: str, read: Callable[[FlightSample], int | None]) -> int | None:
    """Return a level at the failure: of the statistics, else of the newest sample that has it."""
    level = record.stats.get(f"{name}.all.current")
    if level is not None:
        return int(level)
    return next((value for sample in reversed(record.samples) if (value := read(sample)) is not None), None)


def find_all_stranded(record: FlightRecord) -> int | None:
    """Return the stranded bytes: of the segments where all are recorded, else of the statistics.

    The statistics do not count expandable segments.
    """
    if record.segments and not record.truncated.segments and not record.truncated.blocks:
        return sum(map(find_stranded, record.segments))
    if any(segment.is_expandable for segment in record.segments):
        return None
    return _read(record, "inactive_split_bytes", lambda sample: sample.inactive_split_bytes)
