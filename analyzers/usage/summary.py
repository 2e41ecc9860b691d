"""What one device used over all samples seen of it: sums, peaks and the newest figures."""

import math
from typing import Literal

import msgspec

from ...engine.model import AllocatorReading, DeviceSample

_NOTHING = AllocatorReading()


class UsageSummary(msgspec.Struct, frozen=True, gc=False):
    """One device over the samples seen of it; None is unmeasured."""

    node: str
    device_uuid: str
    device: str
    """Label of the device (`DeviceSample.label`)."""
    device_index: int
    memory_source: Literal["allocator", "device"] | None
    """Whose figure `allocated_bytes` is: the allocator's where any sample had one, else device used."""
    allocated_bytes: int | None
    """Newest bytes of live tensors; device used where no allocator tells."""
    reserved_bytes: int | None
    used_bytes: int | None
    """Newest device used."""
    free_bytes: int | None
    total_bytes: int | None
    peak_bytes: int | None
    """Most of what `allocated_bytes` counts."""
    peak_s: float | None
    """When that was, in the samples' clock."""
    peak_used_bytes: int | None
    """Most device used within any tick."""
    average_bytes: float | None
    """Mean of what `allocated_bytes` counts, each sample counted once."""
    utilization_percent: float | None
    """Newest device used, or what is known of it, as a share of the capacity."""
    average_utilization_percent: float | None
    max_utilization_percent: float | None
    busy_percent: float | None
    """Newest share of time in which the device computed."""
    average_busy_percent: float | None
    headroom_bytes: int | None
    """Capacity less the most that was used."""
    samples: int
    first_s: float
    last_s: float


class DeviceUsage:
    """Adds up the samples of one device."""

    def __init__(self, node: str, device: DeviceSample, time_s: float) -> None:
        self._node = node
        self._newest = device
        self._first_s = self._last_s = time_s
        self._count = 0
        self._live = _Level()
        self._used = _Level()
        self._share = _Level()
        self._busy = _Level()

    def add(self, device: DeviceSample, time_s: float) -> None:
        """Count one sample in which the device is well.

        Args:
            device: The device.
            time_s: Time of the sample; later than that of the one before.
        """
        self._newest = device
        self._last_s = time_s
        self._count += 1
        memory = device.memory
        allocator = device.allocator or _NOTHING
        live_bytes = allocator.allocated_bytes
        used_bytes = memory.used_bytes
        if live_bytes is not None:
            most_bytes = allocator.allocated_max_bytes
            self._live.add(live_bytes, live_bytes if most_bytes is None else most_bytes, time_s)
        if used_bytes is not None:
            most_bytes = memory.used_max_bytes
            self._used.add(used_bytes, used_bytes if most_bytes is None else most_bytes, time_s)
        held_bytes = used_bytes if used_bytes is not None else live_bytes
        if held_bytes is not None and memory.total_bytes:
            share = 100 * held_bytes / memory.total_bytes
            self._share.add(share, share, time_s)
        busy = device.utilization_percent
        if busy is not None and math.isfinite(busy):
            self._busy.add(busy, busy, time_s)

    def summarize(self) -> UsageSummary:
        """Return what the samples so far come to."""
        device = self._newest
        memory = self._newest.memory
        is_live_known = self._live.count > 0
        level = self._live if is_live_known else self._used
        allocated = (device.allocator or _NOTHING).allocated_bytes if is_live_known else memory.used_bytes
        most_held = self._used.most if self._used.count else self._live.most
        total = memory.total_bytes
        return UsageSummary(
            node=self._node,
            device_uuid=device.uuid,
            device=device.label,
            device_index=device.index,
            memory_source="allocator" if is_live_known else "device" if level.count else None,
            allocated_bytes=allocated,
            reserved_bytes=(device.allocator or _NOTHING).reserved_bytes,
            used_bytes=memory.used_bytes,
            free_bytes=memory.free_bytes,
            total_bytes=total,
            peak_bytes=None if level.most is None else int(level.most),
            peak_s=level.most_s,
            peak_used_bytes=None if self._used.most is None else int(self._used.most),
            average_bytes=level.average,
            utilization_percent=self._share.newest,
            average_utilization_percent=self._share.average,
            max_utilization_percent=self._share.most,
            busy_percent=self._busy.newest,
            average_busy_percent=self._busy.average,
            headroom_bytes=None if total is None or most_held is None else max(0, total - int(most_held)),
            samples=self._count,
            first_s=self._first_s,
            last_s=self._last_s,
        )


class _Level:
    """Newest, sum and most of one figure."""

    __slots__ = ("_sum", "count", "most", "most_s", "newest")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self.newest: float | None = None
        self.most: float | None = None
        self.most_s: float | None = None

    def add(self, value: float, most: float, time_s: float) -> None:
        """Count one value, and the most within its tick."""
        self.count += 1
        self._sum += value
        self.newest = value
        if self.most is None or most > self.most:
            self.most = most
            self.most_s = time_s

    @property
    def average(self) -> float | None:
        return self._sum / self.count if self.count else None
