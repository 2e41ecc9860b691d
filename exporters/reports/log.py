"""What a run showed, counted sample by sample: the log of the run and of each device."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeVar

from ...analyzers.fragmentation.segment_maps import TemporalPattern, find_pattern
from ...analyzers.growth_renewal import renew_finding
from ...engine.model import (
    SEVERITIES,
    AllocatorReading,
    Assessment,
    DeviceSample,
    Finding,
    RankSample,
    Sample,
    Severity,
)
from ...engine.units import share_percent
from ...engine.unmeasured import larger

# The samples of one device over a period: running statistics, and the newest snapshots.

MemorySource = Literal["allocator", "device"]
"""Source of `allocated`: live tensors, or everything on the device if those are unknown."""
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
        """Share of the device's memory that is used, in percent."""
        return share_percent(self.load_bytes, self.total_bytes)

    def taken_bytes(self, source: MemorySource) -> int | None:
        """Return the value that reports call `allocated`."""
        return self.allocated_bytes if source == "allocator" else self.used_bytes


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
        """Allocations a second; None without two samples that have them."""
        return self._rate(self._allocations)

    @property
    def frees_per_s(self) -> float | None:
        """Frees a second; None without two samples that have them."""
        return self._rate(self._frees)

    @property
    def pattern(self) -> TemporalPattern | None:
        """Whether allocations come evenly over the samples; None where they are too few."""
        return find_pattern([(time_s, count) for time_s, count in self._spans])

    def observe(self, time_s: float, ranks: Sequence[RankSample]) -> None:
        """Add the counts of one sample; a process that restarted counts from there on."""
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
        """What the utilisation measures; None without one."""
        last = self.last
        return None if last is None or last.utilization_percent is None else self.load_measure

    @property
    def load_measure(self) -> UtilizationOf | None:
        """What `Snapshot.load_bytes` of the newest snapshot measures; None without one."""
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
        return self.snapshots[-1] if self.snapshots else None

    @property
    def peak_bytes(self) -> int | None:
        """Most of what the report calls `allocated`, moments between two samples included."""
        return self.peak_used_bytes if self.memory_source == "device" else self.peak_allocated_bytes

    def observe(
        self, time_s: float, device: DeviceSample, ranks: Sequence[RankSample], *, is_due: bool
    ) -> None:
        """Add one sample of the device.

        Args:
            device: The device; stale or lost values are skipped.
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
        used_max = larger(memory.used_bytes, memory.used_max_bytes)
        self.peak_used_bytes = larger(self.peak_used_bytes, used_max)
        self.peak_reserved_bytes = larger(self.peak_reserved_bytes, allocator.reserved_bytes)
        allocated_max = larger(allocator.allocated_bytes, allocator.allocated_max_bytes)
        self.peak_allocated_bytes = larger(self.peak_allocated_bytes, allocated_max)
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
            add_known(rank.resident_bytes for rank in ranks),
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


def _find_free(device: DeviceSample) -> int | None:
    memory = device.memory
    if memory.free_bytes is not None or memory.total_bytes is None or memory.used_bytes is None:
        return memory.free_bytes
    return max(0, memory.total_bytes - memory.used_bytes)


# The samples of a period: one log a device, the findings, and their basis.

MAX_SNAPSHOTS = 10_000
"""Default number of snapshots kept for a device."""


class FindingTrail(NamedTuple):
    """A finding, and the highest severity that it has had."""

    finding: Finding
    gravest: Severity


class RunLog:
    """Folds samples, findings and assessments; bounded by the snapshots that are kept of each device.

    Args:
        interval_s: Least seconds of the samples' clock between two snapshots; peaks come from all samples.
    """

    def __init__(self, *, max_snapshots: int = MAX_SNAPSHOTS, interval_s: float = 0.0) -> None:
        self.max_snapshots = max_snapshots
        self.interval_s = interval_s
        self.devices: dict[str, DeviceLog] = {}
        self.findings: dict[str, FindingTrail] = {}
        self.assessments: dict[tuple[str | None, int | None], Assessment] = {}
        """The newest of each process, or device, by device UUID and process id."""
        self.phased: dict[tuple[str | None, int], RankSample] = {}
        """The newest of each process that names phases, by device UUID and process id."""
        self.samples = 0
        self.first_s: float | None = None
        self.last: Sample | None = None
        self._due_s: float | None = None
        self._devices_by_index: Counter[int] = Counter()
        # Reports ask these for every device, and a file may have thousands of devices.
        self._findings_by_device: dict[str | None, dict[str, None]] = {}
        self._assessments_by_device: dict[str | None, dict[int | None, Assessment]] = {}

    @property
    def span_s(self) -> float:
        """Seconds from the first sample to the last."""
        return 0.0 if self.last is None or self.first_s is None else self.last.time_s - self.first_s

    def key_of(self, log: DeviceLog) -> str:
        """Return the key of a device in reports: its index, or its label where another has the same index."""
        return log.label if self._devices_by_index[log.index] > 1 else str(log.index)

    def observe(self, sample: Sample) -> None:
        is_due = self._is_due(sample.time_s, sample.interval_s)
        ranks = _sort_ranks(sample.ranks) if sample.ranks else {}
        for device in sample.devices:
            log = self.devices.get(device.uuid)
            if log is None:
                log = self.devices[device.uuid] = DeviceLog(device, self.max_snapshots)
                self._devices_by_index[log.index] += 1
            # A process that has not turned to any device yet may turn to this one.
            own = ranks.get(device.uuid) or ranks.get("") or ()
            log.observe(sample.time_s, device, own, is_due=is_due)
        for rank in sample.ranks:
            if rank.phases:
                self.phased[rank.device_uuid, rank.pid] = rank
        self.samples += 1
        if self.first_s is None:
            self.first_s = sample.time_s
        self.last = sample

    def take(self, findings: Iterable[Finding], assessments: Iterable[Assessment] = ()) -> None:
        """Take what analyzers concluded."""
        for finding in findings:
            known = self.findings.get(finding.id)
            highest = (
                finding.severity
                if known is None
                else max(known.gravest, finding.severity, key=SEVERITIES.index)
            )
            self.findings[finding.id] = FindingTrail(finding, highest)
            self._findings_by_device.setdefault(finding.device_uuid, {})[finding.id] = None
        for assessment in assessments:
            self.assessments[assessment.device_uuid, assessment.pid] = assessment
            self._assessments_by_device.setdefault(assessment.device_uuid, {})[assessment.pid] = assessment

    def findings_of(self, device_uuid: str) -> list[Finding]:
        """Return the findings about a device, in the order in which they were first heard of."""
        return [self.findings[it].finding for it in self._findings_by_device.get(device_uuid, ())]

    def assessments_of(self, device_uuid: str) -> list[Assessment]:
        """Return the newest assessments of a device and of its processes."""
        return list(self._assessments_by_device.get(device_uuid, {}).values())

    def renew(self, finding: Finding) -> Finding:
        """Return a finding with the times and rates of the newest assessments, as of the newest sample."""
        if self.last is None or finding.device_uuid is None:
            return finding
        return renew_finding(finding, self.assessments_of(finding.device_uuid), self.last.time_s)

    def begin_next(self) -> "RunLog":
        """Return the log of the period that follows: it knows the findings that are still open."""
        following = RunLog(max_snapshots=self.max_snapshots, interval_s=self.interval_s)
        following.take(trail.finding for trail in self.findings.values() if trail.finding.is_open)
        following.take((), self.assessments.values())
        return following

    def _is_due(self, time_s: float, tick_s: float) -> bool:
        """Return whether a snapshot is due; a clock that was set back restarts.

        Ticks are not exact: one that comes up to half a tick early counts for the moment it was meant for.
        """
        due_s = self._due_s
        early_s = 0.5 * min(tick_s, self.interval_s)
        if due_s is not None and due_s - 2 * self.interval_s <= time_s < due_s - early_s:
            return False
        is_on_time = due_s is not None and abs(time_s - due_s) <= self.interval_s
        self._due_s = (due_s if due_s is not None and is_on_time else time_s) + self.interval_s
        return True


def _sort_ranks(ranks: Sequence[RankSample]) -> dict[str, list[RankSample]]:
    found: dict[str, list[RankSample]] = defaultdict(list)
    for rank in ranks:
        if rank.state != "ended":
            found[rank.device_uuid or ""].append(rank)
    return found


# How much of what an allocator holds is stranded.


def measure_fragmentation(allocator: AllocatorReading) -> float | None:
    """Return the share of reserved bytes that is free and cannot be given back, 0 to 1.

    Inactive split bytes over reserved bytes, as PyTorch counts both; None if either is unknown.
    """
    stranded = allocator.inactive_split_bytes
    reserved = allocator.reserved_bytes
    if stranded is None or reserved is None:
        return None
    return min(1.0, stranded / reserved) if reserved else 0.0


Number = TypeVar("Number", int, float)


def add_known(values: Iterable[Number | None]) -> Number | None:
    """Return the sum of the values that are known; None without one."""
    known = [it for it in values if it is not None]
    return sum(known) if known else None


def known_points(points: Iterable[tuple[float, float | None]]) -> list[tuple[float, float]]:
    return [(time_s, value) for time_s, value in points if value is not None]
