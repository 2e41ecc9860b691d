"""What is said of the samples that play: found again by the analyzers, or as it was said then."""

import copy
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from ..agent.analyzer_host import AnalyzerHost
from ..model import Analyzer, Assessment, Finding, Sample
from ..recording import Told
from ..wire.assessments import AssessmentStore
from ..wire.findings import FindingStore


class Verdicts(Protocol):
    """Follows samples in order of time."""

    def observe(self, sample: Sample) -> list[Finding]:
        """Take the next sample and return the findings that are new or changed."""
        ...

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings as of the newest sample: open ones, and some that closed."""
        ...

    def assessments(self) -> tuple[Assessment, ...]:
        """Return how near each process is to running out of memory."""
        ...

    def copy(self) -> "Verdicts | None":
        """Return others that go on from here by themselves; None where that cannot be."""
        ...


class FoundVerdicts:
    """Verdicts of fresh analyzers, as a worker would tell them.

    Args:
        analyzers: Fresh ones.
        before: Findings that were open before the first sample, handed on as by a worker to its successor.
    """

    def __init__(self, analyzers: Sequence[Analyzer], before: Sequence[Finding] = ()) -> None:
        self._host = AnalyzerHost(analyzers)
        self._findings = FindingStore()
        self._assessments = AssessmentStore()
        if before:
            self._host.restore(before)
            self._findings.merge(before)

    @property
    def reason(self) -> str | None:
        """Why an analyzer was set aside."""
        return self._host.reason

    def observe(self, sample: Sample) -> list[Finding]:
        """Take the next sample and return the findings that are new or changed."""
        changed = self._findings.merge(self._host.observe(sample))
        self._assessments.merge(self._host.assess())
        self._assessments.observe(sample)
        return changed

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings as of the newest sample: open ones, and some that closed."""
        return self._findings.all()

    def assessments(self) -> tuple[Assessment, ...]:
        """Return how near each process is to running out of memory."""
        return self._assessments.all()

    def copy(self) -> "FoundVerdicts | None":
        """Return others that go on from here by themselves; None where an analyzer cannot be copied."""
        try:
            return copy.deepcopy(self)
        except Exception:  # noqa: BLE001 - an analyzer of somebody else: the window before a moment is fed anew
            return None


class RecordedVerdicts:
    """Verdicts as they were said when the samples were recorded.

    Args:
        told: What was said, in order of time.
    """

    def __init__(self, told: Sequence[Told]) -> None:
        self._told = told
        self._times_s = [it.time_s for it in told]
        self._heard = 0
        self._findings = FindingStore()
        self._assessments: tuple[Assessment, ...] = ()

    def observe(self, sample: Sample) -> list[Finding]:
        """Take the next sample: what was said up to its time counts; return what is new or changed."""
        changed: list[Finding] = []
        until = bisect_right(self._times_s, sample.time_s)
        for told in self._told[self._heard : until]:
            changed += self._findings.merge(told.findings)
            if told.assessments is not None:
                self._assessments = told.assessments
        self._heard = max(self._heard, until)
        return changed

    def findings(self) -> tuple[Finding, ...]:
        """Return the findings as of the newest sample: open ones, and some that closed."""
        return self._findings.all()

    def assessments(self) -> tuple[Assessment, ...]:
        """Return how near each process is to running out of memory."""
        return self._assessments

    def copy(self) -> "RecordedVerdicts":
        """Return others that go on from here by themselves."""
        other = copy.copy(self)
        other._findings = copy.deepcopy(self._findings)
        return other
