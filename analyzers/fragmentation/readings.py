"""What is known of one allocator at its newest sample, for reports and screens."""

from typing import Literal

import msgspec

from ..subjects import SubjectKey
from .model import FragmentationReading, Measure
from .segment_maps import MapFragmentation
from .track import FragmentationTrack
from .words import word_method


def read_track(key: SubjectKey, track: FragmentationTrack) -> FragmentationReading | None:
    """Return the reading of one allocator; None where it was not seen yet."""
    subject = track.subject
    if subject is None:
        return None
    extremes = track.extremes or track.window.newest
    allocator, found = subject.allocator, track.map
    stranded, source = _find_stranded(allocator.inactive_split_bytes, found)
    reserved, allocated = allocator.reserved_bytes, allocator.allocated_bytes
    limit, rank, device = subject.limit_bytes, subject.rank, subject.device
    ratio, measure = _find_ratio(found, stranded, reserved, allocated)
    reading = FragmentationReading(
        key=key,
        node=subject.sample.node,
        device_uuid=subject.device_uuid,
        device=None if device is None else device.label,
        device_index=None if device is None else device.index,
        pid=None if rank is None else rank.pid,
        rank=None if rank is None or rank.coordinates is None else rank.coordinates.rank,
        time_s=subject.sample.time_s,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        active_bytes=allocator.active_bytes,
        requested_bytes=allocator.requested_bytes,
        internal=_lose(allocator.requested_bytes, allocated),
        stranded_bytes=stranded,
        stranded_source=source,
        persistent_bytes=extremes.stranded_bytes,
        cached_bytes=_subtract(reserved, allocator.active_bytes),
        unused_bytes=_subtract(reserved, allocated),
        unused_share=_divide(extremes.unused_bytes, extremes.reserved_bytes),
        utilization=_divide(track.peak_bytes, track.peak_reserved_bytes),
        limit_bytes=limit,
        headroom_bytes=_subtract(limit, extremes.peak_bytes),
        retries=allocator.retries,
        ratio=ratio,
        measure=measure,
        method=word_method(measure),
    )
    return reading if found is None else _add_map(reading, found)


def _add_map(reading: FragmentationReading, found: MapFragmentation) -> FragmentationReading:
    return msgspec.structs.replace(
        reading,
        external=found.external,
        free_blocks=found.free_blocks,
        largest_free_bytes=found.largest_free_bytes,
        map_s=found.time_s,
    )


def _find_stranded(
    counted: int | None, found: MapFragmentation | None
) -> tuple[int | None, Literal["counter", "map"] | None]:
    """Return what is stranded and who says so: the counter, which is of this moment, before a map."""
    if counted is not None:
        return counted, "counter"
    return (None, None) if found is None else (found.stranded_bytes, "map")


def _find_ratio(
    found: MapFragmentation | None, stranded: int | None, reserved: int | None, allocated: int | None
) -> tuple[float | None, Measure | None]:
    if found is not None and found.external is not None:
        return found.external, "external"
    if stranded is not None and reserved:
        return stranded / reserved, "stranded"
    return None, "unused" if reserved is not None and allocated is not None else None


def _subtract(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else max(0, whole - part)


def _divide(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else min(1.0, part / whole)


def _lose(part: int | None, whole: int | None) -> float | None:
    share = _divide(part, whole)
    return None if share is None else 1 - share
