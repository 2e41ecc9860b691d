"""The sockets of a hub: three in its runtime folder and, if it listens there, the gate of its tcp port."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import zmq

from ..clock import Clock
from ..errors import RuntimeFolderError
from ..model import Sample
from ..wire.cells import encode_part, encode_told
from ..wire.endpoints import endpoints_of
from ..wire.messages import MAX_MESSAGE_BYTES, TOPIC_FINDING, TOPIC_HUB, TOPIC_SAMPLE, TOPIC_VIEWER, Request
from ..wire.selection import Cut, RemotePeer, Told, select_devices

if TYPE_CHECKING:
    from ..cluster.gate import Gate, Listening

# How far a stalled viewer may fall behind before new messages are dropped for it alone.
SEND_QUEUE_MESSAGES = 256
MAX_REQUESTS_PER_TURN = 64
# Time of a turn for reports, however many there are: samples must not wait for a flood of them.
REPORTS_WITHIN_S = 0.1
# Reports, maybe of megabytes, that ZeroMQ has read and the hub has not; more wait at their senders.
MAX_REPORTS_WAITING = 8
# A larger request disconnects its sender; only reports, on a socket of their own, are larger.
MAX_REQUEST_BYTES = 1 << 20
# Answers that wait for one peer of the folder that does not read; an answer may be of megabytes.
MAX_ANSWERS_WAITING = 64
# ZeroMQ disconnects a peer with a longer one: it keeps some fifty bytes for each, and never frees them.
MAX_SUBSCRIPTION_BYTES = 256
# Different subscribed topics, by all together; viewers share six.
MAX_TOPICS = 256
# Subscriptions to one topic: repeated ones of one peer are counted each time, but it leaves only once.
MAX_SUBSCRIBERS = 1024
MAX_SUBSCRIPTIONS_WAITING = 64
UNBINDS_WITHIN_S = 1.0


class HubSockets:
    """Sends and receives for a hub; use from its thread.

    Raises:
        UsageError: The tcp port is taken, or its address is not one of this machine.
    """

    def __init__(
        self, runtime_dir: Path, hub_id: str, node: str, listening: "Listening | None", clock: Clock
    ) -> None:
        self._context = zmq.Context()
        self._node = node.encode()
        # What was published in this turn and is not sent yet.
        self._outbox: list[tuple[bytes, bytes]] = []
        self._hub_id = hub_id
        self._sample: Sample | None = None
        self._endpoints = endpoints = endpoints_of(runtime_dir)
        self._stream = self._bind_stream()
        self._topics: Counter[bytes] = Counter()
        self._restarts = 0
        self._flooder = ""
        # Whether viewers were cut off; they reconnect within about a second. Reset by its reader.
        self.is_stream_new = False
        self._reports = self._bind(zmq.PULL, endpoints.reports, {zmq.RCVHWM: MAX_REPORTS_WAITING})
        self._control = self._bind(
            zmq.ROUTER,
            endpoints.control,
            {zmq.SNDHWM: MAX_ANSWERS_WAITING, zmq.MAXMSGSIZE: MAX_REQUEST_BYTES},
        )
        self._clock = clock
        self._gate = None if listening is None else self._open_gate(listening, hub_id, node, clock)
        self._poller = zmq.Poller()
        gate = () if self._gate is None else (self._gate.questions, self._gate.router)
        for socket in (self._stream, self._reports, self._control, *gate):
            self._poller.register(socket, zmq.POLLIN)
        self._ready: dict[object, int] = {}
        self._watched: int | None = None

    def _bind(self, kind: int, address: str, options: Mapping[int, int] | None = None) -> "zmq.Socket[bytes]":
        socket = self._context.socket(kind)
        usual = {zmq.LINGER: 0, zmq.SNDHWM: SEND_QUEUE_MESSAGES, zmq.MAXMSGSIZE: MAX_MESSAGE_BYTES}
        for option, value in (usual | dict(options or {})).items():
            socket.setsockopt(option, value)
        _listen(socket, address)
        return socket

    def _bind_stream(self) -> "zmq.Socket[bytes]":
        """The socket of the stream; it receives subscriptions, which are short and few."""
        options: dict[int, int] = {
            zmq.XPUB_VERBOSER: 1,
            zmq.MAXMSGSIZE: MAX_SUBSCRIPTION_BYTES,
            zmq.RCVHWM: MAX_SUBSCRIPTIONS_WAITING,
        }
        return self._bind(zmq.XPUB, self._endpoints.stream, options)

    def _restart_stream(self, flooder: str) -> None:
        """Open the stream again without its subscriptions: viewers come back and ask for what they missed.

        ZeroMQ neither refuses a subscription nor disconnects one peer.
        """
        self._restarts = self._restarts + 1
        self._flooder = flooder
        self._poller.unregister(self._stream)
        with suppress(zmq.ZMQError):
            self._stream.unbind(self._endpoints.stream)
        path = Path(self._endpoints.stream.removeprefix("ipc://"))
        end_s = time.monotonic() + UNBINDS_WITHIN_S
        while path.exists() and time.monotonic() < end_s:
            time.sleep(0.001)  # its thread removes the file, and must not remove that of the next
        self._stream.close(linger=0)
        self._topics.clear()
        self._stream = self._bind_stream()
        self._poller.register(self._stream, zmq.POLLIN)
        self.is_stream_new = True

    def restore(self) -> None:
        """Listen again if a socket's file was removed; connected peers stay connected."""
        endpoints = self._endpoints
        for socket, address in (
            (self._stream, endpoints.stream),
            (self._reports, endpoints.reports),
            (self._control, endpoints.control),
        ):
            if not os.path.exists(address.removeprefix("ipc://")):  # noqa: PTH110 - a tenth of a Path's cost
                _listen(socket, address)

    def _open_gate(self, listening: "Listening", hub_id: str, node: str, clock: Clock) -> "Gate":
        from ..cluster.gate import Gate  # most hubs listen nowhere

        return Gate(self._context, listening, node, hub_id, clock)

    @property
    def remote_viewers(self) -> int:
        return 0 if self._gate is None else self._gate.viewers

    @property
    def notes(self) -> tuple[str, ...]:
        """What went wrong at the sockets, in sentences."""
        times = "once" if self._restarts == 1 else f"{self._restarts:,} times"
        cut = f"the stream was reopened {times}: {self._flooder}"
        return (*((cut,) if self._restarts else ()), *(() if self._gate is None else self._gate.notes))

    def wait(self, timeout_ms: int) -> None:
        """Wait until something arrives, or the time is up; admit peers over tcp."""
        self._ready = dict(self._poller.poll(timeout_ms))
        if self._gate is not None and self._gate.questions in self._ready:
            self._gate.take_questions()

    def watch(self, fd: int | None) -> None:
        """Let a wait end when a file can be read, in place of the one before; None for no file."""
        if fd != self._watched:
            if self._watched is not None:
                self._poller.unregister(self._watched)
            if fd is not None:
                self._poller.register(fd, zmq.POLLIN)
            self._watched = fd

    @property
    def is_called(self) -> bool:
        """Whether somebody else than a worker has ended the wait."""
        return any(it is not self._reports for it in self._ready)

    def cut_off_revoked(self) -> None:
        """Send nothing more to peers whose keys were revoked."""
        if self._gate is not None:
            self._gate.cut_off_revoked()

    def publish_sample(self, sample: Sample, shortened: Sample) -> None:
        """Send a sample without what is as in the one before to all who have that one."""
        self._sample = sample
        self.publish(TOPIC_SAMPLE, shortened)

    def publish(self, topic: bytes, body: Told) -> None:
        """Send to all who follow a topic; over tcp only what each may read, of devices that it asked for.

        In the folder `flush` sends it, all of a turn at once, so that whoever follows wakes once for it.
        """
        if topic in (TOPIC_FINDING, TOPIC_HUB) and not self.is_followed:
            return  # who comes gets all of it with the welcome
        message = encode_told(topic, self._hub_id, body)
        self._outbox.append((topic + self._node, message))
        if self._gate is not None:
            self._gate.publish(
                topic,
                message,
                cut=lambda part: encode_part(topic, self._hub_id, body, part, self._sample),
                has_commands=isinstance(body, Sample) and topic == TOPIC_SAMPLE,
            )

    @property
    def is_followed(self) -> bool:
        """Whether others than workers follow, who receive samples alone."""
        return self._topics[TOPIC_HUB] > 0 or self.remote_viewers > 0

    def flush(self) -> None:
        """Send what was published since the last call."""
        for frames in self._outbox:
            self._stream.send_multipart(frames)
        self._outbox.clear()

    def has_followers(self, topic: bytes) -> bool:
        return self._gate is not None and self._gate.has_followers(topic)

    def answer(self, peer: bytes, message: bytes) -> None:
        """Send an answer, over ipc or tcp."""
        if self._gate is not None and isinstance(peer, RemotePeer):
            self._gate.answer(peer, message)
        else:
            self._control.send_multipart([peer, message])

    def answer_join(self, peer: bytes, request: Request, message: bytes) -> None:
        """Send a welcome, over ipc or tcp."""
        if self._gate is not None and isinstance(peer, RemotePeer):
            self._gate.answer_join(peer, request, message)
        else:
            self._control.send_multipart([peer, message])

    def find_part(self, peer: bytes, request: Request) -> Cut:
        """Return what a peer gets of an answer; over ipc everything about the devices that it asked for."""
        if self._gate is None or not isinstance(peer, RemotePeer):
            return Cut(select_devices(request.devices))
        return self._gate.find_part(peer, request)

    def refuse(self, peer: bytes, request: Request) -> str | None:
        """Return why a request is refused, in one sentence, or None; over ipc everything is allowed."""
        if self._gate is None or not isinstance(peer, RemotePeer):
            return None
        return self._gate.refuse(peer, request)

    def is_on_its_way(self, peer: bytes, request: Request) -> bool:
        """Return whether an answer to this very request was sent already, over a line that may be slow."""
        if self._gate is None or not isinstance(peer, RemotePeer):
            return False
        return self._gate.is_on_its_way(peer, request)

    def refuse_report(self, peer: bytes) -> str | None:
        """Return why a worker's report by way of requests is refused, in one sentence, or None."""
        if self._gate is None or not isinstance(peer, RemotePeer):
            return "workers on this node must report on their own socket"
        return self._gate.refuse_report(peer)

    def take_reports(self) -> Iterator[bytes]:
        """Yield reports of workers, for a part of a turn; the rest is for the next."""
        if self._reports in self._ready:
            ends_s = self._clock.monotonic_s() + REPORTS_WITHIN_S
            for number in range(MAX_REQUESTS_PER_TURN):
                if number and self._clock.monotonic_s() >= ends_s:
                    return
                try:
                    yield self._reports.recv(zmq.NOBLOCK)
                except zmq.Again:
                    return

    def take_attendance(self) -> Iterator[bool]:
        """Yield whether a viewer came or left: ZeroMQ notices, however it leaves."""
        for _ in range(4 * MAX_TOPICS if self._stream in self._ready else 0):
            try:
                frame = self._stream.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            event = frame.bytes
            if event[:1] not in (b"\0", b"\1"):
                continue  # XPUB hands on whatever a peer writes
            topic = event[1:]
            has_come = event[0] == 1
            self._topics[topic] += 1 if has_come else -1
            if self._topics[topic] <= 0:
                del self._topics[topic]
            if topic == TOPIC_VIEWER:
                yield has_come
            if len(self._topics) > MAX_TOPICS or self._topics[topic] > MAX_SUBSCRIBERS:
                viewers = self._topics[TOPIC_VIEWER]
                wanted = f"more than {MAX_TOPICS} topics"
                if len(self._topics) <= MAX_TOPICS:
                    wanted = f"one topic that already had {MAX_SUBSCRIBERS:,} subscriptions"
                self._restart_stream(f"{_name_peer(frame)} subscribed to {wanted}")
                yield from (False for _ in range(viewers))
                return

    def take_requests(self) -> Iterator[tuple[bytes, bytes]]:
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
        self._context.destroy(linger=0)


def _name_peer(frame: zmq.Frame) -> str:
    """Name the process behind a message of a socket in the folder, by the kernel's word."""
    try:
        _, _uid, _gid, pid = str(frame.get("Peer-Address")).split(":")
    except (zmq.ZMQError, ValueError):
        return "a process"
    return f"process {pid}"


def _listen(socket: "zmq.Socket[bytes]", address: str) -> None:
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise RuntimeFolderError(f"cannot listen on {address}: {error}; see `vramscope doctor`") from error
