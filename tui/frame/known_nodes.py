"""The nodes that a feed tells of: the newest picture of each, and which of them is shown."""

from typing import NamedTuple

import msgspec

from ...analyzers.fleet.model import order_naturally
from ...engine.model import SEVERITIES, Severity
from ...engine.viewer.snapshot import ReplayState, Snapshot

# What is no graver than this brings no other node to mind.
_NOT_NAMED = SEVERITIES.index("low")


class NodePlace(NamedTuple):
    """Where the node that is shown stands among all of them."""

    number: int
    total: int
    # A node that has something graver than the one that is shown.
    graver: str | None = None
    # How grave that is.
    severity: Severity = "low"
    # Nodes of which there are no live figures; 0 in a replay.
    lost: int = 0


class KnownNodes:
    """Holds one snapshot a node; a feed that tells of one node only need not name it."""

    def __init__(self) -> None:
        self._newest: dict[str, Snapshot] = {}
        self._names: list[str] | None = None
        self._replay: ReplayState | None = None
        # Name of the node that is shown.
        self.shown = ""

    @property
    def names(self) -> list[str]:
        """Names of the nodes in the order in which people count: node2 comes before node10."""
        if self._names is None:
            self._names = sorted(self._newest, key=order_naturally)
        return self._names

    @property
    def are_several(self) -> bool:
        """Whether there is another node than the one that is shown."""
        return len(self._newest) > 1

    @property
    def newest(self) -> Snapshot:
        """The newest snapshot of the node that is shown, at the moment at which a replay is."""
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
        """Where the shown node stands among all; None where there is no other."""
        names = self.names
        if len(names) < 2:
            return None
        graver = None
        rank = max(_gravity(self._newest[self.shown]), _NOT_NAMED)
        for name in names:
            if (other := _gravity(self._newest[name])) > rank:
                graver = name
                rank = other
        severity = SEVERITIES[rank] if graver is not None else "low"
        return NodePlace(names.index(self.shown) + 1, len(names), graver, severity, self._count_lost())

    def _count_lost(self) -> int:
        if self._replay is not None:
            return 0
        return sum(snapshot.connection == "lost" for snapshot in self._newest.values())

    def note(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot of a node; one that names none is of the node that is shown."""
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
        """Let go of a node; where it was shown another is, as soon as there is one."""
        self._newest.pop(name, None)
        self._names = None
        if name == self.shown and self._newest:
            self.shown = self.names[0]

    def after(self, places: int) -> str:
        """Return the node that many places further; after the last comes the first."""
        names = self.names
        return names[(names.index(self.shown) + places) % len(names)] if names else self.shown


def _gravity(snapshot: Snapshot) -> int:
    """Return how grave the gravest open finding is, by its place in `SEVERITIES`; -1 where there is none."""
    if not snapshot.findings:
        return -1
    found = (
        SEVERITIES.index(finding.severity)
        for finding in snapshot.findings
        if finding.is_open and not snapshot.alerts.is_silent(finding)
    )
    return max(found, default=-1)
