"""Out of memory ahead (`oom`), and an assessment of every subject.

The forecast joins a robust line through the floors with the empirical amplitudes of recent steps
(`hazard.py`, `tail.py`); thresholds and what they mean stand in `docs/verdicts.md`.
"""

from collections.abc import Iterator, Sequence

from ...engine.model import Assessment, Finding, Sample
from ..finding_evidence import read_subject_key
from ..subjects import Subject, SubjectKey, subjects_of
from .track import OomTrack
from .wording import KIND

ABSENT_S = 10.0
"""Seconds for which a subject must not be listed before its finding closes; longer ticks allow more."""
ABSENT_TICKS = 3.5


class OomAnalyzer:
    """Open one finding per subject when an error is foreseen; say of each how near it is."""

    name = KIND

    def __init__(self) -> None:
        self._tracks: dict[SubjectKey, OomTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed."""
        found: list[Finding] = []
        for subject in subjects_of(sample):
            found += self._track(subject).observe(subject)
        found += self._observe_absent(sample)
        return found

    def assess(self) -> Sequence[Assessment]:
        """Return the assessments that changed, as a person would see it, since this was last asked."""
        changed = [track.take_assessment() for track in self._tracks.values()]
        return [assessment for assessment in changed if assessment is not None]

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of this kind; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind == KIND and finding.is_open:
                self._tracks.setdefault(read_subject_key(finding), OomTrack()).adopt(finding)

    def _track(self, subject: Subject) -> OomTrack:
        track = self._tracks.get(subject.key)
        if track is None:
            track = self._tracks[subject.key] = OomTrack()
        track.seen_s = subject.sample.time_s
        return track

    def _observe_absent(self, sample: Sample) -> Iterator[Finding]:
        absent_s = max(ABSENT_S, ABSENT_TICKS * sample.interval_s)
        late = [
            key
            for key, track in self._tracks.items()
            if key[0] == sample.node and abs(sample.time_s - track.seen_s) >= absent_s
        ]
        listed = _listed(sample) if late else set()
        for key in late:
            if key not in listed:
                yield from self._tracks.pop(key).end(sample.time_s)


def _listed(sample: Sample) -> set[SubjectKey]:
    """Return the subjects that are listed and have not ended, though nothing new may be known of them."""
    devices: set[SubjectKey] = {
        (sample.node, device.uuid, None, None)
        for device in sample.devices
        if device.state not in ("lost", "ended")
    }
    ranks: set[SubjectKey] = {
        (sample.node, rank.device_uuid or "", rank.pid, rank.started_s)
        for rank in sample.ranks
        if rank.state != "ended"
    }
    return devices | ranks
