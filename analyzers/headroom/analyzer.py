"""The largest step that would fit, for every process that tells the sizes of its steps.

It opens no findings: it adds an estimate to the assessment of the process. Sizes are not kept in the ring of
history, so that a worker that was restarted learns them anew; nothing is decided by them.
"""

from collections.abc import Sequence

from ...engine.model import Assessment, Finding, Sample
from ..subjects import SubjectKey, subjects_of
from .track import HeadroomTrack

FORGOTTEN_AFTER_S = 60.0
"""Seconds for which a process must not be listed before its steps are forgotten."""


class HeadroomAnalyzer:
    """Adds to assessments what steps of different sizes say."""

    name = "headroom"

    def __init__(self) -> None:
        self._tracks: dict[SubjectKey, HeadroomTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take the steps of a sample; there is never a finding."""
        if self._tracks or any(rank.sized_steps for rank in sample.ranks):
            self._observe_ranks(sample)
        return ()

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt nothing: there are no findings of this kind."""

    def annotate(self, changed: Sequence[Assessment]) -> Sequence[Assessment]:
        """Return assessments with estimates, and those whose estimate alone has changed.

        Args:
            changed: Assessments that changed since this was last asked.
        """
        if not self._tracks:
            return changed
        told: list[Assessment] = []
        keys = set()
        for assessment in changed:
            key = (
                assessment.node,
                assessment.device_uuid or "",
                assessment.pid,
                assessment.started_s,
            )
            track = self._tracks.get(key)
            told.append(assessment if track is None else track.annotate(assessment))
            keys.add(key)
        renewed = [track.take_changed() for key, track in self._tracks.items() if key not in keys]
        return [*told, *(assessment for assessment in renewed if assessment is not None)]

    def _observe_ranks(self, sample: Sample) -> None:
        for subject in subjects_of(sample):
            steps = () if subject.rank is None else subject.rank.sized_steps
            track = self._tracks.get(subject.key)
            if track is None and steps:
                track = self._tracks[subject.key] = HeadroomTrack()
            if track is not None:
                track.observe(subject, steps)
        for key in list(self._tracks):
            age_s = sample.time_s - self._tracks[key].seen_s
            if key[0] == sample.node and not 0.0 <= age_s < FORGOTTEN_AFTER_S:
                del self._tracks[key]
