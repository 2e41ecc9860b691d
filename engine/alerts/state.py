"""Decisions of people about findings, and the history of each: the hub keeps it, every viewer sees it."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from ..model import SEVERITIES, Finding, Severity
from ..settings.model import AlertEvent, AlertSettings

# How long a kind of finding is muted on a device: an hour, until the finding closes, or for good.
MuteScope = Literal["hour", "open", "always"]


# `release` undoes the others.
DecisionVerb = Literal["acknowledge", "mute", "release"]


class FindingDecision(msgspec.Struct, frozen=True):
    verb: DecisionVerb
    finding_id: str
    # For `mute`.
    scope: MuteScope | None = None


class Acknowledgement(msgspec.Struct, frozen=True):
    """Acknowledgement of a finding: a person has seen it and deals with it."""

    finding_id: str
    kind: str
    node: str
    device_uuid: str | None
    # In the samples' own clock.
    time_s: float


class Mute(msgspec.Struct, frozen=True):
    """Nobody wants alerts of this kind of finding on this device."""

    kind: str
    node: str
    device_uuid: str | None
    # Since when, in the samples' own clock.
    time_s: float
    # The only finding that is meant: the mute ends with it. None for all of the kind.
    finding_id: str | None = None
    # When it ends, in seconds since the epoch; None for never.
    until_s: float | None = None

    def is_about(self, finding: Finding) -> bool:
        if self.finding_id is not None:
            return finding.id == self.finding_id
        return (finding.kind, finding.node, finding.device_uuid) == (self.kind, self.node, self.device_uuid)


class FindingChange(msgspec.Struct, frozen=True):
    finding_id: str
    # In the samples' own clock.
    time_s: float
    # Such as `opened, medium`, `raised to high`, `acknowledged`.
    what: str
    # The finding's sentence at that time, if it has changed.
    title: str = ""
    # Device of the finding.
    device_uuid: str | None = None


class AlertState(msgspec.Struct, frozen=True):
    """Everything the hub knows about findings except the findings themselves."""

    acknowledged: tuple[Acknowledgement, ...] = ()
    mutes: tuple[Mute, ...] = ()
    # Oldest first; those of findings long closed are forgotten.
    changes: tuple[FindingChange, ...] = ()

    def is_acknowledged(self, finding: Finding) -> bool:
        return any(found.finding_id == finding.id for found in self.acknowledged)

    def mute_of(self, finding: Finding) -> Mute | None:
        """Return the mute of a finding, the one that lasts longest, or None."""
        found = [mute for mute in self.mutes if mute.is_about(finding)]
        return max(found, key=_lasting, default=None)

    def is_silent(self, finding: Finding) -> bool:
        return self.is_acknowledged(finding) or self.mute_of(finding) is not None

    def changes_of(self, finding: Finding) -> list[FindingChange]:
        """Oldest first."""
        return [change for change in self.changes if change.finding_id == finding.id]


def count_muted(findings: Iterable[Finding], state: AlertState) -> int:
    """Count the findings that are open and muted."""
    return sum(finding.is_open and state.mute_of(finding) is not None for finding in findings)


def _lasting(mute: Mute) -> tuple[bool, bool, float]:
    """Sort key: a mute for good lasts longest, then the later end."""
    is_for_good = mute.finding_id is None and mute.until_s is None
    return is_for_good, mute.finding_id is not None, mute.until_s or 0.0


# Closed findings whose ids are kept, so that one that is reported again counts only once.
MAX_REMEMBERED = 2000


class Crossing(NamedTuple):
    event: AlertEvent
    finding: Finding
    # Highest severity so far, this time included.
    highest: Severity


class CrossingLog:
    """Knows which crossings have happened: a repeated report, by a restarted worker say, adds none."""

    def __init__(self) -> None:
        self._highest: dict[str, int] = {}
        self._closed: dict[str, None] = {}

    def __contains__(self, finding_id: str) -> bool:
        return finding_id in self._highest

    def remember(self, finding_id: str, highest: Severity, *, is_closed: bool = False) -> None:
        """Note a finding from before a restart with its highest severity."""
        self._highest[finding_id] = SEVERITIES.index(highest)
        if is_closed:
            self._closed[finding_id] = None

    def note(self, findings: Iterable[Finding]) -> list[Crossing]:
        """Return the crossings of findings that were opened, changed or closed, in their order."""
        crossings = [crossing for finding in findings for crossing in self._note(finding)]
        while len(self._closed) > MAX_REMEMBERED:
            oldest = next(iter(self._closed))
            del self._closed[oldest], self._highest[oldest]
        return crossings

    def _note(self, finding: Finding) -> list[Crossing]:
        if finding.id in self._closed:
            return []
        found: list[AlertEvent] = []
        before = self._highest.get(finding.id)
        rank = SEVERITIES.index(finding.severity)
        if before is None:
            found.append("opened")
        elif rank > before:
            found.append("raised")
        highest = max(rank, rank if before is None else before)
        self._highest[finding.id] = highest
        if not finding.is_open:
            found.append("closed")
            self._closed[finding.id] = None
        return [Crossing(event, finding, SEVERITIES[highest]) for event in found]


def is_wanted(crossing: Crossing, settings: AlertSettings) -> bool:
    """Return whether the settings ask for alerts of a crossing: its kind and the highest severity of the
    finding.
    """
    is_severe = SEVERITIES.index(crossing.highest) >= SEVERITIES.index(settings.level)
    return is_severe and (not settings.kinds or crossing.finding.kind in settings.kinds)
