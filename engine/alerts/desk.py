"""The hub's desk for alerts: notes findings, sends alerts to hooks, carries out people's decisions."""

import os
import threading
import zlib
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from ..clock import Clock, SystemClock
from ..files.base.output_file import replacing
from ..model import SEVERITIES, Finding, HookStatus, Severity
from ..settings import AlertSettings
from .delivery import Delivery
from .state import (
    Acknowledgement,
    AlertState,
    Crossing,
    CrossingLog,
    FindingChange,
    FindingDecision,
    Mute,
    MuteScope,
)

# Findings in memory; those that closed go first, then the oldest.
MAX_TOLD = 200


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
    """The alerts of this hub, and those of its predecessor that are still open."""

    def __init__(self) -> None:
        self._by_id: dict[str, ToldFinding] = {}
        self._predecessors: list[ToldFinding] = []

    @property
    def all(self) -> tuple[ToldFinding, ...]:
        """Everything that the next hub needs, oldest first."""
        return tuple(self._by_id.values())

    @property
    def has_open(self) -> bool:
        return any(not alerted.is_closed for alerted in self._by_id.values())

    def load(self, kept: Iterable[ToldFinding], *, is_recent: bool) -> None:
        """Load what a hub left. `is_recent`: it ended so lately that what was open may be going on."""
        self._by_id = {alerted.finding_id: alerted for alerted in kept}
        if is_recent:
            still_open = [alerted for alerted in self._by_id.values() if not alerted.is_closed]
            self._predecessors = sorted(still_open, key=lambda alerted: -SEVERITIES.index(alerted.gravest))

    def note(self, crossing: Crossing) -> None:
        finding = crossing.finding
        self._by_id[finding.id] = ToldFinding(
            finding.id,
            finding.kind,
            finding.node,
            finding.device_uuid,
            crossing.highest,
            is_closed=not finding.is_open,
        )
        while len(self._by_id) > MAX_TOLD:
            closed = (alerted.finding_id for alerted in self._by_id.values() if alerted.is_closed)
            del self._by_id[next(closed, next(iter(self._by_id)))]

    def take_predecessor(self, finding: Finding, *, is_known: bool) -> ToldFinding | None:
        """Return the alert before a restart of a finding that appears now; each has one successor.

        Args:
            is_known: There was an alert with its id: it succeeds itself or nobody.
        """
        found = next(
            (
                alerted
                for alerted in self._predecessors
                if alerted.finding_id == finding.id or (not is_known and alerted.is_like(finding))
            ),
            None,
        )
        if found is not None:
            self._predecessors.remove(found)
            self._by_id.pop(found.finding_id, None)
            self._by_id[finding.id] = msgspec.structs.replace(found, finding_id=finding.id)
        return found

    def forget_predecessors(self) -> None:
        """Stop looking for successors: what was open then and did not come again has ended."""
        for alerted in self._predecessors:
            self._by_id.pop(alerted.finding_id, None)
        self._predecessors.clear()


MAX_FILE_BYTES = 1 << 20


class KeptDecisions(msgspec.Struct, frozen=True):
    """What a hub leaves to its successor."""

    schema: Literal["vramscope.alert-decisions/1"] = "vramscope.alert-decisions/1"
    # When the hub was last there, in seconds since the epoch.
    seen_s: float = 0.0
    acknowledged: tuple[Acknowledgement, ...] = ()
    mutes: tuple[Mute, ...] = ()
    # Its alerts, oldest first.
    told: tuple[ToldFinding, ...] = ()


def decisions_file(state_dir: Path, node: str, runtime_dir: Path) -> Path:
    """Return the file of one hub: homes are shared between nodes, and a node may have several hubs."""
    name = "".join(character if character.isalnum() or character in "-_" else "_" for character in node)
    return state_dir / f"alerts-{name}-{zlib.crc32(os.fsencode(runtime_dir)):08x}.json"


def load_decisions(path: Path) -> KeptDecisions:
    """Load what a hub left; an empty object without a file.

    Raises:
        ValueError: It is not what a hub writes.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return KeptDecisions()
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"longer than {MAX_FILE_BYTES} bytes")
    return msgspec.json.decode(data, type=KeptDecisions)


def save_decisions(path: Path, kept: KeptDecisions) -> None:
    """Write what the next hub needs, in one step."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path) as stream:
        stream.write(msgspec.json.encode(kept))


