"""The relays among the addresses of a watch, and by which names the nodes behind them are followed."""

from collections.abc import Callable, Container, Mapping

from .node_connection import NodeConnection
from .relay_link import RelayLink
from .relayed_connection import RelayedConnection


class RelayLinks:
    """Takes what relays tell, and keeps the nodes behind them among those that are followed.

    Args:
        names: All names that are taken.
        follow: Begins to follow a node by its name.
        forget: Ends that.
    """

    def __init__(
        self,
        names: Container[str],
        follow: Callable[[str, NodeConnection], None],
        forget: Callable[[str], None],
    ) -> None:
        self._taken, self._follow, self._forget = names, follow, forget
        self._links: dict[str, RelayLink] = {}
        self._names: dict[tuple[str, str], str] = {}
        """What a node is called here, by the label of its relay and its name there."""
        self._was_connected: dict[str, bool] = {}

    @property
    def links(self) -> Mapping[str, RelayLink]:
        """The relays, by the labels of their addresses."""
        return self._links

    @property
    def relay_ids(self) -> tuple[str, ...]:
        """Ids of all relays that are reached."""
        return tuple(dict.fromkeys(each for link in self._links.values() for each in link.relay_ids))

    @property
    def left_out(self) -> list[str]:
        """Names of the nodes behind relays that are not followed."""
        return [name for link in self._links.values() for name in link.left_out]

    def count_nodes(self) -> int:
        """Return how many nodes behind relays are followed, beyond one for each relay itself."""
        return sum(max(0, link.told_count - 1) for link in self._links.values())

    def count_left_out(self) -> int:
        """Return how many nodes behind relays are not followed."""
        return sum(len(link.left_out) for link in self._links.values())

    def adopt(self, link: RelayLink) -> list[str]:
        """Follow the nodes behind a relay that was found; return their names."""
        self._links[link.label] = link
        return self._tend(link)

    def receive(self, ready: Mapping[object, int]) -> list[str]:
        """Take what has come; return the names of the nodes that should look what it is."""
        heard: list[str] = []
        for link in self._links.values():
            if not ready.keys().isdisjoint(link.connection.sources):
                link.node.receive()
                heard += self._tend(link)
        return heard

    def judge(self) -> list[str]:
        """Look at every relay; return the names of the nodes that should look what became of it."""
        for link in self._links.values():
            link.node.judge()
        return [name for link in self._links.values() for name in self._tend(link)]

    def close(self) -> None:
        """Disconnect from all."""
        for link in self._links.values():
            link.node.close()

    def _tend(self, link: RelayLink) -> list[str]:
        """Take what a relay told and hand on what came; return the names of the nodes that it is news for."""
        has_news = link.take_news()
        if has_news:
            self._renew(link)
        heard = dict.fromkeys(link.deal())
        was_connected = self._was_connected.get(link.label)
        self._was_connected[link.label] = link.is_connected
        has_news = has_news or was_connected != link.is_connected
        return [self._names[link.label, name] for name in (link.connections if has_news else heard)]

    def _renew(self, link: RelayLink) -> None:
        """Follow the nodes that the relay has told of, and no others."""
        told = {known.name: known for known in link.list_nodes()}
        for name in [name for name in link.connections if name not in told]:
            self._forget(self._names.pop((link.label, name)))
            del link.connections[name]
        for name, known in told.items():
            if name in link.connections:
                link.connections[name].known = known
            else:
                connection = link.connections[name] = RelayedConnection(link, known)
                chosen = self._names[link.label, name] = self._choose_name(link.label, name)
                self._follow(chosen, connection)

    def _choose_name(self, label: str, name: str) -> str:
        """Return a name that no other node has: its own, or with that of the relay before it."""
        while name in self._taken:
            name = f"{label}/{name}"
        return name
