"""The link to a relay, and the nodes behind it."""

from collections.abc import Iterable, Iterator

import msgspec

from ..text import make_printable
from ..wire.messages import KnownNode, KnownNodes
from .choice import ALL, Choice
from .relayed_connection import RelayedConnection
from .remote_connection import RemoteConnection
from .remote_node import RemoteNode

MOST_NODES = 4096
"""Nodes that are followed through one relay."""
MAX_NAME_CHARACTERS = 400
MAX_REASON_CHARACTERS = 400
LONGEST_SILENCE_S = 1e9


class RelayLink:
    """Follows a relay, and hands what comes of the nodes behind it to their connections.

    Args:
        node: The relay itself, as it was found at an address.
        connection: To the relay.
        own_id: Of the relay that this is of; None in a viewer.
        choice: Which of the nodes behind it are followed.
    """

    def __init__(
        self, node: RemoteNode, connection: RemoteConnection, own_id: str | None, choice: Choice = ALL
    ) -> None:
        self.node = node
        self.connection = connection
        self._choice = choice
        self.label = connection.address.label
        self.connections: dict[str, RelayedConnection] = {}
        """By what the relay calls the node."""
        self.left_out: tuple[str, ...] = ()
        """Names of the nodes behind it that are not followed, as of the last list."""
        self._own_id = own_id
        self._told: KnownNodes | None = None
        self._loop: str | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the relay is there and has told of its nodes since."""
        return self.connection.is_connected and not self.node.conversation.is_asking

    @property
    def trouble(self) -> str | None:
        """Why the relay is not there, in one sentence; None where nothing speaks against it."""
        newest = self.node.picture.newest
        return f"relay {self.label}: {newest.reason}" if newest.connection == "lost" else None

    @property
    def warning(self) -> str | None:
        """What should be known of who answers as the relay, in one sentence; None where nothing should."""
        warning = self.connection.warning
        return None if warning is None else f"relay {warning}"

    @property
    def relay_ids(self) -> tuple[str, ...]:
        """Ids of all relays that are reached by it."""
        return () if self._told is None or self._is_loop else self._told.relays

    @property
    def told_count(self) -> int:
        """How many nodes the relay has told of that are followed."""
        return 0 if self._told is None else len(self._told.nodes) - len(self.left_out)

    def send(self, data: bytes) -> None:
        """Send a message to the relay."""
        self.connection.send(data)

    def deal(self) -> Iterator[str]:
        """Hand what has come to the connections; yield the names of their nodes there."""
        while self.connection.from_relay:
            name, data = self.connection.from_relay.popleft()
            connection = self.connections.get(name.decode("utf-8", "replace"))
            if connection is not None:
                connection.take(data)
                yield connection.node

    def take_news(self) -> bool:
        """Take what the relay has told of its nodes; return whether that is news."""
        told = self.node.known_nodes
        if told is None or told is self._told:
            return False
        self._told = told
        if self._own_id is not None and self._own_id in told.relays:
            self._loop = told.relays[0]
        return True

    def list_nodes(self) -> tuple[KnownNode, ...]:
        """Return the nodes that are followed; where the relay leads back here, itself with the reason."""
        if self._told is None:
            return ()
        if self._is_loop:
            reason = "this relay leads back to the one that follows it: leave it out of --connect there"
            return (KnownNode(self.label, "lost", reason),)
        sound = [*_choose_sound(self._told.nodes)]
        wanted = tuple(it for it in sound if self._choice.wants_node(it.name))
        names = {it.name for it in wanted}
        self.left_out = tuple(it.name for it in sound if it.name not in names)
        return wanted

    @property
    def _is_loop(self) -> bool:
        """Whether the relay has once led back here; it must start anew before it is asked again.

        Two relays that follow one another would else find and forget it by turns.
        """
        return self._told is not None and self._loop is not None and self._told.relays[:1] == (self._loop,)


def _choose_sound(nodes: Iterable[KnownNode]) -> Iterator[KnownNode]:
    """Yield the nodes whose names can be shown, each once, and no more than can be followed."""
    seen: set[str] = set()
    for node in nodes:
        is_sound = node.name.isprintable() and 1 <= len(node.name) <= MAX_NAME_CHARACTERS
        if is_sound and node.name not in seen and len(seen) < MOST_NODES:
            seen.add(node.name)
            yield msgspec.structs.replace(node, reason=_clean(node.reason), silent_s=_check(node.silent_s))


def _clean(reason: str | None) -> str | None:
    """Return a sentence of somebody else without what would steer a terminal."""
    return None if reason is None else make_printable(reason, MAX_REASON_CHARACTERS)


def _check(silent_s: float | None) -> float | None:
    """Return an age; None for what can be none."""
    return silent_s if silent_s is not None and 0.0 <= silent_s < LONGEST_SILENCE_S else None
