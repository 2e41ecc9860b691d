"""Least and most of each minute, so that a whole day can be drawn without reading its samples."""

import math
from collections.abc import Iterable

import msgspec

from ..model import DeviceSample, Sample

MINUTE_S = 60.0
Figures = tuple[int, int | None, int | None, int | None]
"""Samples, least and most device used, and most allocated, in bytes."""
Minute = dict[int, Figures]
"""Figures by number of the device."""
_DECODER = msgspec.msgpack.Decoder(dict[int, Figures])
MOST_DEVICES = 1 << 16


class OverviewBuilder:
    """Folds the samples of one node into minutes of their own clock."""

    def __init__(self) -> None:
        self._minutes: dict[int, Minute] = {}

    def add(self, sample: Sample, device_ids: Iterable[int]) -> bool:
        """Take a sample with the numbers of its devices; return whether it began another minute."""
        minute = minute_of(sample.time_s)
        is_other = bool(self._minutes) and minute not in self._minutes
        figures = self._minutes.setdefault(minute, {})
        for number, device in zip(device_ids, sample.devices, strict=True):
            figures[number] = merge_figures(figures.get(number), _read(device))
        return is_other

    def take(self) -> dict[int, Minute]:
        """Return what was folded since this was last asked, by minute."""
        minutes = self._minutes
        self._minutes = {}
        return minutes


def minute_of(time_s: float) -> int:
    """Return the number of the minute that holds a time, kept within what a file can hold."""
    return math.floor(max(-1e15, min(1e15, time_s)) / MINUTE_S)


def merge_minutes(old: Minute, new: Minute) -> Minute:
    """Return the figures of both."""
    return old | {number: merge_figures(old.get(number), figures) for number, figures in new.items()}


def merge_figures(old: Figures | None, new: Figures) -> Figures:
    """Return the figures of both."""
    if old is None:
        return new
    count, low, high, most = old
    more, new_low, new_high, new_most = new
    if new_low is not None and (low is None or new_low < low):
        low = new_low
    if new_high is not None and (high is None or new_high > high):
        high = new_high
    if new_most is not None and (most is None or new_most > most):
        most = new_most
    return count + more, low, high, most


def pack_minute(minute: Minute) -> bytes:
    """Return figures as they are kept."""
    return msgspec.msgpack.encode(minute)


def unpack_minute(data: bytes) -> Minute:
    """Return the figures of a minute.

    Raises:
        ValueError: They are damaged.
    """
    minute = _DECODER.decode(data)
    if len(minute) > MOST_DEVICES:
        raise ValueError(f"{len(minute)} devices in a minute")
    return minute


def _read(device: DeviceSample) -> Figures:
    memory = device.memory
    allocator = device.allocator
    low = memory.used_bytes if memory.used_min_bytes is None else memory.used_min_bytes
    high = memory.used_bytes if memory.used_max_bytes is None else memory.used_max_bytes
    allocated = None
    if allocator is not None:
        known = allocator.allocated_max_bytes
        allocated = allocator.allocated_bytes if known is None else known
    return 1, low, high, allocated
