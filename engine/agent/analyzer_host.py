"""Runs analyzers and inquirers; one that fails is set aside. Knows no socket: any process can host them."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..model import Analyzer, Annotator, Assessment, Assessor, Finding, Sample, SegmentMap
from ..model.finding import Inquirer, Inquiry


class AnalyzerHost:
    """Feeds analyzers; one that fails is set aside, and the others go on."""

    def __init__(self, analyzers: Sequence[Analyzer]) -> None:
        self._analyzers = list(analyzers)
        self._assessors = [analyzer for analyzer in analyzers if isinstance(analyzer, Assessor)]
        self._annotators = [analyzer for analyzer in analyzers if isinstance(analyzer, Annotator)]
        self._open: dict[str, Finding] = {}
        self._found_by: dict[str, str] = {}
        self.reason: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(analyzer.name for analyzer in self._analyzers)

    @property
    def open_ids(self) -> tuple[str, ...]:
        return tuple(self._open)

    @property
    def is_assessor(self) -> bool:
        return bool(self._assessors)

    def restore(self, findings: Sequence[Finding]) -> None:
        for analyzer in tuple(self._analyzers):
            try:
                analyzer.restore(findings)
            except Exception as error:  # noqa: BLE001 - an analyzer's bug is reported, and the others go on
                self._set_aside(analyzer, error)
        self._open.update({finding.id: finding for finding in findings})

    def observe(self, sample: Sample) -> list[Finding]:
        """Feed one sample to every analyzer and return what they found.

        A sample without a finite time cannot be ordered: no analyzer gets it.
        """
        if not math.isfinite(sample.time_s):
            return []
        found: list[Finding] = []
        for analyzer in tuple(self._analyzers):
            try:
                its = analyzer.observe(sample)
            except Exception as error:  # noqa: BLE001 - an analyzer's bug is reported, and the others go on
                self._set_aside(analyzer, error)
            else:
                for finding in its:
                    found.append(finding)
                    self._found_by[finding.id] = analyzer.name
        for finding in found:
            if finding.is_open:
                self._open[finding.id] = finding
            else:
                self._open.pop(finding.id, None)
        return found

    def name_finder(self, finding_id: str) -> str:
        """Return the analyzer of a finding; "" if it was only restored, or is forgotten."""
        return self._found_by.get(finding_id, "")

    def forget_closed(self) -> None:
        self._found_by = {it: name for it, name in self._found_by.items() if it in self._open}

    def assess(self) -> list[Assessment]:
        """Return the assessments that changed since the last call."""
        changed: list[Assessment] = []
        for analyzer in [analyzer for analyzer in self._assessors if analyzer in self._analyzers]:
            try:
                changed.extend(analyzer.assess())
            except Exception as error:  # noqa: BLE001 - an analyzer's bug is reported, and the others go on
                self._set_aside(analyzer, error)
        for annotator in [analyzer for analyzer in self._annotators if analyzer in self._analyzers]:
            try:
                changed = list(annotator.annotate(changed))
            except Exception as error:  # noqa: BLE001 - an analyzer's bug is reported, and the others go on
                self._set_aside(annotator, error)
        return changed

    def _set_aside(self, analyzer: Analyzer, error: Exception) -> None:
        self._analyzers.remove(analyzer)
        self.reason = f"analyzer {analyzer.name} failed and was stopped: {error!r}"


T = TypeVar("T")
# Questions that wait to be sent; the newest are dropped beyond.
MOST_INQUIRIES = 64


class CloserLook:
    """Passes findings to inquirers, which enrich them before anybody sees them."""

    def __init__(self, inquirers: Sequence[Inquirer]) -> None:
        self._inquirers = list(inquirers)
        self._open: dict[str, Finding] = {}
        self._inquiries: list[Inquiry] = []
        # Why an inquirer was set aside.
        self.reason: str | None = None

    def restore(self, findings: Sequence[Finding]) -> None:
        for inquirer in tuple(self._inquirers):
            self._try(inquirer, lambda it: it.restore(findings), None)
        self._open.update((finding.id, finding) for finding in findings if finding.is_open)

    def follow(self, sample: Sample, findings: Sequence[Finding]) -> list[Finding]:
        """Return the findings of a sample, enriched."""
        for inquirer in tuple(self._inquirers):
            nothing: Sequence[Inquiry] = ()
            asked = self._try(inquirer, lambda it: it.follow(sample, findings), nothing)
            self._inquiries += asked[: MOST_INQUIRIES - len(self._inquiries)]
        for finding in findings:
            if finding.is_open:
                self._open[finding.id] = finding
            else:
                self._open.pop(finding.id, None)
        return [self._enrich(finding) for finding in findings]

    def take_inquiries(self) -> list[Inquiry]:
        """Return what should be asked, each once."""
        inquiries = self._inquiries
        self._inquiries = []
        return inquiries

    def awaits_map(self, node: str, pid: int) -> bool:
        return any(
            self._try(inquirer, lambda it: it.awaits_map(node, pid), False)
            for inquirer in tuple(self._inquirers)
        )

    def take_map(self, segment_map: SegmentMap) -> list[Finding]:
        """Pass a map on; return the open findings that it enriched."""
        before = {finding.id: self._enrich(finding) for finding in self._open.values()}
        for inquirer in tuple(self._inquirers):
            self._try(inquirer, lambda it: it.take_map(segment_map), None)
        after = [self._enrich(finding) for finding in self._open.values()]
        return [finding for finding in after if finding != before[finding.id]]

    def _enrich(self, finding: Finding) -> Finding:
        for inquirer in tuple(self._inquirers):
            finding = self._try(inquirer, lambda it, known=finding: it.enrich(known), finding)  # type: ignore[misc]
        return finding

    def _try(self, inquirer: Inquirer, act: Callable[[Inquirer], T], otherwise: T) -> T:
        try:
            return act(inquirer)
        except Exception as error:  # noqa: BLE001 - an inquirer's bug is reported, and the findings go on without it
            self._inquirers.remove(inquirer)
            self.reason = f"inquirer {inquirer.name} failed and was stopped: {error!r}"
            return otherwise
