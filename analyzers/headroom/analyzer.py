"""The largest step that would fit, for every process that tells the sizes of its steps.

It opens no findings: it adds an estimate to the assessment of the process. Sizes are not kept in the ring of
history, so that a worker that was restarted learns them anew; nothing is decided by them.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from ...engine.model import Assessment, Finding, HeadroomEstimate, Sample, StepReading
from ..subjects import Subject, SubjectKey, subjects_of
from ..visible_change import is_visible
from .advisor import HeadroomAdvisor
from .points import StepSize

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


EVERY_S = 10.0
"""Between two estimates, once many sizes are known."""
FEW_SIZES = 8
"""Sizes up to which each new one brings an estimate at once."""
KEPT_LIMITS = 32
KEPT_EXACT = 256
WARM_UP_STEPS = 1
"""Steps of a process that are left out: optimizers make their state in the first."""
MOST_USED = 0.95
"""Most of the limit that counts as sure to be of use: the last segment must fit whole."""
SEEN_SHARE = 0.02
"""Change of a figure, as a share, that a person would see."""


class HeadroomTrack:
    """Takes the steps of one process and adds an estimate to its assessment."""

    def __init__(self) -> None:
        self.seen_s = 0.0
        self._advisors = (HeadroomAdvisor("tokens"), HeadroomAdvisor("samples"))
        self._newest_index = 0
        self._exact: deque[int] = deque(maxlen=KEPT_EXACT)
        """Numbers of the newest steps with exact peaks, which are told more than once."""
        self._sizes: set[tuple[int | None, int | None]] = set()
        self._limits: deque[int] = deque(maxlen=KEPT_LIMITS)
        self._estimated_s = float("-inf")
        self._is_due = False
        self._most_allocated = self._most_reserved = 0
        self._told: tuple[HeadroomEstimate, ...] = ()
        self._assessment: Assessment | None = None

    def observe(self, subject: Subject, steps: Sequence[StepReading]) -> None:
        """Take the steps of one tick whose size was told."""
        self.seen_s = subject.sample.time_s
        limit_bytes = subject.limit_bytes
        if limit_bytes is not None:
            self._limits.append(limit_bytes)
        allocator = subject.allocator
        self._most_allocated = max(self._most_allocated, allocator.allocated_max_bytes or 0)
        self._most_reserved = max(self._most_reserved, allocator.reserved_bytes or 0)
        for step in steps:
            if step.index not in self._exact and (step.is_peak_exact or step.index > self._newest_index):
                self._take(step)
        if steps:
            self._newest_index = max(self._newest_index, *(step.index for step in steps))

    def annotate(self, assessment: Assessment) -> Assessment:
        """Return the assessment of this process with the estimate."""
        self._assessment = assessment
        self._estimate()
        return msgspec.structs.replace(assessment, headroom=self._told)

    def take_changed(self) -> Assessment | None:
        """Return the newest assessment with another estimate than was told; None where nothing changed."""
        return None if self._assessment is None or not self._estimate() else self.annotate(self._assessment)

    def _take(self, step: StepReading) -> None:
        if step.peak_bytes is None or step.index <= WARM_UP_STEPS:
            return
        self._most_allocated = max(self._most_allocated, step.peak_bytes)
        if step.is_peak_exact:
            self._exact.append(step.index)
        for advisor, size in zip(self._advisors, (step.tokens, step.batch), strict=True):
            if size:
                add = advisor.add if step.index > self._newest_index else advisor.add_older
                add(StepSize(size, step.peak_bytes, step.floor_bytes, step.is_peak_exact))
        if len(self._sizes) < FEW_SIZES and (step.tokens, step.batch) not in self._sizes:
            self._sizes.add((step.tokens, step.batch))
            self._estimated_s = float("-inf")
        self._is_due = True

    def _estimate(self) -> bool:
        """Estimate anew where that is due; return whether a person would see a difference."""
        known = self._assessment
        is_early = 0.0 <= self.seen_s - self._estimated_s < EVERY_S
        if known is None or not self._is_due or is_early or not self._limits:
            return False
        self._is_due = False
        self._estimated_s = self.seen_s
        ceiling_bytes = min(self._limits)
        limit_bytes = min(ceiling_bytes, known.capacity_bytes or ceiling_bytes)
        found = tuple(
            advisor.estimate(limit_bytes, utilization=self._find_utilization(), ceiling_bytes=ceiling_bytes)
            for advisor in self._advisors
            if advisor.has_steps
        )
        is_other = len(found) != len(self._told) or any(map(_is_other, self._told, found))
        if is_other:
            self._told = found
        return is_other

    def _find_utilization(self) -> float:
        """Return the share of reserved bytes that are of use to a peak, as far as is sure.

        Segments are larger than what lies in them, by how much changes with every size. What was kept from
        other sizes would be given back first; nobody tells how much that is, and so it counts as lost.
        """
        if not self._most_reserved:
            return MOST_USED
        return min(MOST_USED, self._most_allocated / self._most_reserved)


def _is_other(told: HeadroomEstimate, newest: HeadroomEstimate) -> bool:
    if told.reason != newest.reason:
        return True
    pairs = (
        (told.largest_size, newest.largest_size),
        (told.too_large_size, newest.too_large_size),
        (told.per_unit_bytes, newest.per_unit_bytes),
        (told.limit_bytes, newest.limit_bytes),
        (told.largest_seen, newest.largest_seen),
    )
    return any(is_visible(before, after, SEEN_SHARE) for before, after in pairs)
