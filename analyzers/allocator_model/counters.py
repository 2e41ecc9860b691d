"""The statistics that change seldom: segments, retries, what the device was asked for."""

from __future__ import annotations

from .tally import Counter, PoolCounter


class DeviceCounters:
    """What passed between the allocator and the device."""

    def __init__(self) -> None:
        self.segment = PoolCounter()
        self.reserved = PoolCounter()
        self.reserved_by_private_pool: dict[tuple[int, int], PoolCounter] = {}
        self.oversize_allocations = Counter()
        self.oversize_segments = Counter()
        self.num_alloc_retries = 0
        self.num_ooms = 0
        self.num_sync_all_streams = 0
        self.num_device_alloc = 0
        self.num_device_free = 0

    def each(self) -> list[Counter]:
        """Return every counter that has a peak."""
        pooled = [self.segment, self.reserved, *self.reserved_by_private_pool.values()]
        single = [counter for pool in pooled for counter in pool.each()]
        return [*single, self.oversize_allocations, self.oversize_segments]

    def reset_peaks(self) -> None:
        """Forget the peaks before now."""
        for counter in self.each():
            counter.peak = counter.current

    def reset_accumulated(self) -> None:
        """Forget what rose, fell and happened before now."""
        for counter in self.each():
            counter.allocated = counter.freed = 0
        self.num_alloc_retries = self.num_ooms = self.num_sync_all_streams = 0
        self.num_device_alloc = self.num_device_free = 0

    def count_reserved(self, size: int, *, is_small: bool, pool_id: tuple[int, int] | None) -> None:
        """Count memory that came from the device, or went back (less than 0)."""
        counters = [self.reserved]
        if pool_id is not None:
            counters.append(self.reserved_by_private_pool.setdefault(pool_id, PoolCounter()))
        for counter in counters:
            if size > 0:
                counter.rise(size, is_small=is_small)
            else:
                counter.fall(-size, is_small=is_small)
        if size > 0:
            self.num_device_alloc += 1
        else:
            self.num_device_free += 1
