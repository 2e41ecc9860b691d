"""What people decided about findings, and what became of each: the hub keeps it, every viewer sees it."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from ..model import SEVERITIES, Finding, Severity
from ..settings.model import AlertEvent, AlertSettings

MuteScope = Literal["hour", "open", "always"]
"""How long a kind of finding is muted on a device: an hour, until the finding closes, or for good."""


DecisionVerb = Literal["acknowledge", "mute", "release"]
"""`release` takes the others back."""


class FindingDecision(msgspec.Struct, frozen=True):
    """What a person decided about a finding."""

    verb: DecisionVerb
    finding_id: str
    scope: MuteScope | None = None
    """For `mute`."""


class Acknowledgement(msgspec.Struct, frozen=True):
    """Somebody has seen a finding and takes care of it."""

    finding_id: str
    kind: str
    node: str
    device_uuid: str | None
    time_s: float
    """When, in the samples' own clock."""


class Mute(msgspec.Struct, frozen=True):
    """Nobody wants to be told of this kind of finding on this device."""

    kind: str
    node: str
    device_uuid: str | None
    time_s: float
    """Since when, in the samples' own clock."""
    finding_id: str | None = None
    """The only finding that is meant: it ends with that one. None for every one of the kind."""
    until_s: float | None = None
    """When it ends, in seconds since the epoch; None for never."""

    def is_about(self, finding: Finding) -> bool:
        if self.finding_id is not None:
            return finding.id == self.finding_id
        return (finding.kind, finding.node, finding.device_uuid) == (self.kind, self.node, self.device_uuid)


class FindingChange(msgspec.Struct, frozen=True):
    """One thing that happened to a finding."""

    finding_id: str
    time_s: float
    """In the samples' own clock."""
    what: str
    """Such as `opened, medium`, `raised to high`, `acknowledged`."""
    title: str = ""
    """The finding's sentence at that time, where it is another than before."""
    device_uuid: str | None = None
    """Of the device that the finding is on."""


class AlertState(msgspec.Struct, frozen=True):
    """Everything the hub knows of findings besides the findings themselves."""

    acknowledged: tuple[Acknowledgement, ...] = ()
    mutes: tuple[Mute, ...] = ()
    changes: tuple[FindingChange, ...] = ()
    """Oldest first; those of findings long closed are forgotten."""

    def is_acknowledged(self, finding: Finding) -> bool:
        """Return whether somebody has acknowledged a finding."""
        return any(found.finding_id == finding.id for found in self.acknowledged)

    def mute_of(self, finding: Finding) -> Mute | None:
        """Return what mutes a finding, the one that lasts longest; None where nothing does."""
        found = [mute for mute in self.mutes if mute.is_about(finding)]
        return max(found, key=_lasting, default=None)

    def is_silent(self, finding: Finding) -> bool:
        """Return whether nobody is to be told of a finding."""
        return self.is_acknowledged(finding) or self.mute_of(finding) is not None

    def changes_of(self, finding: Finding) -> list[FindingChange]:
        """Return what happened to a finding, oldest first."""
        return [change for change in self.changes if change.finding_id == finding.id]


def count_muted(findings: Iterable[Finding], state: AlertState) -> int:
    """Return how many of the findings are open and muted."""
    return sum(finding.is_open and state.mute_of(finding) is not None for finding in findings)


def _lasting(mute: Mute) -> tuple[bool, bool, float]:
    """Return by what mutes are compared: one for good lasts longest, then the later end."""
    is_for_good = mute.finding_id is None and mute.until_s is None
    return is_for_good, mute.finding_id is not None, mute.until_s or 0.0


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
