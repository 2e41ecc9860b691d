"""The sockets of a hub: three in its runtime folder and, where it listens, the gate of its tcp port."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from ..clock import Clock
from ..cluster.remote_peer import RemotePeer
from ..errors import RuntimeFolderError
from ..model import Sample
from .device_trimming import Told
from .endpoints import endpoints_of
from .messages import TOPIC_VIEWER, Request
from .published import encode_told, encode_wanted
from .wire import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from ..cluster.gate import Gate
    from ..cluster.listening import Listening

SEND_QUEUE_MESSAGES = 256
"""Messages a stalled viewer may fall behind before new ones are dropped for it alone."""
MAX_REQUESTS_PER_TURN = 64


class HubSockets:
    """Carries what a hub says and hears; use from its thread.

    Args:
        runtime_dir: Private folder that holds the sockets.
        hub_id: Of the hub.
        node: Name of its node.
        listening: Where it listens beyond its folder; None for nowhere.
        clock: Where time is read.

    Raises:
        RuntimeFolderError: A socket cannot be made in the folder.
        UsageError: The tcp port is taken, or its address is none of this machine.
    """

    def __init__(
        self, runtime_dir: Path, hub_id: str, node: str, listening: "Listening | None", clock: Clock
    ) -> None:
        self._context = zmq.Context()
        self._node, self._hub_id = node.encode(), hub_id
        self._sample: Sample | None = None
        self._stream = self._bind(zmq.XPUB, endpoints_of(runtime_dir).stream)
        self._stream.setsockopt(zmq.XPUB_VERBOSER, 1)
        self._reports = self._bind(zmq.PULL, endpoints_of(runtime_dir).reports)
        self._control = self._bind(zmq.ROUTER, endpoints_of(runtime_dir).control)
        self._gate = None if listening is None else self._open_gate(listening, hub_id, node, clock)
        self._poller = zmq.Poller()
        gate = () if self._gate is None else (self._gate.questions, self._gate.router)
        for socket in (self._stream, self._reports, self._control, *gate):
            self._poller.register(socket, zmq.POLLIN)
        self._ready: dict[object, int] = {}

    def _bind(self, kind: int, address: str) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, SEND_QUEUE_MESSAGES)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            raise RuntimeFolderError(
                f"cannot listen on {address}: {error}; see `vramscope doctor`"
            ) from error
        return socket

    def _open_gate(self, listening: "Listening", hub_id: str, node: str, clock: Clock) -> "Gate":
        from ..cluster.gate import Gate  # most hubs listen nowhere

        return Gate(self._context, listening, node, hub_id, clock)

    @property
    def remote_viewers(self) -> int:
        """Viewers that follow over tcp."""
        return 0 if self._gate is None else self._gate.viewers

    @property
    def notes(self) -> tuple[str, ...]:
        """What went wrong at the tcp port, in sentences."""
        return () if self._gate is None else self._gate.notes

    def wait(self, timeout_ms: int) -> None:
        """Wait until something arrives, or the time is up; let in over tcp who may come in."""
        self._ready = dict(self._poller.poll(timeout_ms))
        if self._gate is not None and self._gate.questions in self._ready:
            self._gate.take_questions()

    def cut_off_revoked(self) -> None:
        """Send nothing more to those who may follow no longer."""
        if self._gate is not None:
            self._gate.cut_off_revoked()

    def publish(self, topic: bytes, told: Told) -> None:
        """Tell all who follow a topic; over tcp nothing of devices for which they did not ask."""
        if isinstance(told, Sample):
            self._sample = told
        message = encode_told(topic, self._hub_id, told)
        self._stream.send_multipart([topic + self._node, message])
        if self._gate is not None:
            self._gate.publish(
                topic, message, trim=lambda it: encode_wanted(topic, self._hub_id, told, it, self._sample)
            )

    def has_followers(self, topic: bytes) -> bool:
        """Return whether anybody follows a topic over tcp."""
        return self._gate is not None and self._gate.has_followers(topic)

    def answer(self, peer: bytes, message: bytes) -> None:
        """Send an answer to who asked, wherever that is."""
        if self._gate is not None and isinstance(peer, RemotePeer):
            self._gate.answer(peer, message)
        else:
            self._control.send_multipart([peer, message])

    def answer_join(self, peer: bytes, request: Request, message: bytes) -> None:
        """Send everything to who asked for it, wherever that is."""
        if self._gate is not None and isinstance(peer, RemotePeer):
            self._gate.answer_join(peer, request, message)
        else:
            self._control.send_multipart([peer, message])

    def refuse(self, peer: bytes, request: Request) -> str | None:
        """Return why a request is refused, in one sentence, or None; over ipc everything may be."""
        if self._gate is None or not isinstance(peer, RemotePeer):
            return None
        return self._gate.refuse(peer, request)

    def is_on_its_way(self, peer: bytes, request: Request) -> bool:
        """Return whether an answer to this very request was sent already, over a line that may be slow."""
        if self._gate is None or not isinstance(peer, RemotePeer):
            return False
        return self._gate.is_on_its_way(peer, request)

    def refuse_report(self, peer: bytes) -> str | None:
        """Return why what a worker tells by way of requests is refused, in one sentence, or None."""
        if self._gate is None or not isinstance(peer, RemotePeer):
            return "workers of this node report by a socket of their own"
        return self._gate.refuse_report(peer)

    def take_reports(self) -> Iterator[bytes]:
        """Yield what workers report."""
        if self._reports in self._ready:
            for _ in range(MAX_REQUESTS_PER_TURN):
                try:
                    yield self._reports.recv(zmq.NOBLOCK)
                except zmq.Again:
                    return

    def take_attendance(self) -> Iterator[bool]:
        """Yield whether a viewer came or left: ZeroMQ tells, however it leaves."""
        while self._stream in self._ready:
            try:
                event = self._stream.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            if event[1:] == TOPIC_VIEWER:
                yield event[0] == 1

    def take_requests(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield what is asked, each with who asks."""
        if self._control in self._ready:
            for _ in range(MAX_REQUESTS_PER_TURN):
                try:
                    peer, *_, data = self._control.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                yield peer, data
        if self._gate is not None and self._gate.router in self._ready:
            yield from self._gate.take_requests()

    def close(self) -> None:
        """Stop listening."""
        self._context.destroy(linger=0)
