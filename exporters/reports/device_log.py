"""What the samples of a period said of one device: running statistics, and the newest snapshots."""

from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ...analyzers.fragmentation.segment_maps import TemporalPattern, find_pattern
from ...engine.model import AllocatorReading, DeviceSample, RankSample
from .fragmentation_share import measure_fragmentation

MemorySource = Literal["allocator", "device"]
"""Whose figure `allocated` is: live tensors, or everything on the device where nobody tells of those."""
UtilizationOf = Literal["used", "reserved", "allocated"]
"""Which figure `utilization` sets against the total: device used where it is known, else the next best."""

_NOTHING = AllocatorReading()


class Snapshot(NamedTuple):
    """One device at one moment; None is unmeasured."""

    time_s: float
    used_bytes: int | None
    free_bytes: int | None
    total_bytes: int | None
    allocated_bytes: int | None
    """Live bytes of the caching allocator."""
    reserved_bytes: int | None
    fragmentation: float | None
    """Share of what the allocator holds that is stranded, 0 to 1."""
    resident_bytes: int | None
    """Resident host memory of the processes on it."""

    @property
    def load_bytes(self) -> int | None:
        """Bytes that are set against the total: device used, else reserved, else allocated."""
        if self.used_bytes is not None:
            return self.used_bytes
        return self.reserved_bytes if self.reserved_bytes is not None else self.allocated_bytes

    @property
    def utilization_percent(self) -> float | None:
        """Share of the device's memory that is taken, in percent."""
        return share_percent(self.load_bytes, self.total_bytes)

    def taken_bytes(self, source: MemorySource) -> int | None:
        """Return the figure that reports call `allocated`."""
        return self.allocated_bytes if source == "allocator" else self.used_bytes


def share_percent(part_bytes: int | None, total_bytes: int | None) -> float | None:
    """Return what part of the total a figure is, in percent; None where either is unknown."""
    return None if part_bytes is None or not total_bytes else 100.0 * part_bytes / total_bytes


