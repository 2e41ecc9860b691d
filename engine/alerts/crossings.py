"""Crossings: a finding that opened, became graver than ever, or closed; each is met once."""

from collections.abc import Iterable
from typing import NamedTuple

from ..model import SEVERITIES, Finding, Severity
from ..settings.alerts import AlertEvent, AlertSettings

MAX_REMEMBERED = 2000
"""Closed findings whose ids are kept, so that one that is reported again is met only once."""


class Crossing(NamedTuple):
    """One thing to tell of a finding."""

    event: AlertEvent
    finding: Finding
    gravest: Severity
    """The gravest it has been, this time included."""


class CrossingLog:
    """Knows which crossings were met: what is reported again, by a restarted worker say, adds none."""

    def __init__(self) -> None:
        self._gravest: dict[str, int] = {}
        self._closed: dict[str, None] = {}

    def __contains__(self, finding_id: str) -> bool:
        return finding_id in self._gravest

    def remember(self, finding_id: str, gravest: Severity, *, is_closed: bool = False) -> None:
        """Take a finding for met, as grave as it was; so it was before a restart."""
        self._gravest[finding_id] = SEVERITIES.index(gravest)
        if is_closed:
            self._closed[finding_id] = None

    def note(self, findings: Iterable[Finding]) -> list[Crossing]:
        """Return what findings that were opened, changed or closed crossed, in their order."""
        crossings = [crossing for finding in findings for crossing in self._note(finding)]
        self._forget()
        return crossings

    def _note(self, finding: Finding) -> list[Crossing]:
        if finding.id in self._closed:
            return []
        found: list[AlertEvent] = []
        before = self._gravest.get(finding.id)
        rank = SEVERITIES.index(finding.severity)
        if before is None:
            found.append("opened")
        elif rank > before:
            found.append("raised")
        gravest = max(rank, rank if before is None else before)
        self._gravest[finding.id] = gravest
        if not finding.is_open:
            found.append("closed")
            self._closed[finding.id] = None
        return [Crossing(event, finding, SEVERITIES[gravest]) for event in found]

    def _forget(self) -> None:
        while len(self._closed) > MAX_REMEMBERED:
            oldest = next(iter(self._closed))
            del self._closed[oldest], self._gravest[oldest]


def is_told(crossing: Crossing, settings: AlertSettings) -> bool:
    """Return whether the settings let a crossing be told: its kind and how grave the finding has been."""
    is_grave = SEVERITIES.index(crossing.gravest) >= SEVERITIES.index(settings.level)
    return is_grave and (not settings.kinds or crossing.finding.kind in settings.kinds)
