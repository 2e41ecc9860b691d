"""One end of a hub's stream over its sockets in the runtime folder."""

import os
from pathlib import Path

import zmq

from ..clock import Clock, SystemClock, ceil_ms
from ..wire.endpoints import endpoints_of
from ..wire.envelope import MAX_HISTORY_BYTES, MAX_MESSAGE_BYTES
from ..wire.messages import TOPIC_FINDING, TOPIC_HUB, TOPIC_SAMPLE, TOPIC_SEGMENTS, TOPIC_VIEWER
from .conversation import Event, HubConversation

QUEUE_MESSAGES = 256
"""Messages a stalled reader may fall behind before new ones are dropped; the ring then fills the gap."""


class HubStream(HubConversation):
    """Subscribes to one hub of this user and node; yields events in order. Use from one thread only.

    Args:
        runtime_dir: Folder of the hub.
        is_viewer: Whether to be told findings and the hub's own state too.
        is_counted: Whether a viewer counts as one, for whom a hub stays.
        clock: Injected in tests.
    """

    def __init__(
        self, runtime_dir: Path, *, is_viewer: bool, is_counted: bool = True, clock: Clock | None = None
    ) -> None:
        self.is_watched_closed = False
        """Whether the pipe given to `watch` was closed at its other end."""
        self.is_woken = False
        """Whether something was written to that pipe during the last `events`."""
        self._watched_fd: int | None = None
        self._context = zmq.Context()
        self._subscriber = self._context.socket(zmq.SUB)
        self._control = self._context.socket(zmq.DEALER)
        super().__init__(self._control.send, clock or SystemClock())
        self._poller = zmq.Poller()
        self._connect(runtime_dir, is_viewer, is_counted)

    def _connect(self, runtime_dir: Path, is_viewer: bool, is_counted: bool) -> None:
        endpoints = endpoints_of(runtime_dir)
        for socket in (self._subscriber, self._control):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)
            socket.setsockopt(zmq.RECONNECT_IVL, 100)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
            self._poller.register(socket, zmq.POLLIN)
        self._subscriber.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._control.setsockopt(zmq.MAXMSGSIZE, MAX_HISTORY_BYTES)
        topics = [TOPIC_SAMPLE, TOPIC_SEGMENTS]
        if is_viewer:
            topics += [TOPIC_FINDING, TOPIC_HUB, *([TOPIC_VIEWER] if is_counted else [])]
        for topic in topics:
            self._subscriber.setsockopt(zmq.SUBSCRIBE, topic)
        self._subscriber.connect(endpoints.stream)
        self._control.connect(endpoints.control)
        self.ask()

    def events(self, timeout_s: float) -> list[Event]:
        """Wait until something arrives and return all that has, oldest first; empty after `timeout_s`."""
        found: list[Event] = []
        ready = dict(self._poller.poll(ceil_ms(timeout_s)))
        self.is_woken = False
        if self._watched_fd is not None and self._watched_fd in ready:
            self.is_woken = bool(os.read(self._watched_fd, 64))
            self.is_watched_closed = not self.is_woken
        if self._control in ready:
            self._drain(self._control, found)
        if self._subscriber in ready:
            self._drain(self._subscriber, found)
        self.give_up_if_unanswered(found)
        return found

    def watch(self, fd: int) -> None:
        """Wake up when a pipe's other end writes, or closes: then `is_watched_closed` is set."""
        self._watched_fd = fd
        self._poller.register(fd, zmq.POLLIN | zmq.POLLERR)

    def close(self) -> None:
        """Disconnect."""
        self._context.destroy(linger=0)

    def _drain(self, socket: "zmq.Socket[bytes]", found: list[Event]) -> None:
        for _ in range(QUEUE_MESSAGES):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.take(frames[-1], found)
