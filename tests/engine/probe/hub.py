"""A hub for the tests: a real socket of packets, decoded with the structs of the real hub."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.waiting import wait_until
from vramscope.engine.ranks.messages import (
    MAX_PACKET_BYTES,
    PROBE_PROTOCOL,
    PROBE_SOCKET_NAME,
    Demand,
    Goodbye,
    Hello,
    ProbeMessage,
    ReadingRow,
    Readings,
    StepRow,
    Steps,
)

Message = TypeVar("Message")


class ListeningHub:
    """Accepts probes and keeps what they say, each connection in the order of its packets."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / PROBE_SOCKET_NAME
        self.connections: list[list[ProbeMessage]] = []
        self._peers: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._start(self._accept)

    def of(self, kind: type[Message]) -> list[Message]:
        """Return all messages of one kind, those of older connections first."""
        everything = [message for connection in list(self.connections) for message in list(connection)]
        return [message for message in everything if isinstance(message, kind)]

    def readings(self) -> list[ReadingRow]:
        """Return every row of readings."""
        return [row for message in self.of(Readings) for row in message.rows]

    def steps(self) -> list[StepRow]:
        """Return every row of steps."""
        return [row for message in self.of(Steps) for row in message.rows]

    def hello(self) -> Hello:
        """Return the newest hello."""
        return self.of(Hello)[-1]

    def wait_for(self, kind: type[Message], count: int = 1, timeout_s: float = 60.0) -> list[Message]:
        """Return the messages of a kind once there are so many."""
        wait_until(lambda: len(self.of(kind)) >= count, timeout_s, f"{count} {kind.__name__}")
        return self.of(kind)

    def wait_for_goodbye(self) -> Goodbye:
        """Return the first goodbye."""
        return self.wait_for(Goodbye)[0]

    def demand(self, demand: Demand) -> None:
        """Ask the newest connection for something."""
        self._peers[-1].send(msgspec.json.encode(demand))

    def ask_for(self, kind: str, **fields: object) -> None:
        """Ask the newest connection, by the words of the protocol."""
        self.demand(msgspec.convert({"v": PROBE_PROTOCOL, "kind": kind, **fields}, Demand))

    def close(self) -> None:
        """Hang up and take the socket away, as a hub that dies."""
        self._hang_up(self._listener)
        # The thread that accepts comes first; once it has ended there are no more peers.
        self._threads[0].join(5)
        for peer in self._peers:
            self._hang_up(peer)
        for thread in self._threads:
            thread.join(5)
        self.path.unlink(missing_ok=True)

    @staticmethod
    def _hang_up(each: socket.socket) -> None:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._peers.append(peer)
            self.connections.append([])
            self._start(self._read, peer, self.connections[-1])

    @staticmethod
    def _read(peer: socket.socket, kept: list[ProbeMessage]) -> None:
        while True:
            try:
                packet = peer.recv(2 * MAX_PACKET_BYTES)
            except OSError:
                return
            if not packet:
                return
            assert len(packet) <= MAX_PACKET_BYTES
            kept.append(msgspec.json.decode(packet, type=ProbeMessage))


@contextlib.contextmanager
def listen(folder: Path) -> Iterator[ListeningHub]:
    """Listen in a runtime folder for the length of a with block."""
    hub = ListeningHub(folder)
    try:
        yield hub
    finally:
        hub.close()
