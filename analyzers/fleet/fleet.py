"""A fleet: the newest picture of each node, its devices, and how many nodes are covered."""

from collections.abc import Sequence
from typing import NamedTuple

from ...engine.bus.snapshot import Snapshot
from ...engine.model import RiskLevel
from .clock_offset import ClockOffset
from .model import FleetDevice, FleetNode
from .node_summary import NodeSummary, summarize_node
from .order import order_naturally
from .reading import read_devices


class Coverage(NamedTuple):
    """How much of a fleet is seen."""

    live: int
    """Nodes whose figures are of now."""
    total: int

    @property
    def is_partial(self) -> bool:
        """Whether some node is not seen."""
        return self.live < self.total

    @property
    def text(self) -> str:
        """Say it: `118 of 128 nodes`, `128 nodes`."""
        noun = "node" if self.total == 1 else "nodes"
        return f"{self.live:,} of {self.total:,} {noun}" if self.is_partial else f"{self.total:,} {noun}"


class Fleet:
    """Takes snapshots of nodes, one after another; a node that is read wrong changes nothing of the rest."""

    def __init__(self) -> None:
        self._snapshots: dict[str, Snapshot] = {}
        self._read: dict[str, tuple[FleetDevice, ...]] = {}
        self._offsets: dict[str, ClockOffset] = {}
        self._heard_s: dict[str, float] = {}
        self._names: tuple[str, ...] | None = None

    def note(self, snapshot: Snapshot, received_s: float) -> None:
        """Take the newest snapshot of a node, which it names; one that is gone is forgotten.

        Args:
            snapshot: What its feed tells.
            received_s: When it came, by our wall clock.
        """
        name = snapshot.node
        if snapshot.is_gone:
            self._forget(name)
            return
        if name not in self._snapshots:
            self._names = None
        self._snapshots[name] = snapshot
        self._read.pop(name, None)
        if snapshot.connection == "live" and snapshot.sample is not None:
            self._heard_s[name] = received_s
            self._offsets.setdefault(name, ClockOffset()).add(snapshot.sample, received_s)

    def _forget(self, name: str) -> None:
        for known in (self._snapshots, self._read, self._offsets, self._heard_s):
            known.pop(name, None)
        self._names = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, as people count."""
        if self._names is None:
            self._names = tuple(sorted(self._snapshots, key=order_naturally))
        return self._names

    @property
    def devices(self) -> list[FleetDevice]:
        """Every device, node after node."""
        return [device for name in self.names for device in self.devices_of(name)]

    @property
    def coverage(self) -> Coverage:
        """How many of the nodes are seen."""
        live = sum(it.connection == "live" and it.sample is not None for it in self._snapshots.values())
        return Coverage(live, len(self._snapshots))

    def devices_of(self, name: str) -> tuple[FleetDevice, ...]:
        """Return the devices of a node."""
        if name not in self._read:
            self._read[name] = read_devices(self._snapshots[name])
        return self._read[name]

    def node(self, name: str) -> FleetNode:
        """Return what is known of a node."""
        snapshot, offset = self._snapshots[name], self._offsets.get(name)
        is_live = snapshot.connection == "live"
        return FleetNode(
            name=name,
            state=snapshot.connection,
            reason=snapshot.reason,
            silent_s=snapshot.silent_s,
            heard_s=self._heard_s.get(name),
            clock_offset_s=offset.offset_s if is_live and offset is not None else None,
        )

    def summarize(self, name: str) -> NodeSummary:
        """Return a node in one line."""
        return summarize_node(self.node(name), self._snapshots[name], self.devices_of(name))

    def lost(self) -> list[FleetNode]:
        """Return the nodes that are lost."""
        return [self.node(name) for name in self.names if self._snapshots[name].connection == "lost"]


def count_levels(devices: Sequence[FleetDevice]) -> dict[RiskLevel, int]:
    """Return how many devices are at each level; those at none are left out."""
    counts: dict[RiskLevel, int] = {}
    for device in devices:
        counts[device.level] = counts.get(device.level, 0) + 1
    return counts
