"""Analyzers side by side, as a worker hosts them: findings, forecasts, readings of fragmentation."""

from typing import TypeVar

from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.model import Assessment, Finding, Sample
from vramscope.engine.plugins import make_analyzers

AnalyzerT = TypeVar("AnalyzerT")


class Conclusions:
    """Every analyzer of this installation, fed with the same samples."""

    def __init__(self) -> None:
        plugins = make_analyzers()
        self._analyzers = list(plugins.made)
        self._host = AnalyzerHost(self._analyzers)
        self._plugin_notes = tuple(plugins.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why an analyzer could not be loaded, or was set aside."""
        return self._plugin_notes if self._host.reason is None else (*self._plugin_notes, self._host.reason)

    def observe(self, sample: Sample) -> list[Finding]:
        """Feed one sample; return what was found."""
        return self._host.observe(sample)

    def assess(self) -> list[Assessment]:
        """Return the forecasts that changed since this was last asked."""
        return self._host.assess()

    def find(self, kind: type[AnalyzerT]) -> AnalyzerT | None:
        """Return the analyzer of a class, while it runs."""
        names = self._host.names
        found = (it for it in self._analyzers if isinstance(it, kind) and it.name in names)
        return next(found, None)
