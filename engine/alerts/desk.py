"""The hub's desk for alerts: findings come in, hooks are told, people's decisions are carried out."""

from collections.abc import Iterable
from pathlib import Path

from ..clock import Clock
from ..model import Finding, HookStatus
from ..settings import AlertSettings
from .book import AlertBook
from .delivery import Delivery
from .state import AlertState, FindingDecision


class AlertDesk:
    """Book and hooks of one hub.

    Args:
        settings: Who is told of what.
        version: Version of vramscope, told to receivers.
        path: File in which decisions outlive the hub; None to keep them no longer than it.
        clock: Injected in tests.
    """

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
        """What people decided, and what became of each finding."""
        return self._book.state

    @property
    def hooks(self) -> tuple[HookStatus, ...]:
        """How every hook fared."""
        return self._delivery.status()

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be done, in sentences."""
        return () if self._book.reason is None else (self._book.reason,)

    def take(self, findings: Iterable[Finding]) -> None:
        """Note findings that opened, changed or closed, and have hooks told of what crosses a line."""
        self._delivery.put(self._book.take(findings))

    def decide(self, decision: FindingDecision, finding: Finding | None, time_s: float) -> str | None:
        """Carry out what a person decided; return why that cannot be done, or None.

        Args:
            decision: What to do.
            finding: The finding it is about; None where the hub knows none of that id.
            time_s: Time of the newest sample.
        """
        if finding is None:
            return "that finding is forgotten: it closed long ago, or belonged to another agent"
        if decision.verb == "acknowledge":
            self._book.acknowledge(finding, time_s)
        elif decision.verb == "release":
            self._book.release(finding, time_s)
        elif decision.scope is None:
            return "how long to mute it was not said"
        elif decision.scope == "open" and not finding.is_open:
            return "that finding has closed already"
        else:
            self._book.mute(finding, decision.scope, time_s)
        return None

    def poll(self) -> None:
        """Go on with deliveries; returns at once."""
        self._delivery.poll()

    def expire(self) -> None:
        """Drop mutes whose time is up; call it every second or so."""
        self._book.expire()

    def finish(self, timeout_s: float) -> str | None:
        """Keep what was decided and send what waits; return what was left undone in one sentence, or None."""
        self._book.save()
        return self._delivery.finish(timeout_s)
