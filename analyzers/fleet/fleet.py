"""A fleet: the newest picture of each node, its devices, and how many nodes are covered."""

from collections.abc import Mapping
from typing import NamedTuple

from ...engine.bus.device_trimming import find_mismatch
from ...engine.bus.snapshot import Snapshot
from .census import Census, add_up, count_devices
from .clock_offset import ClockOffset
from .model import FleetDevice, FleetNode
from .node_summary import NodeSummary, summarize_node
from .order import order_naturally
from .reading import NodeDevices, read_node


class Coverage(NamedTuple):
    """How much of a fleet is seen."""

    live: int
    """Nodes whose figures are of now."""
    total: int
    nodes_left_out: int = 0
    """Nodes that are known beside these and not followed, because nobody asked for them."""
    devices_left_out: int = 0
    """The same of devices of these nodes."""

    @property
    def is_partial(self) -> bool:
        """Whether some node is not seen."""
        return self.live < self.total

    @property
    def text(self) -> str:
        """Say it: `118 of 128 nodes`, `128 nodes`."""
        noun = "node" if self.total == 1 else "nodes"
        return f"{self.live:,} of {self.total:,} {noun}" if self.is_partial else f"{self.total:,} {noun}"

    @property
    def followed_text(self) -> str:
        """Say which share of the nodes was asked for: `12 of 128 nodes followed`; empty where all were."""
        known = self.total + self.nodes_left_out
        return f"{self.total:,} of {known:,} nodes followed" if self.nodes_left_out else ""


class FleetPicture(NamedTuple):
    """All nodes of a fleet at one moment; it stays as it is while the fleet goes on."""

    nodes: Mapping[str, tuple[FleetDevice, ...]]
    """The devices of each, nodes in order."""
    counted: Mapping[str, Census]
    """The devices of each node, counted."""
    census: Census
    """All of them, counted."""
    coverage: Coverage

    @property
    def devices(self) -> list[FleetDevice]:
        """Every device, node after node."""
        return [device for its in self.nodes.values() for device in its]

    def find(self, key: tuple[str, str]) -> FleetDevice | None:
        """Return a device by node and UUID; None where there is no such."""
        node, uuid = key
        return next((device for device in self.nodes.get(node, ()) if device.uuid == uuid), None)


class Fleet:
    """Takes snapshots of nodes, one after another; a node that is read wrong changes nothing of the rest."""

    def __init__(self) -> None:
        self._snapshots: dict[str, Snapshot] = {}
        self._read: dict[str, NodeDevices] = {}
        self._devices: dict[str, tuple[FleetDevice, ...]] = {}
        self._counted: dict[str, Census] = {}
        self._unread: set[str] = set()
        self._offsets: dict[str, ClockOffset] = {}
        self._heard_s: dict[str, float] = {}
        self._names: tuple[str, ...] | None = None
        self.nodes_left_out = 0
        """Nodes that its feed knows and does not follow."""

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
        self._unread.add(name)
        if snapshot.connection == "live" and snapshot.sample is not None:
            self._heard_s[name] = received_s
            if name not in self._offsets:
                self._offsets[name] = ClockOffset()
            self._offsets[name].add(snapshot.sample, received_s)

    def _forget(self, name: str) -> None:
        for known in (
            self._snapshots,
            self._read,
            self._devices,
            self._counted,
            self._offsets,
            self._heard_s,
        ):
            known.pop(name, None)
        self._unread.discard(name)
        self._names = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes, as people count."""
        if self._names is None:
            self._names = tuple(sorted(self._snapshots, key=order_naturally))
            self._devices = {name: self._devices.get(name, ()) for name in self._names}
            self._counted = {name: self._counted.get(name, Census()) for name in self._names}
        return self._names

    @property
    def picture(self) -> FleetPicture:
        """All nodes as they are now."""
        for name in self.names:  # which puts what is known of them in order
            if name in self._unread:
                self._read_node(name)
        counted = self._counted.copy()
        return FleetPicture(self._devices.copy(), counted, add_up(counted.values()), self.coverage)

    @property
    def coverage(self) -> Coverage:
        """How many of the nodes are seen."""
        live = left_out = 0
        for snapshot in self._snapshots.values():
            if snapshot.sample is not None:
                live += snapshot.connection == "live"
                left_out += snapshot.sample.devices_left_out
        return Coverage(live, len(self._snapshots), self.nodes_left_out, left_out)

    def devices_of(self, name: str) -> tuple[FleetDevice, ...]:
        """Return the devices of a node, read anew only where it has told something since."""
        if name in self._unread:
            self._read_node(name)
        return self._devices[name]

    def _read_node(self, name: str) -> None:
        self._unread.discard(name)
        self._read[name] = read = read_node(self._snapshots[name], self._read.get(name))
        self._devices[name], self._counted[name] = read.devices, count_devices(read.devices)

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
            mismatch=None if snapshot.sample is None else find_mismatch(snapshot.sample),
        )

    def summarize(self, name: str) -> NodeSummary:
        """Return a node in one line."""
        return summarize_node(self.node(name), self._snapshots[name], self.devices_of(name))

    def lost(self) -> list[FleetNode]:
        """Return the nodes that are lost."""
        return [self.node(name) for name in self.names if self._snapshots[name].connection == "lost"]
