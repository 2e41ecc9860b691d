"""The connection to a node behind a relay: one of many over the same link."""

from collections import deque
from typing import Protocol

from ..wire.envelope import encode
from ..wire.messages import KnownNode, Request

MOST_WAITING = 1024
"""Messages of one node that wait to be read; of more the oldest are dropped, and asked for as any gap."""


class Carrier(Protocol):
    """What carries the messages of all nodes behind one relay."""

    @property
    def is_connected(self) -> bool:
        """Whether what is sent now may arrive."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why the relay is not there, in one sentence; None where nothing speaks against it."""
        ...

    @property
    def warning(self) -> str | None:
        """What should be known of who answers as the relay, in one sentence; None where nothing should."""
        ...

    def send(self, data: bytes) -> None:
        """Send a message to the relay."""
        ...


class RelayedConnection:
    """Follows one node through a relay; use from one thread.

    Args:
        carrier: The link to the relay.
        known: What the relay has told of the node.
    """

    answers_within_s = 2.0

    def __init__(self, carrier: Carrier, known: KnownNode) -> None:
        self.node = known.name
        """What the relay calls the node."""
        self.known = known
        """What the relay has told of it last."""
        self._carrier = carrier
        self._aged: tuple[KnownNode, float] | None = None
        self._received: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._was_connected = False

    @property
    def is_connected(self) -> bool:
        """Whether the relay is there and the node is live there."""
        return self._carrier.is_connected and self.known.connection == "live"

    @property
    def trouble(self) -> str | None:
        """Why the node cannot be reached, in one sentence; None where nothing speaks against it."""
        return self._carrier.trouble or (None if self.known.connection == "live" else self.known.reason)

    @property
    def warning(self) -> str | None:
        """What should be known of who answers as the relay, in one sentence; None where nothing should."""
        return self._carrier.warning

    @property
    def sources(self) -> tuple[object, ...]:
        """Nothing of its own: the link to the relay is waited for."""
        return ()

    @property
    def silence(self) -> str:
        """What is said of a node that has not answered yet, and nobody knows why."""
        return "the relay has no figures of it yet"

    def silence_s(self, now_s: float) -> float | None:
        """Return for how long the relay has heard nothing of the node; None where that is not known."""
        if self._aged is None or self._aged[0] is not self.known:
            self._aged = (self.known, now_s)
        told_s = self.known.silent_s
        return None if told_s is None else told_s + now_s - self._aged[1]

    def take(self, data: bytes) -> None:
        """Take a message that has come over the link."""
        self._received.append(data)

    def send(self, data: bytes) -> None:
        """Send a message; it names the node itself. It is lost where nobody is connected."""
        self._carrier.send(data)

    def receive(self) -> list[bytes]:
        """Return the messages that have come, without waiting."""
        received = list(self._received)
        self._received.clear()
        return received

    def note_events(self) -> bool:
        """Return whether the connection was made since the last call."""
        was_connected = self._was_connected
        self._was_connected = self.is_connected
        return self._was_connected and not was_connected

    def mend(self, now_s: float, *, is_silent: bool = False) -> None:
        """Nothing: the link mends itself."""

    def close(self) -> None:
        """Let the relay send nothing more of the node, until it is asked again."""
        self._received.clear()
        self._carrier.send(encode("request", "", Request("leave", 0, node=self.node)))
