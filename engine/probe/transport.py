"""The way to the hub: a unix socket of packets that is never waited for."""

from __future__ import annotations

import os
import socket
import struct

from .clock import SystemClock
from .descriptors import identify, is_still
from .wire import MAX_PACKET_BYTES, SOCKET_NAME

_FIRST_RETRY_S = 0.5
_LONGEST_RETRY_S = 8.0
_MOST_DEMANDS = 16
"""Read at one go; a hub that asks for more waits for the next."""
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group id: `struct ucred` of unix(7)."""


class Connection:
    """One connection to the hub, opened again with growing pauses whenever it is lost.

    Args:
        folder: The runtime folder.
        clock: Where the time between two tries comes from.
        uid: User to whom the hub may belong besides root; None for the user of this process.
    """

    def __init__(self, folder: str, clock: SystemClock, uid: int | None = None) -> None:
        self.path = os.path.join(folder, SOCKET_NAME)  # noqa: PTH118 - pathlib costs its import everywhere
        self.refusal: str | None = None
        """Why the newest socket found was not used, in one sentence."""
        self._clock = clock
        self._uid = os.geteuid() if uid is None else uid
        self._socket: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        self._retry_s = _FIRST_RETRY_S
        self._next_try_s = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether packets can be handed over."""
        return self._socket is not None

    def open(self) -> bool:
        """Connect where that is due, and tell whether a new connection stands.

        Comes before whatever is sent or received in one go, for it also makes sure that the socket is ours.
        """
        self._let_go_of_foreign()
        if self._socket is not None or self._clock.monotonic_s() < self._next_try_s:
            return False
        try:
            self._socket = self._connect()
        except (OSError, AttributeError):
            # AttributeError: no packet sockets or peer credentials on this system.
            self._socket = None
        if self._socket is None:
            self._next_try_s = self._clock.monotonic_s() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
            return False
        self._identity = identify(self._socket.fileno())
        self._retry_s = _FIRST_RETRY_S
        return True

    def send(self, packet: bytes) -> bool:
        """Hand one packet over; False where the hub has no room for it or is gone."""
        if self._socket is None:
            return False
        try:
            self._socket.send(packet, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return False
        return True

    def receive(self) -> list[bytes]:
        """Return the packets that have arrived."""
        packets: list[bytes] = []
        while self._socket is not None and len(packets) < _MOST_DEMANDS:
            try:
                packet = self._socket.recv(MAX_PACKET_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                packet = b""
            if not packet:
                self.close()
                break
            packets.append(packet)
        return packets

    def close(self) -> None:
        """Give the connection up; the next `open` tries anew after the shortest pause."""
        self._let_go_of_foreign()
        if self._socket is not None:
            self._socket.close()
            self._forget()

    def _let_go_of_foreign(self) -> None:
        """Forget a socket that the program has closed: its number may be that of a file of the program."""
        if self._socket is not None and not is_still(self._socket.fileno(), self._identity):
            self._socket.detach()
            self._forget()

    def _forget(self) -> None:
        self._socket = None
        self._next_try_s = self._clock.monotonic_s() + self._retry_s

    def _connect(self) -> socket.socket | None:
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            fresh.connect(self.path)
            peer = fresh.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            owner = _CREDENTIALS.unpack(peer)[1]
        except BaseException:
            fresh.close()
            raise
        if owner in {self._uid, 0}:
            self.refusal = None
            return fresh
        fresh.close()
        self.refusal = f"the hub at {self.path} belongs to user id {owner}, not to this user or root"
        return None
