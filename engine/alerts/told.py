"""Of which findings people were told: a hub that is started again beside them does not tell them twice."""

from collections.abc import Iterable

import msgspec

from ..model import SEVERITIES, Finding, Severity
from .crossings import Crossing

MAX_TOLD = 200
"""Findings that are remembered; those that closed go first, then the oldest."""


class ToldFinding(msgspec.Struct, frozen=True):
    """One finding that crossed a line."""

    finding_id: str
    kind: str
    node: str
    device_uuid: str | None
    gravest: Severity
    is_closed: bool = False

    def is_like(self, finding: Finding) -> bool:
        """Return whether a finding is of the same kind and device."""
        return (finding.kind, finding.node, finding.device_uuid) == (self.kind, self.node, self.device_uuid)


class ToldFindings:
    """What this hub has told, and what its predecessor had told and left open."""

    def __init__(self) -> None:
        self._told: dict[str, ToldFinding] = {}
        self._predecessors: list[ToldFinding] = []

    @property
    def all(self) -> tuple[ToldFinding, ...]:
        """Everything that the next hub shall know, oldest first."""
        return tuple(self._told.values())

    @property
    def has_open(self) -> bool:
        """Whether any of it has not closed."""
        return any(not told.is_closed for told in self._told.values())

    def load(self, kept: Iterable[ToldFinding], *, is_recent: bool) -> None:
        """Take over what a hub left.

        Args:
            kept: What it had told.
            is_recent: Whether it ended so lately that what was open then may be going on.
        """
        self._told = {told.finding_id: told for told in kept}
        if is_recent:
            still_open = [told for told in self._told.values() if not told.is_closed]
            self._predecessors = sorted(still_open, key=lambda told: -SEVERITIES.index(told.gravest))

    def note(self, crossing: Crossing) -> None:
        """Remember one crossing."""
        finding = crossing.finding
        self._told[finding.id] = ToldFinding(
            finding.id,
            finding.kind,
            finding.node,
            finding.device_uuid,
            crossing.gravest,
            is_closed=not finding.is_open,
        )
        while len(self._told) > MAX_TOLD:
            closed = (told.finding_id for told in self._told.values() if told.is_closed)
            del self._told[next(closed, next(iter(self._told)))]

    def take_predecessor(self, finding: Finding, *, is_known: bool) -> ToldFinding | None:
        """Return what was told before a restart of a finding that is met now; each has one successor.

        Args:
            finding: The finding.
            is_known: Whether one of its id was told: it succeeds itself or nobody.
        """
        found = next(
            (
                told
                for told in self._predecessors
                if told.finding_id == finding.id or (not is_known and told.is_like(finding))
            ),
            None,
        )
        if found is not None:
            self._predecessors.remove(found)
            self._told.pop(found.finding_id, None)
            self._told[finding.id] = msgspec.structs.replace(found, finding_id=finding.id)
        return found

    def forget_predecessors(self) -> None:
        """Take nothing for a successor any more: what was open then and did not come again has ended."""
        for told in self._predecessors:
            self._told.pop(told.finding_id, None)
        self._predecessors.clear()
