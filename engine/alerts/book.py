"""The hub's book of alerts: what crossed a line, what people decided, what became of each finding."""

from collections import deque
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..clock import Clock, SystemClock
from ..model import Finding
from .crossings import Crossing, CrossingLog
from .keeping import Keeper
from .kept import KeptDecisions, load_decisions
from .state import Acknowledgement, AlertState, FindingChange, Mute, MuteScope
from .told import ToldFindings

HOUR_S = 3600.0
HEIR_WITHIN_S = 600.0
"""What opens within this time of a hub's start is taken for what was open when the last one ended, if that
was no longer ago either."""
SAVE_INTERVAL_S = 300.0
"""How often a hub says that it is there, where it has decisions to hand on."""
MAX_DECISIONS = 200
MAX_CHANGES = 500

Decision = Acknowledgement | Mute


class AlertBook:
    """Keeps decisions and changes of one hub.

    Args:
        path: File in which decisions outlive the hub; None to keep them no longer than it.
        clock: Injected in tests.
    """

    def __init__(self, path: Path | None = None, clock: Clock | None = None) -> None:
        self._unread: str | None = None
        self._path, self._clock = path, clock or SystemClock()
        self._keeper = None if path is None else Keeper(path)
        self._crossings = CrossingLog()
        self._acknowledged: list[Acknowledgement] = []
        self._mutes: list[Mute] = []
        self._changes: deque[FindingChange] = deque(maxlen=MAX_CHANGES)
        self._newest: dict[str, Finding] = {}
        self._heirless: list[Decision] = []
        self._told = ToldFindings()
        self._started_s = self._saved_s = self._clock.monotonic_s()
        self._load()
        self.state = self._make_state()

    @property
    def reason(self) -> str | None:
        """Why decisions are not kept, in one sentence."""
        return self._unread or (None if self._keeper is None else self._keeper.reason)

    def take(self, findings: Iterable[Finding]) -> list[Crossing]:
        """Note findings that opened, changed or closed; return the crossings to tell of."""
        told: list[Crossing] = []
        before = self._told.all
        for finding in findings:
            is_heir = self._succeed(finding)
            crossings = self._crossings.note([finding])
            for crossing in crossings:
                self._told.note(crossing)
                told += self._note(crossing)
            self._follow(finding, is_crossing=is_heir or bool(crossings))
        self.state = self._make_state()
        if self._told.all != before:
            self.save()
        return told

    def acknowledge(self, finding: Finding, time_s: float) -> None:
        """Note that somebody takes care of a finding."""
        if not self.state.is_acknowledged(finding):
            self._acknowledged.append(
                Acknowledgement(finding.id, finding.kind, finding.node, finding.device_uuid, time_s)
            )
            self._conclude(finding, time_s, "acknowledged")

    def mute(self, finding: Finding, scope: MuteScope, time_s: float) -> None:
        """Tell nobody of this kind of finding on this device, for as long as `scope` says."""
        self._mutes = [mute for mute in self._mutes if not mute.is_about(finding)]
        self._mutes.append(
            Mute(
                finding.kind,
                finding.node,
                finding.device_uuid,
                time_s,
                finding_id=finding.id if scope == "open" else None,
                until_s=self._clock.wall_s() + HOUR_S if scope == "hour" else None,
            )
        )
        words = {"hour": "for an hour", "open": "until it closes", "always": "for good"}
        self._conclude(finding, time_s, f"muted {words[scope]}")

    def release(self, finding: Finding, time_s: float) -> None:
        """Take back what was decided about a finding: it is neither acknowledged nor muted."""
        if self.state.is_silent(finding):
            self._acknowledged = [found for found in self._acknowledged if found.finding_id != finding.id]
            self._mutes = [mute for mute in self._mutes if not mute.is_about(finding)]
            self._conclude(finding, time_s, "no longer acknowledged or muted")

    def expire(self) -> bool:
        """Drop mutes whose time is up; return whether there were any. Call it every second or so."""
        now_s = self._clock.wall_s()
        left = [mute for mute in self._mutes if mute.until_s is None or mute.until_s > now_s]
        has_expired = len(left) < len(self._mutes)
        if has_expired:
            self._mutes = left
            self.state = self._make_state()
            self.save()
        elif self._clock.monotonic_s() - self._saved_s >= SAVE_INTERVAL_S and self._has_news_of_itself():
            self.save()
        return has_expired

    def save(self) -> None:
        """Write decisions for the next hub; why that fails is in `reason`."""
        self._saved_s = self._clock.monotonic_s()
        if self._path is None or self._keeper is None:
            return
        decisions = self._list_decisions()
        if not decisions and not self._told.all and not self._path.exists():
            return
        kept = KeptDecisions(
            seen_s=self._clock.wall_s(),
            acknowledged=tuple(found for found in decisions if isinstance(found, Acknowledgement)),
            mutes=tuple(found for found in decisions if isinstance(found, Mute)),
            told=self._told.all,
        )
        self._keeper.keep(kept)
        self._unread = None

    def _load(self) -> None:
        """Take over what the last hub left; of what was about one finding, only what it may meet again."""
        if self._path is None:
            return
        try:
            kept = load_decisions(self._path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            self._unread = f"what was acknowledged and muted could not be read: {self._path}: {why}"
            return
        now_s = self._clock.wall_s()
        mutes = [mute for mute in kept.mutes if mute.until_s is None or mute.until_s > now_s]
        self._mutes = [mute for mute in mutes if mute.finding_id is None]
        is_recent = 0 <= now_s - kept.seen_s <= HEIR_WITHIN_S
        self._told.load(kept.told, is_recent=is_recent)
        for told in kept.told:
            self._crossings.remember(told.finding_id, told.gravest, is_closed=told.is_closed)
        if is_recent:
            self._heirless = [*kept.acknowledged, *(mute for mute in mutes if mute.finding_id is not None)]

    def _follow(self, finding: Finding, *, is_crossing: bool) -> None:
        """Write down a severity that crosses nothing; leave out what a restarted worker tells of the past."""
        before = self._newest.get(finding.id)
        if (before is None and not is_crossing) or (before and finding.updated_s < before.updated_s):
            return
        if before is not None and not is_crossing and finding.severity != before.severity:
            self._write(finding, finding.updated_s, f"now {finding.severity}", finding.title)
        if finding.is_open:
            self._newest[finding.id] = finding

    def _note(self, crossing: Crossing) -> list[Crossing]:
        """Write a crossing down; return it if it is to be told."""
        event, finding, _ = crossing
        if event == "opened":
            self._adopt(finding)
            self._write(finding, finding.opened_s, f"opened, {finding.severity}", finding.title)
        elif event == "raised":
            self._write(finding, finding.updated_s, f"raised to {finding.severity}", finding.title)
        state = self._make_state()
        # Who was told of a finding is told of its end, be it acknowledged or not.
        is_silent = state.mute_of(finding) is not None if event == "closed" else state.is_silent(finding)
        if event == "closed":
            self._close(finding)
        return [] if is_silent else [crossing]

    def _close(self, finding: Finding) -> None:
        self._write(finding, finding.closed_s or finding.updated_s, "closed", finding.title)
        self._newest.pop(finding.id, None)
        if any(mute.finding_id == finding.id for mute in self._mutes):
            self._mutes = [mute for mute in self._mutes if mute.finding_id != finding.id]
            self.save()

    def _succeed(self, finding: Finding) -> bool:
        """Let a finding go on as one that was told before a restart; return whether it is one.

        The hub's past is gone with it, so that what goes on opens anew, later and under another id.
        """
        self._forget_heirless()
        before = self._told.take_predecessor(finding, is_known=finding.id in self._crossings)
        if before is None:
            return False
        self._crossings.remember(finding.id, before.gravest)
        self._adopt(finding)
        what = f"goes on after a restart of the agent, {finding.severity}"
        self._write(finding, finding.opened_s, what, finding.title)
        return True

    def _forget_heirless(self) -> None:
        if self._clock.monotonic_s() - self._started_s > HEIR_WITHIN_S:
            self._heirless.clear()
            self._told.forget_predecessors()

    def _adopt(self, finding: Finding) -> None:
        """Let a finding that just opened inherit what was decided about the same one before a restart."""
        key = (finding.kind, finding.node, finding.device_uuid)
        for decision in [d for d in self._heirless if (d.kind, d.node, d.device_uuid) == key]:
            self._heirless.remove(decision)
            adopted = msgspec.structs.replace(decision, finding_id=finding.id)
            if isinstance(adopted, Mute):
                self._mutes.append(adopted)
            else:
                self._acknowledged.append(adopted)

    def _write(self, finding: Finding, time_s: float, what: str, title: str = "") -> None:
        last = next((c for c in reversed(self._changes) if c.finding_id == finding.id and c.title), None)
        is_news = last is None or last.title != title
        told = title if is_news else ""
        self._changes.append(FindingChange(finding.id, time_s, what, told, finding.device_uuid))

    def _conclude(self, finding: Finding, time_s: float, what: str) -> None:
        self._write(finding, time_s, what)
        self._acknowledged = self._acknowledged[-MAX_DECISIONS:]
        self._mutes = self._mutes[-MAX_DECISIONS:]
        self.state = self._make_state()
        self.save()

    def _has_news_of_itself(self) -> bool:
        """Return whether the next hub must know that this one is there: it has something to hand on."""
        return bool(self._list_decisions()) or self._told.has_open

    def _list_decisions(self) -> list[Decision]:
        """Return what the next hub shall know: what is about findings that are open, and lasting mutes."""
        known = [found for found in self._acknowledged if found.finding_id in self._newest]
        return [*known, *self._mutes, *self._heirless]

    def _make_state(self) -> AlertState:
        return AlertState(tuple(self._acknowledged), tuple(self._mutes), tuple(self._changes))
