"""A connection to one hub that is made again and again, with the words for why it is not."""

import math
from collections import deque
from typing import NamedTuple

import zmq

from ..errors import UsageError
from .link_times import LinkTimes
from .name_lookup import FoundAddress
from .remote_link import Failure, NodeKeys, RemoteLink
from .tcp_address import TcpAddress
from .trust import Trust, check_reachable

CUT_TOLD_S = 20.0
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
    """Keeps one link open; use from one thread.

    Args:
        address: As it was typed.
        trust: Keys of this user.
        sockets: Shared with other connections.
    """

    answers_within_s = 2.0
    node = ""

    def __init__(self, address: TcpAddress, trust: Trust, sockets: Sockets) -> None:
        self.address = address
        self._trust = trust
        self.link = RemoteLink(sockets.context, sockets.poller, sockets.times)
        self.trouble: str | None = None
        """Why the hub cannot be reached, in one sentence; None where nothing speaks against it."""
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
        return (
            f"{self.address.text} speaks without keys: who answers there is not proven"
            if is_unproven
            else None
        )

    @property
    def is_connected(self) -> bool:
        """Whether what is sent now may arrive."""
        return self.link.is_connected

    @property
    def sources(self) -> tuple[object, ...]:
        """Sockets that the loop waits for."""
        return self.link.sockets

    @property
    def from_relay(self) -> "deque[tuple[bytes, bytes]]":
        """Messages of nodes behind a relay, where one listens there: name of the node, and message."""
        return self.link.from_relay

    @property
    def silence(self) -> str:
        """What is said of a hub that has not answered yet, and nobody knows why."""
        return f"does not answer: no agent listens at {self.address.text}, or the way to it is closed"

    def silence_s(self, now_s: float) -> float | None:
        """Return None: nobody is between who could have heard of the node."""
        return None

    def send(self, data: bytes) -> None:
        """Send a message; it is lost where nobody is connected."""
        self.link.send(data)

    def receive(self) -> list[bytes]:
        """Return the messages that have come, without waiting."""
        return self.link.receive()

    def close(self) -> None:
        """Disconnect."""
        self.link.close()

    def find(self, found: FoundAddress) -> None:
        """Take the numeric address of the host, or why there is none; connect to it."""
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
        """Take what is told of the link; return whether it was made since the last call."""
        was_made = self.link.note_events()
        if was_made:
            self.trouble = None
        return was_made

    def mend(self, now_s: float, *, is_silent: bool = False) -> None:
        """Begin anew where a handshake failed or the link is dead; ZeroMQ by itself repeats what was cut."""
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
        """Tell of a handshake that was cut for as long as the next ones may be cut too."""
        self.link.failure = None
        self._cut_until_s = now_s + CUT_TOLD_S
        self.trouble = (
            f"{self.address.text} was reached and did not go on: the network between is cut or too slow, or "
            "who listens there hangs"
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