class Average:
    """Mean and most of figures as they come."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._count = 0
        self.most: float | None = None

    @property
    def mean(self) -> float | None:
        """The mean; None before the first figure."""
        return self._sum / self._count if self._count else None

    def add(self, value: float | None, most: float | None = None) -> None:
        """Take one figure, and the most it was meanwhile where that is more; None is passed over."""
        if value is None:
            return
        self._sum += value
        self._count += 1
        most = value if most is None else max(value, most)
        self.most = most if self.most is None else max(self.most, most)


class AllocationCounts:
    """How often the processes on a device allocate and free, from the counters of their allocators.

    Args:
        most_spans: Spans between two samples to keep for the pattern; rates are of all.
    """

    def __init__(self, most_spans: int) -> None:
        self._known: dict[int, tuple[float, int, int]] = {}
        self._spans: deque[tuple[float, int]] = deque(maxlen=most_spans)
        self._first_s: float | None = None
        self._last_s = 0.0
        self._allocations = self._frees = 0

    @property
    def allocations_per_s(self) -> float | None:
        """Allocations a second; None where no two samples tell of them."""
        return self._rate(self._allocations)

    @property
    def frees_per_s(self) -> float | None:
        """Frees a second; None where no two samples tell of them."""
        return self._rate(self._frees)

    @property
    def pattern(self) -> TemporalPattern | None:
        """Whether allocations come evenly over the samples; None where they are too few."""
        return find_pattern([(time_s, count) for time_s, count in self._spans])

    def observe(self, time_s: float, ranks: Sequence[RankSample]) -> None:
        """Take the counts of one sample; of a process that began anew from there on."""
        made = 0
        is_known = False
        for rank in ranks:
            allocator = rank.allocator or _NOTHING
            if rank.state != "ok" or allocator.allocations is None or allocator.frees is None:
                continue
            before = self._known.get(rank.pid)
            self._known[rank.pid] = time_s, allocator.allocations, allocator.frees
            if before is None or not before[0] < time_s or allocator.allocations < before[1]:
                continue
            is_known = True
            self._first_s = before[0] if self._first_s is None else self._first_s
            made += allocator.allocations - before[1]
            self._frees += max(0, allocator.frees - before[2])
        if is_known:
            self._allocations += made
            self._last_s = time_s
            self._spans.append((time_s, made))

    def _rate(self, count: int) -> float | None:
        span_s = 0.0 if self._first_s is None else self._last_s - self._first_s
        return count / span_s if span_s > 0 else None


class DeviceLog:
    """Folds the samples of one device; bounded by the number of snapshots that are kept.

    Args:
        device: The device as first seen.
        max_snapshots: Snapshots to keep; the oldest go.
    """

    def __init__(self, device: DeviceSample, max_snapshots: int) -> None:
        self.index = device.index
        self.uuid = device.uuid
        self.kind = device.kind
        self.label = device.label
        self.name = device.name
        self.snapshots: deque[Snapshot] = deque(maxlen=max_snapshots)
        self.count = 0
        """Snapshots taken, kept or not."""
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.utilization = Average()
        self.fragmentation = Average()
        self.counts = AllocationCounts(max_snapshots)
        self.settings: dict[int, str] = {}
        """`PYTORCH_ALLOC_CONF` of each process that set it, by pid."""
        self.peak_used_bytes: int | None = None
        self.peak_reserved_bytes: int | None = None
        self.peak_allocated_bytes: int | None = None
        self.allocator = _NOTHING
        """The newest word of its allocator."""
        self.state = device.state
        self.reason = device.reason

    @property
    def memory_source(self) -> MemorySource:
        """Whose figures the report gives as `allocated`."""
        return "device" if self.peak_allocated_bytes is None else "allocator"

    @property
    def utilization_of(self) -> UtilizationOf | None:
        """Which figure the utilisation is of; None where there is none."""
        last = self.last
        return None if last is None or last.utilization_percent is None else self.load_measure

    @property
    def load_measure(self) -> UtilizationOf | None:
        """Which figure `Snapshot.load_bytes` is of the newest snapshot; None where there is none."""
        last = self.last
        if last is None or last.load_bytes is None:
            return None
        if last.used_bytes is not None:
            return "used"
        return "reserved" if last.reserved_bytes is not None else "allocated"

    @property
    def peak_load_bytes(self) -> int | None:
        """Most of what the newest snapshot has as `load_bytes`, moments between two samples included."""
        measure = self.load_measure
        if measure == "used":
            return self.peak_used_bytes
        return self.peak_reserved_bytes if measure == "reserved" else self.peak_allocated_bytes

    @property
    def last(self) -> Snapshot | None:
        """The newest snapshot."""
        return self.snapshots[-1] if self.snapshots else None

    @property
    def peak_bytes(self) -> int | None:
        """Most of what the report calls `allocated`, moments between two samples included."""
        return self.peak_used_bytes if self.memory_source == "device" else self.peak_allocated_bytes

    def observe(
        self, time_s: float, device: DeviceSample, ranks: Sequence[RankSample], *, is_due: bool
    ) -> None:
        """Take the device in one sample.

        Args:
            time_s: Time of the sample.
            device: The device; figures that are stale or lost are passed over.
            ranks: The processes on it that report.
            is_due: Whether to take a snapshot; the peaks are kept either way.
        """
        self.state = device.state
        self.reason = device.reason
        if device.state != "ok":
            return
        memory = device.memory
        allocator = device.allocator or _NOTHING
        self.allocator = allocator
        self.counts.observe(time_s, ranks)
        self.settings.update((it.pid, it.allocator_settings) for it in ranks if it.allocator_settings)
        used_max = _most(memory.used_bytes, memory.used_max_bytes)
        self.peak_used_bytes = _most(self.peak_used_bytes, used_max)
        self.peak_reserved_bytes = _most(self.peak_reserved_bytes, allocator.reserved_bytes)
        allocated_max = _most(allocator.allocated_bytes, allocator.allocated_max_bytes)
        self.peak_allocated_bytes = _most(self.peak_allocated_bytes, allocated_max)
        if not is_due:
            return
        snapshot = Snapshot(
            time_s,
            memory.used_bytes,
            _find_free(device),
            memory.total_bytes,
            allocator.allocated_bytes,
            allocator.reserved_bytes,
            measure_fragmentation(allocator),
            _sum_resident(ranks) if ranks else None,
        )
        self._keep(snapshot, used_max)

    def _keep(self, snapshot: Snapshot, used_max: int | None) -> None:
        if self.first_s is None:
            self.first_s = snapshot.time_s
        self.last_s = snapshot.time_s
        self.count += 1
        self.snapshots.append(snapshot)
        self.utilization.add(snapshot.utilization_percent, share_percent(used_max, snapshot.total_bytes))
        self.fragmentation.add(snapshot.fragmentation)


def _most(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _find_free(device: DeviceSample) -> int | None:
    memory = device.memory
    if memory.free_bytes is not None or memory.total_bytes is None or memory.used_bytes is None:
        return memory.free_bytes
    return max(0, memory.total_bytes - memory.used_bytes)


def _sum_resident(ranks: Sequence[RankSample]) -> int | None:
    known = [rank.resident_bytes for rank in ranks if rank.resident_bytes is not None]
    return sum(known) if known else None
