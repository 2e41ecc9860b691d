"""Device pressure: a device that stays nearly full, judged by device memory alone.

A caching allocator fills the device in healthy jobs, so a full device is a fact and not an alarm: the
severity never exceeds `medium`. A server of models fills it on purpose, and so does JAX where it preallocates
all of it: there it is not even a fact worth a word. `docs/verdicts.md` explains the thresholds.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..engine.model import DeviceSample, Finding, MemoryReading, Sample, Severity
from ..engine.units import MIB, format_bytes, format_gib, format_share
from .findings.evidence import CAPACITY, LIVE, EvidenceKey
from .findings.lifecycle import (
    DWELL_S,
    Crossing,
    CrossingTrack,
    DeviceTracks,
    begin_finding,
    find_gap_s,
    restate,
)
from .findings.subjects import Holdings, measure_holdings, name_device
from .serving_places import is_served

KIND = "pressure"

# Share of the capacity from which a device is nearly full.
FULL_SHARE = 0.95
# Share of the capacity below which it no longer is.
RELIEVED_SHARE = 0.92
# A CUDA context or a set of NCCL buffers needs this order of memory and is not served from any cache.
SCARCE_FREE_SHARE = 0.01
SCARCE_FREE_BYTES = 256 * MIB
SCARCE_END_FACTOR = 1.5
# Share of the capacity by which the peak must rise, or else what is free must halve, to publish again.
UPDATE_SHARE = 0.01

_PEAK = EvidenceKey("peak device used", "bytes")
_FREE = EvidenceKey("least free", "bytes")
_SINCE = EvidenceKey("nearly full since", "s")


class _Level(NamedTuple):
    """Device used (the most within the tick) of one sample, the capacity, and what was free then."""

    used_bytes: int
    total_bytes: int
    # Less than the rest of the capacity where the driver reserves some of it.
    free_bytes: int

    @property
    def is_full(self) -> bool:
        return self.used_bytes >= FULL_SHARE * self.total_bytes or self.free_bytes < SCARCE_FREE_BYTES

    @property
    def is_relieved(self) -> bool:
        is_below = self.used_bytes < RELIEVED_SHARE * self.total_bytes
        return is_below and self.free_bytes >= SCARCE_END_FACTOR * SCARCE_FREE_BYTES

    @property
    def is_scarce(self) -> bool:
        return self.free_bytes < self._scarce_bytes

    @property
    def is_ample(self) -> bool:
        return self.free_bytes >= SCARCE_END_FACTOR * self._scarce_bytes

    @property
    def _scarce_bytes(self) -> float:
        return max(SCARCE_FREE_SHARE * self.total_bytes, SCARCE_FREE_BYTES)


class PressureTrack(CrossingTrack):
    """One device over the last samples, and its open finding, if any."""

    def __init__(self) -> None:
        super().__init__()
        self._full = Crossing()
        self._scarce = Crossing()
        self._peak = _Level(0, 0, 0)

    @property
    def crossings(self) -> tuple[Crossing, ...]:
        return self._full, self._scarce

    def adopt(self, finding: Finding) -> None:
        super().adopt(finding)
        self._full = Crossing(is_active=True)
        self._scarce = Crossing(is_active=finding.severity != "low")
        self._peak = _Level(*(key.read_count(finding) or 0 for key in (_PEAK, CAPACITY, _FREE)))

    def observe(self, sample: Sample, device: DeviceSample, gap_s: float) -> Sequence[Finding]:
        self.absence.restart()
        level = _read_level(device)
        if level is None:
            return ()
        time_s = sample.time_s
        self.note_time(time_s, gap_s)
        was_asked = self._full.is_asked
        if _is_filled_on_purpose(sample, device):
            self._full.observe(time_s, is_beyond=False, is_back=True)
            self._scarce.observe(time_s, is_beyond=False, is_back=True)
        else:
            self._full.observe(time_s, is_beyond=level.is_full, is_back=level.is_relieved)
            self._scarce.observe(time_s, is_beyond=level.is_scarce, is_back=level.is_ample)
        # An adopted finding has its peak as of its last update; the ring may reach to before that peak began.
        if self.is_settled(time_s):
            return ()
        self._note_peak(level, is_new=self.finding is None and not was_asked)
        return self._conclude(sample, device, level)

    def _note_peak(self, level: _Level, *, is_new: bool) -> None:
        peak = self._peak
        if is_new or level.total_bytes != peak.total_bytes:
            self._peak = level
        else:
            used_bytes = max(peak.used_bytes, level.used_bytes)
            self._peak = _Level(used_bytes, peak.total_bytes, min(peak.free_bytes, level.free_bytes))

    def _conclude(self, sample: Sample, device: DeviceSample, level: _Level) -> Sequence[Finding]:
        time_s = sample.time_s
        # A finding states how little is free, so its severity may not lag behind that, nor the other way
        # round.
        is_stated = self.finding is not None or self._full.is_due
        if not self._scarce.is_active and is_stated and (level if self.finding else self._peak).is_scarce:
            self._scarce.flip()
        elif self._scarce.is_due:
            self._scarce.flip()
            if not self._scarce.is_active:
                self._peak = level
        if self._full.is_due:
            since_s = self._full.asked_since_s
            self._full.flip()
            if self._full.is_active:
                opened = begin_finding(
                    KIND, sample.node, time_s, device_uuid=device.uuid, evidence=(_SINCE(since_s),)
                )
                return self.state(self._restate(opened, sample, device))
            if is_served(sample, device):
                return self.close(time_s, "a server of models fills the device on purpose")
            if _is_filled_on_purpose(sample, device):
                return self.close(time_s, "JAX preallocates the device on purpose")
            return self.close(
                time_s, f"device used stayed below {format_share(RELIEVED_SHARE)} of the capacity"
            )
        return self._update(sample, device)

    def _update(self, sample: Sample, device: DeviceSample) -> Sequence[Finding]:
        """Return the finding restated where its severity, its capacity or, by a whole step, its peak changed.

        Also where a probe begins or ceases to report what fills the device.
        """
        finding = self.finding
        peak = self._peak
        if finding is None:
            return ()
        free_bytes = _FREE.read_count(finding) or 0
        is_changed = (
            finding.severity != self._severity
            or peak.total_bytes != (CAPACITY.read_count(finding) or 0)
            or peak.used_bytes - (_PEAK.read_count(finding) or 0) >= UPDATE_SHARE * peak.total_bytes
            or (0 < free_bytes >= 2 * peak.free_bytes)
            or (measure_holdings(sample, device) is None)
            == any(it.name == LIVE.name for it in finding.evidence)
        )
        return self.state(self._restate(finding, sample, device)) if is_changed else ()

    def close(self, time_s: float, because: str) -> tuple[Finding, ...]:
        self._full = Crossing()
        self._scarce = Crossing()
        self.absence = Crossing()
        self.settled_until_s = None
        return super().close(time_s, because)

    @property
    def _severity(self) -> Severity:
        return "medium" if self._scarce.is_active else "low"

    def _restate(self, finding: Finding, sample: Sample, device: DeviceSample) -> Finding:
        peak = self._peak
        holdings = measure_holdings(sample, device)
        known = () if holdings is None else (LIVE(holdings.live_bytes),)
        return restate(
            finding,
            sample.time_s,
            device=device.label,
            severity=self._severity,
            title=(
                f"{name_device(device)} nearly full: "
                f"{format_gib(peak.used_bytes)} of {format_gib(peak.total_bytes)} GiB used "
                f"and {format_bytes(peak.free_bytes)} free at its peak"
            ),
            evidence=(
                _PEAK(peak.used_bytes),
                CAPACITY(peak.total_bytes),
                _FREE(peak.free_bytes),
                *known,
                *(evidence for evidence in finding.evidence if evidence.name == _SINCE.name),
            ),
            method=_explain_method(device),
            advice=_advise(device, self._severity, holdings),
        )


def is_relieved(memory: MemoryReading) -> bool:
    """Return whether a device that was nearly full no longer is at this moment, by its present use."""
    if memory.used_bytes is None or not memory.total_bytes:
        return False
    free_bytes = _read_free(memory, memory.used_bytes)
    return _Level(memory.used_bytes, memory.total_bytes, free_bytes).is_relieved


def _is_filled_on_purpose(sample: Sample, device: DeviceSample) -> bool:
    if is_served(sample, device):
        return True
    # Less than that leaves room, so that somebody else has filled it.
    return any((it.preallocated_percent or 0.0) >= 100 * RELIEVED_SHARE for it in device.processes or ())


def _read_level(device: DeviceSample) -> _Level | None:
    """Return a device's level, or None where its values are stale, unmeasured or without a capacity."""
    memory = device.memory
    used_bytes = memory.used_max_bytes if memory.used_max_bytes is not None else memory.used_bytes
    if device.state != "ok" or used_bytes is None or not memory.total_bytes:
        return None
    return _Level(used_bytes, memory.total_bytes, _read_free(memory, used_bytes))