class AlertDesk:
    """Book and hooks of one hub."""

    def __init__(
        self,
        settings: AlertSettings | None = None,
        *,
        version: str = "",
        path: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._book = AlertBook(path, clock)
        self._delivery = Delivery(settings or AlertSettings(), version, clock=clock)

    @property
    def state(self) -> AlertState:
        """Decisions of people, and the history of each finding."""
        return self._book.state

    @property
    def hooks(self) -> tuple[HookStatus, ...]:
        return self._delivery.status()

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self._book.reason is None else (self._book.reason,)

    def take(self, findings: Iterable[Finding]) -> None:
        """Note findings that opened, changed or closed, and alert the hooks of crossings."""
        self._delivery.put(self._book.take(findings))

    def decide(self, decision: FindingDecision, finding: Finding | None, time_s: float) -> str | None:
        """Carry out what a person decided; return why that cannot be done, or None.

        Args:
            finding: The finding it is about; None if the hub does not know its id.
        """
        if finding is None:
            return "unknown finding: it closed long ago or belonged to another agent"
        if decision.verb == "acknowledge":
            self._book.acknowledge(finding, time_s)
        elif decision.verb == "release":
            self._book.release(finding, time_s)
        elif decision.scope is None:
            return "no mute time was given"
        elif decision.scope == "open" and not finding.is_open:
            return "that finding has already closed"
        else:
            self._book.mute(finding, decision.scope, time_s)
        return None

    def poll(self) -> None:
        """Continue deliveries; returns at once."""
        self._delivery.poll()

    def expire(self) -> None:
        """Drop mutes whose time is up; call it every second or so."""
        self._book.expire()

    def finish(self, timeout_s: float) -> str | None:
        """Save decisions and send what waits; return what was left undone in one sentence, or None."""
        self._book.save()
        return self._delivery.finish(timeout_s)


HOUR_S = 3600.0
# A finding that opens within this time of a hub's start counts as one that was open when the last hub ended,
# if that was no longer ago either.
HEIR_WITHIN_S = 600.0
# Between two saves of the hub's time, if it has decisions to leave.
SAVE_INTERVAL_S = 300.0
MAX_DECISIONS = 200
MAX_CHANGES = 500

Decision = Acknowledgement | Mute


class AlertBook:
    """Keeps decisions and changes of one hub.

    Args:
        path: File in which decisions outlive the hub; None to keep them no longer.
    """

    def __init__(self, path: Path | None = None, clock: Clock | None = None) -> None:
        self._unread: str | None = None
        self._path = path
        self._clock = clock or SystemClock()
        self._keeper = None if path is None else Keeper(path)
        self._crossings = CrossingLog()
        self._acknowledged: list[Acknowledgement] = []
        self._mutes: list[Mute] = []
        self._changes: deque[FindingChange] = deque(maxlen=MAX_CHANGES)
        self._newest: dict[str, Finding] = {}
        self._heirless: list[Decision] = []
        self._alerted = ToldFindings()
        self._started_s = self._saved_s = self._clock.monotonic_s()
        self._load()
        self.state = self._make_state()

    @property
    def reason(self) -> str | None:
        """Why decisions are not saved, in one sentence."""
        return self._unread or (None if self._keeper is None else self._keeper.reason)

    def take(self, findings: Iterable[Finding]) -> list[Crossing]:
        """Note findings that opened, changed or closed; return the crossings to alert of."""
        to_send: list[Crossing] = []
        before = self._alerted.all
        for finding in findings:
            is_heir = self._succeed(finding)
            crossings = self._crossings.note([finding])
            for crossing in crossings:
                self._alerted.note(crossing)
                to_send += self._note(crossing)
            self._follow(finding, is_crossing=is_heir or bool(crossings))
        self.state = self._make_state()
        if self._alerted.all != before:
            self.save()
        return to_send

    def acknowledge(self, finding: Finding, time_s: float) -> None:
        if not self.state.is_acknowledged(finding):
            self._acknowledged.append(
                Acknowledgement(finding.id, finding.kind, finding.node, finding.device_uuid, time_s)
            )
            self._conclude(finding, time_s, "acknowledged")

    def mute(self, finding: Finding, scope: MuteScope, time_s: float) -> None:
        """Mute this kind of finding on this device, for as long as `scope` says."""
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
        """Undo decisions about a finding: it is neither acknowledged nor muted."""
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
        """Write decisions for the next hub; `reason` says why that fails."""
        self._saved_s = self._clock.monotonic_s()
        if self._path is None or self._keeper is None:
            return
        decisions = self._list_decisions()
        if not decisions and not self._alerted.all and not self._path.exists():
            return
        kept = KeptDecisions(
            seen_s=self._clock.wall_s(),
            acknowledged=tuple(found for found in decisions if isinstance(found, Acknowledgement)),
            mutes=tuple(found for found in decisions if isinstance(found, Mute)),
            told=self._alerted.all,
        )
        self._keeper.keep(kept)
        self._unread = None

    def _load(self) -> None:
        """Load what the last hub left; of decisions about one finding, only those whose finding may come
        again.
        """
        if self._path is None:
            return
        try:
            kept = load_decisions(self._path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            self._unread = f"cannot read acknowledged and muted findings: {self._path}: {why}"
            return
        now_s = self._clock.wall_s()
        mutes = [mute for mute in kept.mutes if mute.until_s is None or mute.until_s > now_s]
        self._mutes = [mute for mute in mutes if mute.finding_id is None]
        is_recent = 0 <= now_s - kept.seen_s <= HEIR_WITHIN_S
        self._alerted.load(kept.told, is_recent=is_recent)
        for alerted in kept.told:
            self._crossings.remember(alerted.finding_id, alerted.gravest, is_closed=alerted.is_closed)
        if is_recent:
            self._heirless = [*kept.acknowledged, *(mute for mute in mutes if mute.finding_id is not None)]

    def _follow(self, finding: Finding, *, is_crossing: bool) -> None:
        """Note a severity that crosses nothing; ignore what a restarted worker reports of the past."""
        before = self._newest.get(finding.id)
        if (before is None and not is_crossing) or (before and finding.updated_s < before.updated_s):
            return
        if before is not None and not is_crossing and finding.severity != before.severity:
            self._write(finding, finding.updated_s, f"now {finding.severity}", finding.title)
        if finding.is_open:
            self._newest[finding.id] = finding

    def _note(self, crossing: Crossing) -> list[Crossing]:
        """Note a crossing; return it if it is to be sent."""
        event, finding, _ = crossing
        if event == "opened":
            self._adopt(finding)
            self._write(finding, finding.opened_s, f"opened, {finding.severity}", finding.title)
        elif event == "raised":
            self._write(finding, finding.updated_s, f"raised to {finding.severity}", finding.title)
        state = self._make_state()
        # Who was alerted of a finding learns of its end, be it acknowledged or not.
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
        """Continue an alert from before a restart with this finding; return whether there was one.

        The hub's past is gone with it, so that what goes on opens again, later and under another id.
        """
        if self._clock.monotonic_s() - self._started_s > HEIR_WITHIN_S:
            self._heirless.clear()
            self._alerted.forget_predecessors()
        before = self._alerted.take_predecessor(finding, is_known=finding.id in self._crossings)
        if before is None:
            return False
        self._crossings.remember(finding.id, before.gravest)
        self._adopt(finding)
        what = f"still open after the agent restarted, {finding.severity}"
        self._write(finding, finding.opened_s, what, finding.title)
        return True

    def _adopt(self, finding: Finding) -> None:
        """A finding that just opened inherits the decisions about the same one before a restart."""
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
        new_title = title if is_news else ""
        self._changes.append(FindingChange(finding.id, time_s, what, new_title, finding.device_uuid))

    def _conclude(self, finding: Finding, time_s: float, what: str) -> None:
        self._write(finding, time_s, what)
        self._acknowledged = self._acknowledged[-MAX_DECISIONS:]
        self._mutes = self._mutes[-MAX_DECISIONS:]
        self.state = self._make_state()
        self.save()

    def _has_news_of_itself(self) -> bool:
        """Return whether the next hub must know the time of this one: it has something to leave."""
        return bool(self._list_decisions()) or self._alerted.has_open

    def _list_decisions(self) -> list[Decision]:
        """Return what the next hub needs: decisions about open findings, and lasting mutes."""
        known = [found for found in self._acknowledged if found.finding_id in self._newest]
        return [*known, *self._mutes, *self._heirless]

    def _make_state(self) -> AlertState:
        return AlertState(tuple(self._acknowledged), tuple(self._mutes), tuple(self._changes))


# How long to wait for a write, so that it has been done when a hub ends.
PATIENCE_S = 1.0


class Keeper:
    """Writes the newest object that it was given, one at a time, on a thread that lives as long as there is
    one.
    """

    def __init__(self, path: Path) -> None:
        self.reason: str | None = None
        self._path = path
        self._waiting: KeptDecisions | None = None
        self._is_late = False
        self._lock = threading.Lock()
        self._is_done = threading.Event()
        self._is_done.set()

    def keep(self, kept: KeptDecisions) -> None:
        """Write this; an earlier object that was not written yet is dropped. Returns within a second."""
        with self._lock:
            self._waiting = kept
            is_idle = self._is_done.is_set()
            if is_idle:
                self._is_done.clear()
        if is_idle:
            threading.Thread(target=self._write, name="vramscope-keeper", daemon=True).start()
        if not self._is_late:
            self._is_late = not self._is_done.wait(PATIENCE_S)

    def _write(self) -> None:
        while (kept := self._pop_waiting()) is not None:
            try:
                save_decisions(self._path, kept)
                self.reason = None
            except OSError as error:
                self.reason = f"cannot save acknowledged and muted findings: {self._path}: {error.strerror}"
            self._is_late = False

    def _pop_waiting(self) -> KeptDecisions | None:
        with self._lock:
            kept = self._waiting
            self._waiting = None
            if kept is None:
                self._is_done.set()
            return kept
