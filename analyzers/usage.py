"""How much of each device is used: current, peak and average, and memory that idle processes hold."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from ..engine.model import AllocatorReading, DeviceSample, Finding, Sample
from ..engine.units import format_age, format_bytes, format_share
from .findings.evidence import CAPACITY, EvidenceKey
from .findings.lifecycle import Crossing, NodeClocks, OpenFinding, Passage, begin_finding, find_gap_s, restate
from .findings.subjects import name_device

# One device's idle-held memory: how long it has computed nothing while processes hold its memory.

KIND = "idle_held"

# Seconds without utilisation from which held memory is reported; loading and waiting take minutes.
IDLE_S = 1800.0
# Share of the capacity that must be held; the driver's own part is well below.
HELD_SHARE = 0.10
RELIEVED_SHARE = 0.08
# Share of the capacity by which the held bytes must change to publish again.
UPDATE_SHARE = 0.05

_HELD = EvidenceKey("least held", "bytes")
_SINCE = EvidenceKey("idle since", "s")
_IDLE = EvidenceKey("idle for", "s")
# Kinds of devices whose memory is the host's, which others hold for other purposes.
_OF_THE_HOST = ("unified", "cpu")
_METHOD = (
    f"Utilisation (NVML's share of time in which a kernel ran) was 0 % in every sample of {IDLE_S / 60:.0f} "
    f"minutes, and at least {format_share(HELD_SHARE)} of the capacity was used in each"
)
_ADVICE = (
    "The processes on the device use memory and compute nothing: end forgotten ones, or call "
    "torch.cuda.empty_cache() in one that only waits, so that others can use it"
)


class IdleTrack(OpenFinding):
    """How long one device has been idle with memory held, and the finding on that."""

    def __init__(self) -> None:
        super().__init__()
        self._since_s: float | None = None
        self._least_bytes = 0
        self._relief = Crossing()
        self._known_s: float | None = None

    def adopt(self, finding: Finding) -> None:
        super().adopt(finding)
        since_s = _SINCE.read(finding)
        self._since_s = since_s if isinstance(since_s, float) else finding.opened_s
        self._least_bytes = _HELD.read_count(finding) or 0

    def restart(self) -> None:
        """Forget everything but the open finding: what happened since is unknown."""
        if self.finding is None:
            self._since_s = None
        self._known_s = None
        self._relief.restart()
        self.absence.restart()

    def observe(self, node: str, device: DeviceSample, time_s: float, gap_s: float) -> Sequence[Finding]:
        self.absence.restart()
        used = device.memory.used_bytes
        total = device.memory.total_bytes
        busy = device.utilization_percent
        is_measured = busy is not None and math.isfinite(busy) and device.kind not in _OF_THE_HOST
        if used is None or not total or busy is None or not is_measured:
            return ()
        if self._known_s is not None and time_s - self._known_s > gap_s:
            self.restart()
        self._known_s = time_s
        is_busy = round(busy) > 0  # the history ring keeps whole percents
        if self.finding is None:
            return self._watch(node, device, time_s, is_idle=not is_busy and used >= HELD_SHARE * total)
        self._relief.observe(time_s, is_beyond=is_busy or used < RELIEVED_SHARE * total, is_back=False)
        if self.is_settled(time_s):
            return ()
        if self._relief.is_due:
            return self.close(time_s, "the device is computing again" if is_busy else "its memory was freed")
        return self._update(device, used, total, time_s)

    def is_forgotten(self, time_s: float, gap_s: float) -> bool:
        """Return whether nothing is open and its device was silent for longer than a gap."""
        return self.finding is None and (self._known_s is None or time_s - self._known_s > gap_s)

    def _watch(self, node: str, device: DeviceSample, time_s: float, *, is_idle: bool) -> Sequence[Finding]:
        used = device.memory.used_bytes or 0
        if not is_idle:
            self._since_s = None
            return ()
        if self._since_s is None:
            self._since_s = time_s
            self._least_bytes = used
        self._least_bytes = min(self._least_bytes, used)
        if time_s - self._since_s < IDLE_S:
            return ()
        opened = begin_finding(KIND, node, time_s, device_uuid=device.uuid)
        return self.state(self._restate(opened, device, time_s))

    def _update(self, device: DeviceSample, used: int, total: int, time_s: float) -> Sequence[Finding]:
        """Return the finding restated where the idle time doubled, or the held bytes changed by a step."""
        finding = self.finding
        since_s = self._since_s
        if finding is None or since_s is None:
            return ()
        stated_s = _IDLE.read(finding)
        held_before = _HELD.read_count(finding)
        is_longer = isinstance(stated_s, float) and time_s - since_s >= 2 * stated_s
        is_other = held_before is not None and abs(used - held_before) >= UPDATE_SHARE * total
        if not (is_longer or is_other) or self._relief.is_asked:
            return ()
        self._least_bytes = used if is_other else self._least_bytes
        return self.state(self._restate(finding, device, time_s))

    def _restate(self, finding: Finding, device: DeviceSample, time_s: float) -> Finding:
        since_s = self._since_s if self._since_s is not None else finding.opened_s
        idle_s = time_s - since_s
        held = format_bytes(self._least_bytes)
        name = name_device(device)
        return restate(
            finding,
            time_s,
            device=device.label,
            title=f"{held} used on {name}, which has computed nothing for {format_age(idle_s)}",
            evidence=(
                _HELD(self._least_bytes),
                CAPACITY(device.memory.total_bytes),
                _SINCE(since_s),
                _IDLE(idle_s),
            ),
            method=_METHOD,
            advice=_ADVICE,
        )

    def close(self, time_s: float, because: str) -> tuple[Finding, ...]:
        self._since_s = None
        self._relief = Crossing()
        self.absence = Crossing()
        return super().close(time_s, because)


# What one device used over all samples seen of it: sums, peaks and the newest values.

_NOTHING = AllocatorReading()


class UsageSummary(msgspec.Struct, frozen=True, gc=False):
    """One device over the samples seen of it; None is unmeasured."""

    node: str
    device_uuid: str
    device: str
    device_index: int
    # Source of `allocated_bytes`: the allocator where any sample had one, else device used.
    memory_source: Literal["allocator", "device"] | None
    # Newest bytes of live tensors; device used where no allocator reports.
    allocated_bytes: int | None
    reserved_bytes: int | None
    # Newest device used.
    used_bytes: int | None
    free_bytes: int | None
    total_bytes: int | None
    # Most of what `allocated_bytes` counts.
    peak_bytes: int | None
    # When that was, in the samples' clock.
    peak_s: float | None
    # Most device used within any tick.
    peak_used_bytes: int | None
    # Mean of what `allocated_bytes` counts, each sample counted once.
    average_bytes: float | None
    # Newest device used, or what is known of it, as a share of the capacity.
    utilization_percent: float | None
    average_utilization_percent: float | None
    max_utilization_percent: float | None
    # Newest share of time in which the device computed.
    busy_percent: float | None
    average_busy_percent: float | None
    # Capacity less the most that was used.
    headroom_bytes: int | None
    samples: int
    first_s: float
    last_s: float


class DeviceUsage:
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
        """Count one sample in which the device is well, in order of time."""
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
    __slots__ = ("_sum", "count", "most", "most_s", "newest")

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self.newest: float | None = None
        self.most: float | None = None
        self.most_s: float | None = None

    def add(self, value: float, most: float, time_s: float) -> None:
        self.count += 1
        self._sum += value
        self.newest = value
        if self.most is None or most > self.most:
            self.most = most
            self.most_s = time_s

    @property
    def average(self) -> float | None:
        return self._sum / self.count if self.count else None


# Usage of every device: its sum over time, and memory that nobody computes with.

# Reports ask for the first (`summaries`); the second opens a finding, whose rules are in `docs/verdicts.md`.

# Devices that are remembered; where a script makes modelled ones without end the oldest go first.
MOST_DEVICES = 4096

_Key = tuple[str, str]


class UsageAnalyzer:
    """Adds up the usage of devices, and opens one finding per device that is held and idle."""

    name = "usage"

    def __init__(self) -> None:
        self._clocks = NodeClocks()
        self._usage: dict[_Key, DeviceUsage] = {}
        self._idle: dict[_Key, IdleTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        node = sample.node
        passage = self._clocks.note(sample)
        if passage is Passage.LATE:
            return ()
        if passage is not Passage.NEXT:
            for key, track in self._idle.items():
                if key[0] == node:
                    track.restart()
        found = [finding for device in sample.devices for finding in self._observe_device(sample, device)]
        present = sum((node, device.uuid) in self._idle for device in sample.devices if device.state == "ok")
        if len(self._idle) > present:
            found.extend(self._observe_absent(sample))
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of this kind; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind == KIND and finding.is_open and finding.device_uuid is not None:
                track = self._idle[finding.node, finding.device_uuid] = IdleTrack()
                track.adopt(finding)

    def summaries(self) -> tuple[UsageSummary, ...]:
        """Return one summary for each device that was ever well, in the order they were first seen."""
        return tuple(usage.summarize() for usage in self._usage.values())

    def _observe_device(self, sample: Sample, device: DeviceSample) -> Sequence[Finding]:
        if device.state != "ok":
            return ()
        key = (sample.node, device.uuid)
        usage = self._usage.get(key)
        if usage is None:
            usage = self._usage[key] = DeviceUsage(sample.node, device, sample.time_s)
            while len(self._usage) > MOST_DEVICES:
                del self._usage[next(iter(self._usage))]
        usage.add(device, sample.time_s)
        if device.utilization_percent is None and key not in self._idle:
            return ()
        track = self._idle.get(key)
        if track is None:
            track = self._idle[key] = IdleTrack()
        return track.observe(sample.node, device, sample.time_s, find_gap_s(sample.interval_s))

    def _observe_absent(self, sample: Sample) -> Iterator[Finding]:
        states = {device.uuid: device.state for device in sample.devices}
        for key in [key for key in self._idle if key[0] == sample.node]:
            state = states.get(key[1])
            if state in ("ok", "stale", "unsupported"):
                continue
            yield from self._idle[key].observe_absence(sample.time_s, is_lost=state == "lost")
            if self._idle[key].is_forgotten(sample.time_s, find_gap_s(sample.interval_s)):
                del self._idle[key]
