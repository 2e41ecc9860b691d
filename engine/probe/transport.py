"""The socket to the hub, and what waits to be sent through it."""

from __future__ import annotations

import os
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import Any, Callable

from . import wire
from .clock import SystemClock
from .identity import identify, is_still
from .wire import MAX_PACKET_BYTES, SOCKET_NAME

# Half a minute at ten a second.
MOST_READINGS = 300
MOST_STEPS = 600
_MOST_ERRORS = 8
# Parts of an answer in one flush, so that readings are never far behind.
_PARTS_AT_ONCE = 4


class Outbox:
    """Messages on their way to the hub. The thread that trains may add steps, our own adds all else."""

    def __init__(self) -> None:
        # Readings that were lost since the start.
        self.dropped = 0
        # Allocations and frees since the start of the process, as of the newest reading.
        self.counts: tuple[int | None, int | None] = (None, None)
        self.phase: str | None = None
        self.memory_history = "off"
        self._hello: dict[str, Any] | None = None
        self._is_hello_due = False
        self._model_state: dict[str, int | None] | None = None
        self._is_model_state_due = False
        self._readings: deque[wire.ReadingRow] = deque()
        self._steps: deque[wire.StepRow | wire.SizedStepRow] = deque(maxlen=MOST_STEPS)
        # The newest row of each phase; there are few names.
        self._phases: dict[str, wire.PhaseRow] = {}
        self._phases_due: dict[str, wire.PhaseRow] = {}
        self._errors: deque[bytes] = deque(maxlen=_MOST_ERRORS)
        self._parts: dict[str, deque[bytes]] = {}
        # A packet that found no room in the socket; it goes next.
        self._pending: bytes | None = None

    @property
    def has_hello(self) -> bool:
        return self._hello is not None

    def say_hello(self, about: dict[str, Any]) -> None:
        """Announce who reports, if that has changed."""
        if about != self._hello:
            self._hello = about
            self._is_hello_due = True

    def begin_connection(self) -> None:
        """Send the hello first on a new connection, and known model state and phases again."""
        self._is_hello_due = self._hello is not None
        self._phases_due = dict(self._phases)
        self._is_model_state_due = self._model_state is not None
        self._parts.clear()

    def put_reading(self, row: wire.ReadingRow) -> None:
        """Add one reading; without room the oldest is dropped and counted."""
        if len(self._readings) >= MOST_READINGS:
            self._readings.popleft()
            self.dropped += 1
        self._readings.append(row)

    def put_step(self, row: wire.StepRow | wire.SizedStepRow) -> None:
        self._steps.append(row)

    def put_phase(self, row: wire.PhaseRow) -> None:
        """Only the newest row of each name is sent."""
        self._phases[row[0]] = self._phases_due[row[0]] = row

    def put_model_state(self, state: dict[str, int | None]) -> None:
        """Only the newest state is sent, and only if it changed."""
        if state != self._model_state:
            self._model_state = state
            self._is_model_state_due = True

    def put_out_of_memory(self, packet: bytes) -> None:
        self._errors.append(packet)

    def put_parts(self, kind: str, packets: list[bytes]) -> None:
        """Add the parts of an answer; they replace those of an earlier one of the kind."""
        self._parts[kind] = deque(packets)

    def has_parts(self, kind: str) -> bool:
        """Parts of an answer of this kind wait to be sent."""
        return bool(self._parts.get(kind))

    def flush(self, send: Callable[[bytes], bool]) -> bool:
        """Send until there is no room; return whether everything was sent."""
        if self._is_hello_due and self._hello is not None:
            if not send(wire.encode_hello(self._hello)):
                return False
            self._is_hello_due = False
        for packet in self._packets():
            if not send(packet):
                self._pending = packet
                return False
        return True

    def _packets(self) -> Iterator[bytes]:
        """Yield packets; one that was yielded is no longer waiting."""
        if self._pending is not None:
            packet = self._pending
            self._pending = None
            yield packet
        while self._errors:
            yield self._errors.popleft()
        if self._is_model_state_due and self._model_state is not None:
            self._is_model_state_due = False
            yield wire.encode_model_state(self._model_state)
        while self._steps:
            yield wire.encode_steps(_pop_rows(self._steps))
        if self._phases_due:
            phases = self._phases_due
            self._phases_due = {}
            yield wire.encode_phases(list(phases.values()))
        while self._readings:
            rows = _pop_rows(self._readings)
            yield wire.encode_readings(rows, self.dropped, self.phase, self.memory_history, self.counts)
        for parts in tuple(self._parts.values()):
            for _ in range(min(_PARTS_AT_ONCE, len(parts))):
                yield parts.popleft()


def _pop_rows(waiting: deque[Any]) -> list[Any]:
    """Remove and return the oldest rows that one packet may carry; another thread may add meanwhile."""
    return [waiting.popleft() for _ in range(min(len(waiting), wire.MOST_ROWS))]


_FIRST_RETRY_S = 0.5
_LONGEST_RETRY_S = 8.0
# Read at one go; a hub that asks for more waits for the next.
_MOST_DEMANDS = 16
# Process, user and group id: `struct ucred` of unix(7).
_CREDENTIALS = struct.Struct("3i")


class Connection:
    """One connection to the hub, opened again with growing pauses whenever it is lost.

    Args:
        clock: For the time between two tries.
        uid: User to whom the hub may belong besides root; None for the user of this process.
    """

    def __init__(self, folder: str, clock: SystemClock, uid: int | None = None) -> None:
        self.path = os.path.join(folder, SOCKET_NAME)  # noqa: PTH118 - pathlib costs its import everywhere
        # Why the newest socket found was not used, in one sentence.
        self.refusal: str | None = None
        self._clock = clock
        self._uid = os.geteuid() if uid is None else uid
        self._socket: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        self._retry_s = _FIRST_RETRY_S
        self._next_try_s = float("-inf")

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def open(self) -> bool:
        """Connect if that is due; return whether there is a new connection.

        Call it before sending or receiving, for it also makes sure that the socket is ours.
        """
        self._drop_foreign_socket()
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
        """Send one packet; False if the hub has no room for it or is gone."""
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
        """Close the connection; the next `open` tries again after the shortest pause."""
        self._drop_foreign_socket()
        if self._socket is not None:
            self._socket.close()
            self._forget()

    def _drop_foreign_socket(self) -> None:
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
