"""A connection over tcp: its socket, its times, and the frames that carry a message."""

import errno
import os
import socket
import struct
from collections import deque
from contextlib import suppress
from typing import Final, Literal, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from .addresses import TcpAddress
from .keys import KeyPair


class LinkTimes(NamedTuple):
    """Settings of ZeroMQ in milliseconds; tests have shorter ones."""

    reconnect_ms: int = 1_000
    """From a connection that was lost, or refused, to the next attempt."""
    connect_within_ms: int = 3_500
    """The kernel knocks at 0, 1, 3 and 7 s, then ever more rarely: a new attempt is soon back."""
    handshake_within_ms: int = 5_000
    """Who has not shown a key by then is cut off, and tries again."""
    heartbeat_ms: int = 5_000
    """How often each end asks whether the other is there."""
    heartbeat_within_ms: int = 15_000
    """A connection that was cut silently is noticed after so long, and made again."""
    still_ms: int = 2_000
    """A connection to a silent node over which no byte has come for so long is made again at once."""


# A message of several frames arrives whole or not at all, but heartbeats count frames. So the history of a
# node may take minutes to come through, and a connection that is cut is still noticed within seconds.

PIECE_BYTES = 32 * 1024
"""Comes through within the 15 s of a heartbeat where a line carries 2.2 kB/s."""


def split(*frames: bytes) -> list[bytes]:
    """Return the frames that carry a message: as they are where it is short."""
    *name, message = frames
    if len(message) <= PIECE_BYTES:
        return list(frames)
    pieces = (message[at : at + PIECE_BYTES] for at in range(0, len(message), PIECE_BYTES))
    return [*(name or [b""]), b"", *pieces]


def join(frames: list[bytes]) -> tuple[bytes, bytes]:
    """Return the name of a node behind a relay, or nothing, and the message that came in these frames."""
    if len(frames) > 2 and not frames[1]:
        return frames[0], b"".join(frames[2:])
    return (frames[0] if len(frames) > 1 else b""), frames[-1]


MAX_INCOMING_BYTES = 64 * 1024**2
"""Largest message of a hub: the history of some hundred devices over a week."""
SEND_QUEUE_MESSAGES = 4096
"""Most requests that may wait: as many as a relay may have nodes, since all are asked at once."""
RECEIVE_QUEUE_MESSAGES = 256
"""Messages a stalled reader may fall behind before the hub drops new ones for it; its ring fills the gap."""
MOST_FROM_RELAY = 4 * RECEIVE_QUEUE_MESSAGES

Failure = Literal["refused", "mechanism", "handshake", "cut"]
"""Why a handshake failed. `refused`: the key is not allowed there; `mechanism`: one end wants keys and the
other has none; `handshake`: the other end has hung up, as it does where another key was expected; `cut`: the
network or who listens there did not let it end, which says nothing about keys."""

_FAILURES: Final[dict[int, Failure]] = {
    zmq.Event.HANDSHAKE_FAILED_AUTH: "refused",
    zmq.Event.HANDSHAKE_FAILED_PROTOCOL: "handshake",
}
_LISTENED_FOR: Final = (
    zmq.Event.CONNECTED
    | zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.DISCONNECTED
)


class NodeKeys(NamedTuple):
    """What proves who is at either end."""

    own: KeyPair
    node: bytes
    """Public key of the agent."""


