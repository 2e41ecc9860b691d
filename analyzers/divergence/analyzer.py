"""Divergence between ranks of one job: who grows first, and who is the straggler in memory.

Ranks of one pipeline stage do the same work on other data, so that their floors and peaks are alike. Stages
differ by nature and are not compared; where nobody tells the stages, growth is compared and levels are not.
"""

from collections.abc import Sequence

from ...engine.model import Finding, Sample
from ..finding_evidence import read_subject_key
from ..sample_clock import Passage, SampleClock
from ..subjects import SubjectKey
from .group import ABSENT_S, GONE, Group
from .member import Member
from .model import RankGroup
from .peers import GroupKey, find_peers, has_peers
from .words import KIND


class DivergenceAnalyzer:
    """Open one finding per rank that grows away from its peers, and per rank that limits them."""

    name = KIND

    def __init__(self) -> None:
        self._clocks: dict[str, SampleClock] = {}
        self._groups: dict[GroupKey, Group] = {}
        self._adopted: dict[SubjectKey, Member] = {}
        """Ranks on which a predecessor had something open, until their group is seen."""
        self._adopted_s: float | None = None

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed."""
        clock = self._clocks.get(sample.node)
        if clock is None:
            clock = self._clocks[sample.node] = SampleClock()
        passage = clock.note(sample.time_s, sample.interval_s)
        if passage is Passage.LATE:
            return ()
        if passage is not Passage.NEXT:
            self._start_anew(sample)
        found: list[Finding] = []
        if has_peers(sample):
            for key, told in find_peers(sample).items():
                if len(told) > 1 or key in self._groups:
                    found.extend(self._group(key).observe(told, sample.time_s))
        if self._groups or self._adopted:
            found.extend(self._forget_absent(sample))
        return found

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of this kind; samples up to their last update change nothing about them."""
        for finding in findings:
            if finding.kind != KIND or not finding.is_open:
                continue
            key = read_subject_key(finding)
            self._adopted.setdefault(key, Member()).adopt(finding)

    def groups(self) -> tuple[RankGroup, ...]:
        """Return the groups of which a block of time is over, with their ranks side by side."""
        described = (group.describe() for group in self._groups.values())
        return tuple(group for group in described if group is not None)

    def _group(self, key: GroupKey) -> Group:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key, self._adopted)
        return group

    def _forget_absent(self, sample: Sample) -> list[Finding]:
        now_s, found = sample.time_s, list[Finding]()
        for key in [key for key in self._groups if key[0] == sample.node]:
            if now_s - self._groups[key].seen_s >= max(ABSENT_S, 3 * sample.interval_s):
                found.extend(self._groups.pop(key).end(now_s))
        if self._adopted and self._adopted_s is None:
            self._adopted_s = now_s
        if self._adopted_s is not None and now_s - self._adopted_s >= max(ABSENT_S, 3 * sample.interval_s):
            for subject in [subject for subject in self._adopted if subject[0] == sample.node]:
                found.extend(self._adopted.pop(subject).end(now_s, GONE))
        return found

    def _start_anew(self, sample: Sample) -> None:
        for key, group in self._groups.items():
            if key[0] == sample.node:
                group.start_anew()
                group.seen_s = min(group.seen_s, sample.time_s)
