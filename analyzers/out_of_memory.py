"""Out-of-memory errors that were met, and refusals of the device that come before them: facts, no forecast.

A process counts both since its start (`num_ooms`, `num_alloc_retries` of PyTorch's allocator); here it
matters that a number rises. The rules stand in `docs/verdicts.md`.
"""

from collections.abc import Iterator, Sequence

import msgspec

from ..engine.model import DeviceSample, Evidence, Finding, RankSample, Sample
from ..engine.model.finding import FOLLOWED_BY, is_last_word
from .finding_evidence import read_process
from .out_of_memory_track import KINDS, CountTrack, Sighting

_Key = tuple[str, int, float | None]


class OutOfMemoryAnalyzer:
    """Open one finding per process and kind when its count rises; close it once that is long past."""

    name = "out_of_memory"

    def __init__(self) -> None:
        self._tracks: dict[_Key, CountTrack] = {}
        self._last_words: dict[str, Finding] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed."""
        found = [*self._observe_present(sample), *self._observe_absent(sample)]
        self._last_words.update((finding.id, finding) for finding in found if is_last_word(finding))
        return [*found, *self._observe_followers(sample)]

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of these kinds."""
        for finding in findings:
            pid, started_s = read_process(finding)
            if finding.kind in KINDS and finding.is_open and pid is not None:
                track = self._tracks.setdefault((finding.node, pid, started_s), CountTrack())
                track.adopt(finding)

    def _observe_present(self, sample: Sample) -> Iterator[Finding]:
        devices = {device.uuid: device for device in sample.devices}
        for rank in sample.ranks:
            if rank.allocator is None:
                continue
            track = self._tracks.setdefault((sample.node, *_identity(rank)), CountTrack())
            yield from track.observe(_sight(sample, rank, devices.get(rank.device_uuid or "")))

    def _observe_absent(self, sample: Sample) -> Iterator[Finding]:
        present = {_identity(rank) for rank in sample.ranks if rank.allocator is not None}
        for key in [key for key in self._tracks if key[0] == sample.node and key[1:] not in present]:
            track = self._tracks[key]
            yield from track.observe_absence(sample.time_s)
            if not track.is_open:
                del self._tracks[key]

    def _observe_followers(self, sample: Sample) -> Iterator[Finding]:
        """Yield the findings about devices on which another process trains by now."""
        if not self._last_words and not any(track.is_open for track in self._tracks.values()):
            return
        labels = {device.uuid: device.label for device in sample.devices}
        living = [rank for rank in sample.ranks if rank.state != "ended"]
        known = {(sample.node, *_identity(rank)) for rank in living}
        dead = [track for key, track in self._tracks.items() if key[0] == sample.node and key not in known]
        for rank in living:
            label = labels.get(rank.device_uuid or "")
            for track in dead:
                if any(_follows(rank, label, finding) for finding in track.findings):
                    yield from track.give_way(rank.pid, sample.time_s)
            for finding in tuple(self._last_words.values()):
                if finding.node == sample.node and _follows(rank, label, finding):
                    del self._last_words[finding.id]
                    evidence = (*finding.evidence, Evidence(FOLLOWED_BY, rank.pid))
                    yield msgspec.structs.replace(finding, evidence=evidence)


def _follows(rank: RankSample, label: str | None, finding: Finding) -> bool:
    """Return whether a process began after an error, on the device of that or on one of the same name."""
    is_there = finding.device_uuid == rank.device_uuid or (label is not None and finding.device == label)
    return is_there and (rank.started_s is None or rank.started_s > finding.opened_s)


def _identity(rank: RankSample) -> tuple[int, float | None]:
    return rank.pid, rank.started_s


def _sight(sample: Sample, rank: RankSample, device: DeviceSample | None) -> Sighting:
    return Sighting(
        sample.node,
        sample.time_s,
        sample.interval_s,
        rank,
        None if device is None else device.label,
        None if device is None else device.step,
    )
