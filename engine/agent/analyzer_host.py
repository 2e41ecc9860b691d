"""Runs analyzers; one that fails is set aside. Knows no socket, so that any process can host them."""

import math
from collections.abc import Sequence

from ..model import Analyzer, Annotator, Assessment, Assessor, Finding, Sample


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
