"""Analyzers side by side: one that fails is set aside. Knows no socket, so that any process can host them."""

from collections.abc import Sequence

from ..model import Analyzer, Finding, Sample


class AnalyzerHost:
    """Feeds analyzers; one that fails is set aside, and the others go on."""

    def __init__(self, analyzers: Sequence[Analyzer]) -> None:
        self._analyzers = list(analyzers)
        self._open: dict[str, Finding] = {}
        self.reason: str | None = None
        """Why an analyzer was set aside."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the analyzers that run."""
        return tuple(analyzer.name for analyzer in self._analyzers)

    @property
    def open_ids(self) -> tuple[str, ...]:
        """Ids of the findings that are open."""
        return tuple(self._open)

    def restore(self, findings: Sequence[Finding]) -> None:
        """Hand findings of a predecessor to the analyzers."""
        for analyzer in self._analyzers:
            analyzer.restore(findings)
        self._open.update({finding.id: finding for finding in findings})

    def observe(self, sample: Sample) -> list[Finding]:
        """Feed one sample to every analyzer and return what they found."""
        found: list[Finding] = []
        for analyzer in tuple(self._analyzers):
            try:
                found.extend(analyzer.observe(sample))
            except Exception as error:  # noqa: BLE001 - an analyzer's bug is told, and the others go on
                self._analyzers.remove(analyzer)
                self.reason = f"analyzer {analyzer.name} failed and was set aside: {error!r}"
        for finding in found:
            if finding.is_open:
                self._open[finding.id] = finding
            else:
                self._open.pop(finding.id, None)
        return found
