"""How a viewer or worker is connected to a node: over tcp, or through a relay."""

import math
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

import zmq

from ..clock import Clock, SystemClock, ceil_ms
from ..errors import UsageError
from ..viewer.conversation import Event, HubConversation
from ..wire.messages import TOPIC_SAMPLE, TOPIC_SEGMENTS, KnownNode, KnownNodes, Request, encode
from .addresses import FoundAddress, TcpAddress, resolve
from .links import Failure, LinkTimes, NodeKeys, RemoteLink
from .trust import Trust, check_reachable


class NodeConnection(Protocol):
    """A connection that is made again and again, with the words for why it is not; use from one thread."""

    node: str
    """What the other end calls the node; empty where it is the node itself."""
    answers_within_s: float
    """Seconds of silence after which a node is reported not to answer."""

    @property
    def trouble(self) -> str | None:
        """Why the hub cannot be reached, in one sentence; None while it may be."""
        ...

    @property
    def warning(self) -> str | None:
        """A doubt about who answers there, in one sentence; None without one."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether what is sent now may arrive."""
        ...

    @property
    def sources(self) -> tuple[object, ...]:
        """Sockets or descriptors that the loop waits for."""
        ...

    @property
    def silence(self) -> str:
        """Reason shown for a hub that has not answered yet, while the cause is unknown."""
        ...

    def silence_s(self, now_s: float) -> float | None:
        """Return for how long the other end has heard nothing of the node; None where that is not known."""
        ...

    def send(self, data: bytes) -> None:
        """Send a message; it is lost where nobody is connected."""
        ...

    def receive(self) -> list[bytes]:
        """Return the messages that have come, without waiting."""
        ...

    def note_events(self) -> bool:
        """Process events of the connection; return whether it was made since the last call."""
        ...

    def mend(self, now_s: float, *, is_silent: bool = False) -> None:
        """Repair the connection; call several times a second. `is_silent`: no answer when one is due."""
        ...

    def close(self) -> None: ...


CUT_SHOWN_S = 20.0
"""A handshake that was cut says nothing any more of one that has not even begun for so long."""
RETRY_S = 3.0
"""From a handshake that failed to the next attempt; a key that was allowed meanwhile is let in by it."""
LEAST_RENEWAL_S = 3.0
MOST_RENEWAL_S = 48.0
"""From a fresh socket that was taken because of silence to the next; doubled until the other end is heard."""


class Sockets(NamedTuple):
    """What the connections of one loop share."""

    context: "zmq.Context[zmq.Socket[bytes]]"
    poller: zmq.Poller
    times: LinkTimes = LinkTimes()


class RemoteConnection:
    """Keeps one link open; use from one thread."""

    answers_within_s = 2.0
    node = ""

    def __init__(self, address: TcpAddress, trust: Trust, sockets: Sockets) -> None:
        self.address = address
        self._trust = trust
        self.link = RemoteLink(sockets.context, sockets.poller, sockets.times)
        self.trouble: str | None = None
        """Why the hub cannot be reached, in one sentence; None while it may be."""
        self._numeric: TcpAddress | None = None
        self._keys: NodeKeys | None = None
        self._why_refused: str | None = None
        self._failures = 0
        self._retry_s: float | None = None
        self._renew_s = -math.inf
        self._renewal_pause_s = LEAST_RENEWAL_S
        self._cut_until_s = math.inf

    @property
    def warning(self) -> str | None:
        """Say that there is no key at the other end, where there is one here and so one was expected."""
        is_unproven = self.link.is_connected and self._keys is None and self._trust.pair is not None
        return f"{self.address.text} uses no keys: its identity is not verified" if is_unproven else None

    @property
    def is_connected(self) -> bool:
        return self.link.is_connected

    @property
    def sources(self) -> tuple[object, ...]:
        return self.link.sockets

    @property
    def from_relay(self) -> "deque[tuple[bytes, bytes]]":
        """Messages of nodes behind a relay, where one listens there: name of the node, and message."""
        return self.link.from_relay

    @property
    def silence(self) -> str:
        return f"does not answer: no agent listens at {self.address.text}, or a firewall blocks it"

    def silence_s(self, now_s: float) -> float | None:
        """None: there is no relay between that could know."""
        return None

    def send(self, data: bytes) -> None:
        self.link.send(data)

    def receive(self) -> list[bytes]:
        return self.link.receive()

    def close(self) -> None:
        self.link.close()

    def find(self, found: FoundAddress) -> None:
        """Connect to the numeric address of the host, or keep the reason why it has none."""
        try:
            if found.numeric is None:
                raise UsageError(found.reason)
            check_reachable(found.numeric, self._trust)
        except UsageError as error:
            if self._numeric is None:
                self.trouble = str(error)
            return
        if found.numeric != self._numeric:
            self._numeric = found.numeric
            self._open()

    def note_events(self) -> bool:
        was_made = self.link.note_events()
        if was_made:
            self.trouble = None
        return was_made

    def mend(self, now_s: float, *, is_silent: bool = False) -> None:
        """Open the link again after a failed handshake or when it is dead; ZeroMQ repeats a cut one."""
        if self.link.failure == "cut":
            self._note_cut(now_s)
        elif self.link.failure is not None and self._retry_s is None:
            self._retry_s = now_s + self._note_failure(self.link.failure)
        elif now_s >= self._cut_until_s:
            self.trouble = None
            self._cut_until_s = math.inf
        if self._retry_s is not None and now_s >= self._retry_s:
            self._retry_s = None
            self._open()
        self._renew_dead(now_s, is_silent=is_silent)

    @property
    def _is_loopback(self) -> bool:
        return self._numeric is not None and self._numeric.is_loopback

    def _open(self) -> None:
        if self._numeric is not None:
            self._keys = self._trust.keys_for(self.address, self._failures, is_loopback=self._is_loopback)
            self.link.open(self._numeric, self._keys)

    def _renew_dead(self, now_s: float, *, is_silent: bool) -> None:
        """Take a fresh socket where nothing comes: over the old one tcp repeats itself ever more rarely."""
        if not is_silent:
            self._renewal_pause_s = LEAST_RENEWAL_S
        elif now_s >= self._renew_s and self.link.is_still:
            self._renew_s = now_s + self._renewal_pause_s
            self._renewal_pause_s = min(2 * self._renewal_pause_s, MOST_RENEWAL_S)
            self._open()

    def _note_cut(self, now_s: float) -> None:
        """Report a cut handshake for as long as the next ones may be cut too."""
        self.link.failure = None
        self._cut_until_s = now_s + CUT_SHOWN_S
        self.trouble = (
            f"{self.address.text} accepted the connection and then fell silent: the network is down or "
            "too slow, or the agent hangs"
        )

    def _note_failure(self, failure: Failure) -> float:
        """Remember why a handshake failed; return the seconds until the next attempt."""
        self._cut_until_s = math.inf
        is_last_way = self._keys is None or failure == "refused" or not self._is_loopback
        if self._keys is not None or self._trust.pair is None:
            self._why_refused = self._trust.explain(self.address, failure, self._keys)
        if is_last_way:
            self.trouble = self._why_refused
        self._failures += failure != "refused"
        return RETRY_S if is_last_way else 0.0


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
        """Why the relay cannot be reached, in one sentence; None while it may be."""
        ...

    @property
    def warning(self) -> str | None:
        """A doubt about who answers as the relay, in one sentence; None without one."""
        ...

    def send(self, data: bytes) -> None:
        """Send a message to the relay."""
        ...


