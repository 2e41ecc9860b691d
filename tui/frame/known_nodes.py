"""The nodes of a feed: the newest snapshot of each, and which of them is shown."""

from typing import NamedTuple

import msgspec

from ...analyzers.fleet.model import order_naturally
from ...engine.model import SEVERITIES, Severity
from ...engine.viewer.snapshot import ReplayState, Snapshot

# Up to this severity, the title names no other node.
_NOT_NAMED = SEVERITIES.index("low")


class NodePlace(NamedTuple):
    """Position of the shown node among all of them."""

    number: int
    total: int
    # A node with a more severe finding than the shown one.
    more_severe: str | None = None
    # Severity of that finding.
    severity: Severity = "low"
    # Nodes without live values; 0 in a replay.
    lost: int = 0


class KnownNodes:
    """Holds one snapshot a node; a feed of a single node need not name it."""

    def __init__(self) -> None:
        self._newest: dict[str, Snapshot] = {}
        self._names: list[str] | None = None
        self._replay: ReplayState | None = None
        self.shown = ""

    @property
    def names(self) -> list[str]:
        """In natural order: node2 comes before node10."""
        if self._names is None:
            self._names = sorted(self._newest, key=order_naturally)
        return self._names

    @property
    def are_several(self) -> bool:
        return len(self._newest) > 1

    @property
    def newest(self) -> Snapshot:
        """The newest snapshot of the shown node, with the replay's current moment."""
        snapshot = self._newest.get(self.shown, Snapshot())
        if snapshot.replay is None or self._replay is None:
            return snapshot
        own = snapshot.replay
        now = msgspec.structs.replace(
            self._replay, is_catching_up=own.is_catching_up, comparison=own.comparison, overview=own.overview
        )
        return msgspec.structs.replace(snapshot, replay=now)

    @property
    def place(self) -> NodePlace | None:
        """Position of the shown node among all; None where it is the only one."""
        names = self.names
        if len(names) < 2:
            return None
        more_severe = None
        rank = max(_gravity(self._newest[self.shown]), _NOT_NAMED)
        for name in names:
            if (other := _gravity(self._newest[name])) > rank:
                more_severe = name
                rank = other
        severity = SEVERITIES[rank] if more_severe is not None else "low"
        return NodePlace(names.index(self.shown) + 1, len(names), more_severe, severity, self._count_lost())

    def _count_lost(self) -> int:
        if self._replay is not None:
            return 0
        return sum(snapshot.connection == "lost" for snapshot in self._newest.values())

    def note(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot of a node; one without a name is of the shown node."""
        if snapshot.is_gone:
            self._forget(snapshot.node)
            return
        if self.shown not in self._newest:
            self.shown = snapshot.node
        name = snapshot.node or self.shown
        if name not in self._newest:
            self._names = None
        self._newest[name] = snapshot
        self._replay = snapshot.replay or self._replay

    def _forget(self, name: str) -> None:
        """Remove a node; if it was shown, show another."""
        self._newest.pop(name, None)
        self._names = None
        if name == self.shown and self._newest:
            self.shown = self.names[0]

    def after(self, places: int) -> str:
        """Return the node that many places further; after the last comes the first."""
        names = self.names
        return names[(names.index(self.shown) + places) % len(names)] if names else self.shown


def _gravity(snapshot: Snapshot) -> int:
    """Return the highest severity of an open finding, as its place in `SEVERITIES`; -1 without any."""
    if not snapshot.findings:
        return -1
    found = (
        SEVERITIES.index(finding.severity)
        for finding in snapshot.findings
        if finding.is_open and not snapshot.alerts.is_silent(finding)
    )
    return max(found, default=-1)