def _read_free(memory: MemoryReading, used_most_bytes: int) -> int:
    """Return what was free when the most was used: what the driver reserves changes only with the driver."""
    if memory.free_bytes is None or memory.used_bytes is None:
        return max(0, (memory.total_bytes or 0) - used_most_bytes)
    return max(0, memory.free_bytes + memory.used_bytes - used_most_bytes)


def _explain_method(device: DeviceSample) -> str:
    is_host = device.kind in ("unified", "cpu")
    subject = "Host memory in use" if is_host else "Device used, the most within each tick,"
    return (
        f"{subject} was at {format_share(FULL_SHARE)} of the capacity or more, or less than "
        f"{format_bytes(SCARCE_FREE_BYTES)} was free, in every sample of {DWELL_S:.0f} s"
    )


def _advise(device: DeviceSample, severity: Severity, holdings: Holdings | None) -> str:
    if device.kind == "cpu":
        return "The job trains in host memory: end other programs or lower the batch before the host swaps"
    if device.kind == "unified":
        return (
            "The device shares the host's memory: end other programs or lower the batch before the host swaps"
        )
    if holdings is not None:
        return f"In use: {holdings.words}. {holdings.advise(device.memory.total_bytes or 0)}"
    known = "Full is normal for a caching allocator; without allocator data, cache and need look the same"
    if severity == "low":
        return f"{known}. Leave room before starting another process on this device"
    return (
        f"{known}. With so little free memory a new CUDA context or NCCL communicator can fail: start "
        "nothing else on this device, or cap the cache with "
        "torch.cuda.set_per_process_memory_fraction(0.95)"
    )


class PressureAnalyzer:
    """Opens one finding per device and crossing, updates it when its values change, closes it when
    it ends.
    """

    name = KIND

    def __init__(self) -> None:
        self._tracks = DeviceTracks(PressureTrack)

    def observe(self, sample: Sample) -> Sequence[Finding]:
        if not self._tracks.accept(sample):
            return ()
        gap_s = find_gap_s(sample.interval_s)
        present = [device for device in sample.devices if device.state not in ("lost", "ended")]
        found: list[Finding] = []
        for device in present:
            found += self._tracks.see(sample.node, device.uuid).observe(sample, device, gap_s)
        if len(self._tracks) > len(present):
            lost = {device.uuid for device in sample.devices if device.state == "lost"}
            found += self._tracks.observe_absent(
                sample.node,
                {device.uuid for device in present},
                lambda uuid, track: track.note_absence(sample.time_s, gap_s, is_lost=uuid in lost),
            )
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        self._tracks.restore(findings, (KIND,))