class RemoteLink:
    """One socket that connects again and again; use from one thread.

    Args:
        poller: Gets the sockets to wait for.
    """

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        poller: zmq.Poller,
        times: LinkTimes | None = None,
    ) -> None:
        self.is_connected = False
        self.failure: Failure | None = None
        """Why the newest handshake failed; None where it did not, or there was none."""
        self._context = context
        self._poller = poller
        self._times = times or LinkTimes()
        self.from_relay: deque[tuple[bytes, bytes]] = deque(maxlen=MOST_FROM_RELAY)
        """Messages of nodes behind a relay: the name of the node, and the message."""
        self._socket: zmq.Socket[bytes] | None = None
        self._fd: int | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self.sockets: tuple[zmq.Socket[bytes], ...] = ()
        """Sockets to wait for: the connection, and its events."""

    def open(self, address: TcpAddress, keys: NodeKeys | None) -> None:
        """Begin to connect, without keys if `keys` is None, after closing what was open."""
        self.close()
        self._socket = socket = self._context.socket(zmq.DEALER)
        _set_options(socket, address, keys, self._times)
        self._monitor = socket.get_monitor_socket(_LISTENED_FOR)
        self.sockets = (socket, self._monitor)
        for each in self.sockets:
            self._poller.register(each, zmq.POLLIN)
        socket.connect(address.endpoint)

    @property
    def is_still(self) -> bool:
        """Whether it is connected, and no byte has come over it for a while.

        Only this distinguishes a long message on a slow line from a dead line.
        """
        silence_s = read_silence_s(self._fd) if self.is_connected and self._fd is not None else None
        return silence_s is not None and 1000 * silence_s >= self._times.still_ms

    def send(self, data: bytes) -> None:
        """Send a message; it is lost where nobody is connected."""
        if self._socket is not None:
            with suppress(zmq.Again):
                self._socket.send(data, zmq.NOBLOCK)

    def receive(self) -> list[bytes]:
        """Return the messages that have come, without waiting; those of nodes behind a relay are apart."""
        found: list[bytes] = []
        for _ in range(RECEIVE_QUEUE_MESSAGES):
            if self._socket is None:
                break
            try:
                name, message = join(self._socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                break
            if name:
                self.from_relay.append((name, message))
            else:
                found.append(message)
        return found

    def note_events(self) -> bool:
        """Process events of the connection; return whether it was made since the last call."""
        was_made = False
        while self._monitor is not None:
            try:
                message = recv_monitor_message(self._monitor, zmq.NOBLOCK)
            except zmq.Again:
                break
            event = int(message["event"])
            value = int(message["value"])
            if event == zmq.Event.CONNECTED:
                self._fd = value
            elif event == zmq.Event.HANDSHAKE_SUCCEEDED:
                self.is_connected = was_made = True
                self.failure = None
            elif event == zmq.Event.DISCONNECTED:
                self.is_connected = False
                self._fd = None
            else:
                self.failure = _name_failure(event, value)
        return was_made

    def close(self) -> None:
        for each in self.sockets:
            self._poller.unregister(each)
        if self._socket is not None:
            self._socket.disable_monitor()
            self._socket.close(linger=0)
        if self._monitor is not None:
            self._monitor.close(linger=0)
        self._socket = self._monitor = None
        self.sockets = ()
        self.is_connected = False
        self.failure = None
        self._fd = None


def _name_failure(event: int, value: int) -> Failure:
    """Return why a handshake failed, by the event of ZeroMQ."""
    if event == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL:  # the value is an errno, that of a timeout is EAGAIN
        return "handshake" if value == errno.EPIPE else "cut"
    is_mismatch = value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
    return "mechanism" if is_mismatch else _FAILURES.get(event, "handshake")


def _set_options(
    socket: "zmq.Socket[bytes]", address: TcpAddress, keys: NodeKeys | None, times: LinkTimes
) -> None:
    options: dict[int, int | bytes] = {
        zmq.LINGER: 0,
        zmq.IMMEDIATE: 1,  # what waited for a connection would be old news
        zmq.MAXMSGSIZE: MAX_INCOMING_BYTES,
        zmq.SNDHWM: SEND_QUEUE_MESSAGES,
        zmq.RCVHWM: RECEIVE_QUEUE_MESSAGES,
        zmq.RECONNECT_IVL: times.reconnect_ms,
        zmq.CONNECT_TIMEOUT: times.connect_within_ms,
        zmq.HANDSHAKE_IVL: times.handshake_within_ms,
        zmq.HEARTBEAT_IVL: times.heartbeat_ms,
        zmq.HEARTBEAT_TIMEOUT: times.heartbeat_within_ms,
        zmq.IPV6: int(":" in address.host),
    }
    if keys is not None:
        options |= {
            zmq.CURVE_SECRETKEY: keys.own.secret,
            zmq.CURVE_PUBLICKEY: keys.own.public,
            zmq.CURVE_SERVERKEY: keys.node,
        }
    for option, value in options.items():
        socket.setsockopt(option, value)


_DATA_RECEIVED_MS = struct.Struct("=52xI")
"""`tcpi_last_data_recv` in the kernel's `struct tcp_info`."""


def read_silence_s(fd: int) -> float | None:
    """Return the seconds since the last byte came, be it of a message that is not complete yet.

    Args:
        fd: Of a connection that ZeroMQ may close at any time.

    Returns:
        None where it is no connection over tcp any more, or the kernel does not say.
    """
    try:
        with socket.socket(fileno=os.dup(fd)) as connection:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _DATA_RECEIVED_MS.size)
        return float(_DATA_RECEIVED_MS.unpack(info)[0]) / 1000.0
    except (OSError, struct.error):
        return None
