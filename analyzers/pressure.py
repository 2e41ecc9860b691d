"""Device pressure: a device that stays nearly full, said with what device memory alone can tell.

A caching allocator fills the device in healthy jobs, so a full device is a fact and not an alarm: the
severity never exceeds `medium`. Thresholds and what they mean stand in `docs/verdicts.md`.
"""

from collections.abc import Iterator, Sequence

from ..engine.model import DeviceSample, Finding, Sample
from .pressure_track import KIND, PressureTrack

GAP_S = 5.0
"""Least seconds between two samples that count as a gap; ticks longer than that allow three and a half."""
GAP_TICKS = 3.5


class PressureAnalyzer:
    """Open one finding per device and crossing, update it when its figures change, close it when it ends."""

    name = KIND

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed."""
        return self._node(sample.node).observe(sample)

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of this kind; samples up to their last update change nothing about them."""
        for finding in sorted(findings, key=lambda finding: (finding.opened_s, finding.updated_s)):
            if finding.kind == KIND and finding.is_open and finding.device_uuid is not None:
                self._node(finding.node).tracks[finding.device_uuid] = PressureTrack.adopt(finding)

    def _node(self, node: str) -> "_NodeTrack":
        return self._nodes.setdefault(node, _NodeTrack(node))


class _NodeTrack:
    """The devices of one node, and the time of its newest sample."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._newest_s: float | None = None
        self.tracks: dict[str, PressureTrack] = {}

    def observe(self, sample: Sample) -> list[Finding]:
        gap_s = max(GAP_S, GAP_TICKS * sample.interval_s)
        if not self._accept(sample.time_s, gap_s):
            return []
        present = [device for device in sample.devices if device.state not in ("lost", "ended")]
        found = [*self._observe_present(sample, present, gap_s)]
        absent = self.tracks.keys() - {device.uuid for device in present}
        return [*found, *self._observe_absent(sample, sorted(absent), gap_s)] if absent else found

    def _accept(self, time_s: float, gap_s: float) -> bool:
        """Return whether a sample is newer than all before; a clock that was set back starts anew."""
        newest_s = self._newest_s
        if newest_s is not None and newest_s - gap_s <= time_s <= newest_s:
            return False
        if newest_s is not None and time_s < newest_s:
            for track in self.tracks.values():
                track.start_anew()
        self._newest_s = time_s
        return True

    def _observe_present(
        self, sample: Sample, present: Sequence[DeviceSample], gap_s: float
    ) -> Iterator[Finding]:
        for device in present:
            track = self.tracks.get(device.uuid)
            if track is None:
                track = self.tracks[device.uuid] = PressureTrack()
            finding = track.observe(sample, device, gap_s)
            if finding is not None:
                yield finding

    def _observe_absent(self, sample: Sample, absent: Sequence[str], gap_s: float) -> Iterator[Finding]:
        lost = {device.uuid for device in sample.devices if device.state == "lost"}
        for uuid in absent:
            track = self.tracks[uuid]
            finding = track.observe_absence(sample.time_s, gap_s, is_lost=uuid in lost)
            if finding is not None:
                yield finding
            if track.finding is None:
                del self.tracks[uuid]
