"""A worker's connection over tcp to the hub of another node."""

import time
from collections.abc import Callable

import zmq

from ..clock import Clock, SystemClock, ceil_ms
from ..errors import UsageError
from ..viewer.conversation import Event, HubConversation
from ..wire.messages import TOPIC_SAMPLE, TOPIC_SEGMENTS, KnownNodes
from .name_lookup import FoundAddress
from .remote_connection import RemoteConnection, Sockets
from .tcp_address import TcpAddress, resolve
from .trust import Trust

TOPICS = tuple(topic.decode() for topic in (TOPIC_SAMPLE, TOPIC_SEGMENTS))
MEND_S = 0.5
AWAY_S = 3.0
"""A hub that has not been connected for so long is away; ZeroMQ may have explained it before."""
MOST_SHOWN = 8
SILENT_S = 10.0
"""A hub that has sent nothing for so long is asked whether it is there."""


class RemoteWorkerLink(HubConversation):
    """Follows one hub for a worker, again and again while it is away; use from one thread.

    Args:
        address: As it was typed.
        trust: Keys of this user.
        tell: Told in one sentence what becomes of the connection, when that is news.
        clock: Injected in tests.

    Raises:
        UsageError: The name cannot be resolved.
    """

    def __init__(
        self, address: TcpAddress, trust: Trust, tell: Callable[[str], None], clock: Clock | None = None
    ) -> None:
        self.is_watched_closed = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._connection = RemoteConnection(address, trust, Sockets(self._context, self._poller))
        super().__init__(self._connection.link.send, clock or SystemClock(), topics=TOPICS)
        self._tell = tell
        self._told = ""
        self._asked_s = self._connected_s = self._clock.monotonic_s()
        self._connection.find(FoundAddress(address, resolve(address)))

    def events(self, timeout_s: float) -> list[Event]:
        """Wait until something arrives and return all that has, oldest first; empty after `timeout_s`.

        Raises:
            UsageError: A relay answers there, which has no analyzers.
        """
        found: list[Event] = []
        self._wait(min(timeout_s, MEND_S))
        if self._connection.note_events():
            self._ask()
        for data in self._connection.link.receive():
            self.take(data, found)
        for event in found:
            if isinstance(event, KnownNodes):
                raise UsageError(self._explain_relay(event))
        self._mend(found)
        return found

    def report(self, data: bytes) -> bool:
        """Send a report; return whether it went: it does not while the hub is away."""
        if not self._connection.link.is_connected:
            return False
        self._connection.link.send(data)
        return True

    def watch(self, fd: int) -> None:
        """Take note of nothing: a worker of another node's hub is nobody's child."""

    def close(self) -> None:
        """Disconnect."""
        self._connection.link.close()
        self._context.destroy(linger=0)

    def _explain_relay(self, known: KnownNodes) -> str:
        names = [node.name for node in known.nodes if node.name.isprintable()]
        shown = ", ".join([*names[:MOST_SHOWN], *(["…"] if len(names) > MOST_SHOWN else [])]) or "none yet"
        return (
            f"--connect {self._connection.address.label}: a relay answers there, and analyzers work for an "
            f"agent itself: name one of those behind it, by an address that is reached from here: {shown}"
        )

    def _wait(self, timeout_s: float) -> None:
        if self._connection.link.sockets:
            self._poller.poll(ceil_ms(timeout_s))
        else:
            time.sleep(timeout_s)

    def _ask(self) -> None:
        self._asked_s = self._clock.monotonic_s()
        self.ask()

    def _mend(self, found: list[Event]) -> None:
        now_s = self._clock.monotonic_s()
        is_unanswered = self.is_asking and now_s - max(self._asked_s, self.heard_s or 0.0) > AWAY_S
        self._connection.mend(now_s, is_silent=is_unanswered and self.turned_away is None)
        if self._connection.link.is_connected:
            self._connected_s = now_s
            self.give_up_if_unanswered(found)
            if now_s - max(self._asked_s, self.heard_s or 0.0) > SILENT_S:
                self._ask()
        state = self._name_state(now_s)
        if state is not None and state != self._told:
            self._told = state
            self._tell(state)

    def _name_state(self, now_s: float) -> str | None:
        """Return what became of the connection, in one sentence; None where nothing is known yet."""
        if self.refused is not None:
            return self.refused
        if self._connection.trouble is not None:
            return self._connection.trouble
        if self._connection.link.is_connected and not self.is_asking:
            return f"analyzing for {self._connection.address.label}; Ctrl-C ends it"
        if now_s - self._connected_s > AWAY_S:
            name = self._connection.address.label
            is_known = self.heard_s is not None
            return (
                f"{name}: {'the connection is lost; trying again' if is_known else self._connection.silence}"
            )
        return None
