"""Thresholds set by the user: a device that crosses one is reported at once, whatever forecasts say.

The user's number decides, so there is no dwell on the way up. On the way down a crossing ends when usage has
stayed some points below the threshold for a while: a device that swings around it is one crossing.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..engine.model import DeviceSample, Evidence, Finding, Sample, Severity
from ..engine.units import format_bytes, format_gib
from .findings.evidence import CAPACITY, LIVE, EvidenceKey
from .findings.lifecycle import DWELL_S, Crossing, OpenFinding, begin_finding, restate
from .findings.subjects import Holdings, measure_holdings, name_device

KIND = "threshold"

# Percentage points below a threshold at which a crossing may end.
BACK_POINTS = 2.0
# Percentage points by which the peak must rise to publish again.
UPDATE_POINTS = 0.1


_PEAK = EvidenceKey("peak", "bytes")
_THRESHOLD = EvidenceKey("threshold", "%")
_CRITICAL_THRESHOLD = EvidenceKey("critical threshold", "%")
_CACHE = EvidenceKey("cache", "bytes")
_STRANDED = EvidenceKey("stranded", "bytes")


class _Level(NamedTuple):
    """The most that was used on a device within one tick."""

    taken_bytes: int
    total_bytes: int

    @property
    def percent(self) -> float:
        return 100.0 * self.taken_bytes / self.total_bytes


class UsageThresholdAnalyzer:
    """Opens one finding per device and crossing; it becomes critical at the second threshold.

    Args:
        warning_percent: Share of the device's memory from which the finding is open.
        critical_percent: Share from which it is critical.
    """

    name = KIND

    def __init__(self, warning_percent: float, critical_percent: float) -> None:
        self._thresholds = warning_percent, critical_percent
        self._tracks: dict[str, _Track] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Return the findings that a sample opened, updated or closed."""
        found: list[Finding] = []
        for device in sample.devices:
            track = self._tracks.get(device.uuid)
            if track is None:
                track = self._tracks[device.uuid] = _Track(*self._thresholds)
            found += track.observe(sample, device)
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Do nothing: the thresholds belong to one watch, and no other process knows them."""


class _Track(OpenFinding):
    def __init__(self, warning_percent: float, critical_percent: float) -> None:
        super().__init__()
        self._thresholds = warning_percent, critical_percent
        self._above = Crossing(), Crossing()
        self._peak: _Level | None = None

    def observe(self, sample: Sample, device: DeviceSample) -> Sequence[Finding]:
        if device.state in ("lost", "ended"):
            return self.close(sample.time_s, "the device was lost" if device.state == "lost" else "it ended")
        level = _read_level(device)
        if level is None:
            return ()
        was_critical = self._above[1].is_active
        for crossing, threshold in zip(self._above, self._thresholds, strict=True):
            _update_crossing(crossing, sample.time_s, level.percent, threshold)
        if not self._above[0].is_active:
            return self.close(
                sample.time_s,
                f"usage stayed below {self._thresholds[0] - BACK_POINTS:g} % for {DWELL_S:.0f} s",
            )
        is_news = self.finding is None or self._above[1].is_active != was_critical
        if is_news or self._peak is None or level.percent >= self._peak.percent + UPDATE_POINTS:
            self._peak = level if is_news or self._peak is None else max(level, self._peak)
            return self.state(self._restate(sample, device, self._peak))
        return ()

    def close(self, time_s: float, because: str) -> tuple[Finding, ...]:
        self._peak = None
        return super().close(time_s, because)

    def _restate(self, sample: Sample, device: DeviceSample, peak: _Level) -> Finding:
        warning, critical = self._thresholds
        is_critical = self._above[1].is_active
        severity: Severity = "critical" if is_critical else "medium"
        holdings = measure_holdings(sample, device)
        known = self.finding or begin_finding(
            KIND, sample.node, sample.time_s, device_uuid=device.uuid, device=device.label
        )
        which = f"critical threshold of {critical:g} %" if is_critical else f"threshold of {warning:g} %"
        return restate(
            known,
            sample.time_s,
            severity=severity,
            title=(
                f"{name_device(device)} at {peak.percent:.1f} % of its memory, above the {which}: "
                f"{format_gib(peak.taken_bytes)} of {format_gib(peak.total_bytes)} GiB"
            ),
            evidence=_list_evidence(peak, warning, critical, holdings),
            method="The maximum used within each sample, compared with the given thresholds",
            advice=_advise(peak, holdings),
        )


def _update_crossing(crossing: Crossing, time_s: float, percent: float, threshold: float) -> None:
    """Begin a crossing with the first sample above; end it after a dwell below."""
    back = threshold - min(BACK_POINTS, 0.5 * threshold)
    crossing.observe(time_s, is_beyond=percent >= threshold, is_back=percent < back)
    if crossing.is_due if crossing.is_active else crossing.is_asked:
        crossing.flip()


def _read_level(device: DeviceSample) -> _Level | None:
    """Return what is compared with the total: device used, else reserved, else live bytes."""
    memory = device.memory
    allocator = device.allocator
    if device.state != "ok" or not memory.total_bytes:
        return None
    taken: list[int | None] = [memory.used_max_bytes, memory.used_bytes]
    if allocator is not None and memory.used_bytes is None:
        if allocator.reserved_bytes is not None:
            taken.append(allocator.reserved_bytes)
        else:
            taken += [allocator.allocated_bytes, allocator.allocated_max_bytes]
    known = [value for value in taken if value is not None]
    return _Level(max(known), memory.total_bytes) if known else None


def _list_evidence(
    peak: _Level, warning: float, critical: float, holdings: Holdings | None
) -> tuple[Evidence, ...]:
    evidence = (
        _PEAK(peak.taken_bytes),
        CAPACITY(peak.total_bytes),
        _THRESHOLD(warning),
        _CRITICAL_THRESHOLD(critical),
    )
    if holdings is None:
        return evidence
    return (
        *evidence,
        LIVE(holdings.live_bytes),
        _CACHE(holdings.cache_bytes),
        _STRANDED(holdings.stranded_bytes),
    )


def _advise(peak: _Level, holdings: Holdings | None) -> str:
    if holdings is not None:
        return f"In use: {holdings.words}. {holdings.advise(peak.total_bytes)}"
    return (
        f"{format_bytes(peak.total_bytes - peak.taken_bytes)} is left. Lower the micro-batch or end "
        "other processes on the device; start the job with `vramscope run` to see how much of it is "
        "only cache"
    )
