"""Nodes that are reached by several ways, as directly and through a relay: each is followed by one."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .node_connection import NodeConnection
from .relayed_connection import RelayedConnection
from .remote_node import RemoteNode

TAKES_OVER_S = 5.0
"""A way that has been lost for so long is left for another."""


class Change(NamedTuple):
    """What follows from what is known of the ways."""

    set_aside: list[str]
    """Names of nodes that are followed by a better way."""
    resumed: list[str]
    """Names of nodes that were set aside, and are the best way now."""


class NodeWays:
    """Chooses among nodes that are one hub: one that is not lost, a direct one, the one that was known first.

    Args:
        nodes: Those that are followed, by their names.
    """

    def __init__(self, nodes: Mapping[str, RemoteNode]) -> None:
        self._nodes = nodes
        self.aside: dict[str, RemoteNode] = {}
        """Nodes that are followed by a better way; of a direct one the connection is kept."""
        self._hub_ids: dict[str, str] = {}
        self._names: dict[str, list[str]] = {}
        """Of the nodes of each hub, in the order in which they were known."""

    def note(self, names: Iterable[str]) -> bool:
        """Take note of the hubs of nodes that have changed; return whether there is something to choose."""
        found = [
            self._take(name, hub.hub_id)
            for name in names
            if name in self._nodes and (hub := self._nodes[name].picture.newest.hub) is not None
        ]
        return any(found)

    def forget(self, name: str) -> RemoteNode | None:
        """Forget a node; return it where it was set aside."""
        self._leave(name)
        return self.aside.pop(name, None)

    @property
    def doubles(self) -> dict[str, str]:
        """Nodes that were named by two addresses, each with the name by which it is followed."""
        direct = [name for name, node in self.aside.items() if not is_relayed(node.connection)]
        return {
            name: followed
            for name in direct
            for followed in self._names[self._hub_ids[name]]
            if followed in self._nodes
        }

    def choose(self) -> Change:
        """Return which nodes are to be followed otherwise than now."""
        for name, node in list(self.aside.items()):
            hub = node.picture.newest.hub
            if hub is not None and not is_relayed(node.connection):
                self._take(name, hub.hub_id)
        set_aside, resumed = list[str](), list[str]()
        for names in self._names.values():
            if len(names) > 1 or names[0] in self.aside:
                chosen = min(names, key=self._rank)
                set_aside += [name for name in names if name != chosen and name in self._nodes]
                resumed += [chosen] if chosen in self.aside else []
        return Change(set_aside, resumed)

    def _leave(self, name: str) -> None:
        hub_id = self._hub_ids.pop(name, None)
        if hub_id is not None:
            self._names[hub_id].remove(name)
            if not self._names[hub_id]:
                del self._names[hub_id]

    def _take(self, name: str, hub_id: str) -> bool:
        """Take note of the hub of a node; return whether it is another, and others are or were the same."""
        before = self._hub_ids.get(name)
        if before == hub_id:
            return False
        self._leave(name)
        self._hub_ids[name] = hub_id
        names = self._names.setdefault(hub_id, [])
        names.append(name)
        return before in self._names or len(names) > 1

    def _rank(self, name: str) -> tuple[bool, bool]:
        node = self.aside.get(name) or self._nodes[name]
        newest, connection = node.picture.newest, node.connection
        if name in self.aside and is_relayed(connection):  # nothing comes of it, but its relay knows
            return not connection.is_connected, True
        is_long = newest.silent_s is None or newest.silent_s >= TAKES_OVER_S
        return newest.connection == "lost" and is_long, is_relayed(connection)


def is_relayed(connection: NodeConnection) -> bool:
    """Return whether a node is reached through a relay."""
    return isinstance(connection, RelayedConnection)
