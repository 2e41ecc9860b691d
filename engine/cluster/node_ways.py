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

    def note(self, names: Iterable[str]) -> bool:
        """Take note of the hubs of nodes that have changed; return whether one is another than was known."""
        is_news = False
        for name in names:
            hub = self._nodes[name].picture.newest.hub if name in self._nodes else None
            if hub is not None and self._hub_ids.get(name) != hub.hub_id:
                self._hub_ids[name] = hub.hub_id
                is_news = True
        return is_news

    def forget(self, name: str) -> RemoteNode | None:
        """Forget a node; return it where it was set aside."""
        self._hub_ids.pop(name, None)
        return self.aside.pop(name, None)

    @property
    def doubles(self) -> dict[str, str]:
        """Nodes that were named by two addresses, each with the name by which it is followed."""
        followed = {hub_id: name for name, hub_id in self._hub_ids.items() if name in self._nodes}
        direct = (name for name, node in self.aside.items() if not is_relayed(node.connection))
        return {name: followed[self._hub_ids[name]] for name in direct if self._hub_ids[name] in followed}

    def choose(self) -> Change:
        """Return which nodes are to be followed otherwise than now."""
        for name, node in self.aside.items():
            hub = node.picture.newest.hub
            if hub is not None and not is_relayed(node.connection):
                self._hub_ids[name] = hub.hub_id
        best: dict[str, tuple[tuple[bool, bool], str]] = {}
        for name, hub_id in self._hub_ids.items():
            rank = self._rank(name)
            if hub_id not in best or rank < best[hub_id][0]:
                best[hub_id] = rank, name
        chosen = {name for _, name in best.values()}
        return Change(
            [name for name in self._hub_ids if name not in chosen and name in self._nodes],
            [name for name in self._hub_ids if name in chosen and name in self.aside],
        )

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