class RelayedConnection:
    """Follows one node through a relay; use from one thread.

    Args:
        known: The newest state of the node that the relay has sent.
    """

    answers_within_s = 2.0

    def __init__(self, carrier: Carrier, known: KnownNode) -> None:
        self.node = known.name
        """What the relay calls the node."""
        self.known = known
        """The newest state that the relay has sent."""
        self._carrier = carrier
        self._aged: tuple[KnownNode, float] | None = None
        self._received: deque[bytes] = deque(maxlen=MOST_WAITING)
        self._was_connected = False

    @property
    def is_connected(self) -> bool:
        return self._carrier.is_connected and self.known.connection == "live"

    @property
    def trouble(self) -> str | None:
        return self._carrier.trouble or (None if self.known.connection == "live" else self.known.reason)

    @property
    def warning(self) -> str | None:
        return self._carrier.warning

    @property
    def sources(self) -> tuple[object, ...]:
        """No sockets: the link to the relay is polled."""
        return ()

    @property
    def silence(self) -> str:
        return "the relay has no data from it yet"

    def silence_s(self, now_s: float) -> float | None:
        if self._aged is None or self._aged[0] is not self.known:
            self._aged = (self.known, now_s)
        reported_s = self.known.silent_s
        return None if reported_s is None else reported_s + now_s - self._aged[1]

    def take(self, data: bytes) -> None:
        self._received.append(data)

    def send(self, data: bytes) -> None:
        """Send a message; it names the node itself. It is lost where nobody is connected."""
        self._carrier.send(data)

    def receive(self) -> list[bytes]:
        received = list(self._received)
        self._received.clear()
        return received

    def note_events(self) -> bool:
        was_connected = self._was_connected
        self._was_connected = self.is_connected
        return self._was_connected and not was_connected

    def mend(self, now_s: float, *, is_silent: bool = False) -> None:
        """Nothing: the link mends itself."""

    def close(self) -> None:
        """Let the relay send nothing more of the node, until it is asked again."""
        self._received.clear()
        self._carrier.send(encode("request", "", Request("leave", 0, node=self.node)))


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
        on_state: Called with one sentence when the state of the connection changes.

    Raises:
        UsageError: The name cannot be resolved.
    """

    def __init__(
        self, address: TcpAddress, trust: Trust, on_state: Callable[[str], None], clock: Clock | None = None
    ) -> None:
        self.is_watched_closed = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._connection = RemoteConnection(address, trust, Sockets(self._context, self._poller))
        super().__init__(self._connection.link.send, clock or SystemClock(), topics=TOPICS)
        self._on_state = on_state
        self._reported = ""
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
        """Wake up when a pipe's other end writes; what it writes stays there."""
        self._poller.register(fd, zmq.POLLIN)

    def close(self) -> None:
        self._connection.link.close()
        self._context.destroy(linger=0)

    def _explain_relay(self, known: KnownNodes) -> str:
        names = [node.name for node in known.nodes if node.name.isprintable()]
        shown = ", ".join([*names[:MOST_SHOWN], *(["…"] if len(names) > MOST_SHOWN else [])]) or "none yet"
        return (
            f"--connect {self._connection.address.label}: this is a relay, and analyzers need the "
            "agent itself; connect to an agent behind it, at an address that is reachable from here: "
            f"{shown}"
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
        if state is not None and state != self._reported:
            self._reported = state
            self._on_state(state)

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
            return f"{name}: {'connection lost; trying again' if is_known else self._connection.silence}"
        return None
