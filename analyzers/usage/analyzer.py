"""Usage of every device: what it comes to over time, and memory that nobody computes with.

The first is asked for by reports (`summaries`); the second opens a finding, whose rules stand in
`docs/verdicts.md`.
"""

from collections.abc import Iterator, Sequence

from ...engine.model import DeviceSample, Finding, Sample
from ..sample_clock import GAP_S, GAP_TICKS, Passage, SampleClock
from .idle_track import KIND, IdleTrack
from .summary import DeviceUsage, UsageSummary

MOST_DEVICES = 4096
"""Devices that are remembered; of a script that makes modelled ones without end the oldest go first."""

_Key = tuple[str, str]


class UsageAnalyzer:
    """Adds up what devices use, and opens one finding per device that is held and idle."""

    name = "usage"

    def __init__(self) -> None:
        self._clocks: dict[str, SampleClock] = {}
        self._usage: dict[_Key, DeviceUsage] = {}
        self._idle: dict[_Key, IdleTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed."""
        node = sample.node
        clock = self._clocks.get(node)
        if clock is None:
            clock = self._clocks[node] = SampleClock()
        passage = clock.note(sample.time_s, sample.interval_s)
        if passage is Passage.LATE:
            return ()
        if passage is not Passage.NEXT:
            self._start_anew(node)
        found = [finding for device in sample.devices for finding in self._observe_device(sample, device)]
        present = sum((node, device.uuid) in self._idle for device in sample.devices if device.state == "ok")
        if len(self._idle) > present:
            found.extend(self._observe_absent(sample))
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of this kind; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind == KIND and finding.is_open and finding.device_uuid is not None:
                self._idle[finding.node, finding.device_uuid] = IdleTrack.adopt(finding)

    def summaries(self) -> tuple[UsageSummary, ...]:
        """Return one summary for each device that was ever well, in the order they were first seen."""
        return tuple(usage.summarize() for usage in self._usage.values())

    def _observe_device(self, sample: Sample, device: DeviceSample) -> Iterator[Finding]:
        if device.state != "ok":
            return
        key = (sample.node, device.uuid)
        usage = self._usage.get(key)
        if usage is None:
            usage = self._usage[key] = DeviceUsage(sample.node, device, sample.time_s)
            self._bound()
        usage.add(device, sample.time_s)
        if device.utilization_percent is None and key not in self._idle:
            return
        track = self._idle.get(key)
        if track is None:
            track = self._idle[key] = IdleTrack()
        finding = track.observe(sample.node, device, sample.time_s, _gap_of(sample))
        if finding is not None:
            yield finding

    def _observe_absent(self, sample: Sample) -> Iterator[Finding]:
        states = {device.uuid: device.state for device in sample.devices}
        for key in [key for key in self._idle if key[0] == sample.node]:
            state = states.get(key[1])
            if state in ("ok", "stale", "unsupported"):
                continue
            finding = self._idle[key].observe_absence(sample.time_s, is_lost=state == "lost")
            if finding is not None:
                yield finding
            if self._idle[key].is_forgotten(sample.time_s, _gap_of(sample)):
                del self._idle[key]

    def _start_anew(self, node: str) -> None:
        for key, track in self._idle.items():
            if key[0] == node:
                track.start_anew()

    def _bound(self) -> None:
        while len(self._usage) > MOST_DEVICES:
            del self._usage[next(iter(self._usage))]


def _gap_of(sample: Sample) -> float:
    return max(GAP_S, GAP_TICKS * sample.interval_s)
