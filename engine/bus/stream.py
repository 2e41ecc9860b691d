"""One end of a hub's stream: every sample in order, gaps filled from the hub's ring, the rest counted."""

import itertools
import os
from collections import deque
from pathlib import Path
from typing import Literal

import msgspec
import zmq

from ..alerts.state import AlertState, FindingDecision
from ..clock import Clock, SystemClock, ceil_ms
from ..errors import WireError
from ..model import Assessment, Finding, HubStatus, Sample
from ..ranks.segments import PackedSegments
from .endpoints import endpoints_of
from .messages import (
    TOPIC_FINDING,
    TOPIC_HUB,
    TOPIC_SAMPLE,
    TOPIC_SEGMENTS,
    TOPIC_VIEWER,
    Done,
    FindingBatch,
    Refusal,
    Request,
    Welcome,
)
from .wire import MAX_HISTORY_BYTES, MAX_MESSAGE_BYTES, body_of, decode, encode

QUEUE_MESSAGES = 256
"""Messages a stalled reader may fall behind before new ones are dropped; the ring then fills the gap."""
ANSWER_WITHIN_S = 3.0
MAX_PENDING = 1024


RankVerb = Literal["segments", "detach", "history"]
"""What can be asked of a training process."""


class Joined(msgspec.Struct, frozen=True):
    """The hub answered: at first, after it was restarted, or after a gap."""

    welcome: Welcome
    is_new_hub: bool
    held: tuple[Sample, ...] = ()
    """Samples in full that came while the answer was awaited, and are not newer than its own."""


class Assessed(msgspec.Struct, frozen=True):
    """How near each process is to running out of memory, all of them."""

    assessments: tuple[Assessment, ...]


Event = Joined | Sample | Finding | Assessed | AlertState | HubStatus | PackedSegments | Done | Refusal


class HubStream:
    """Subscribes to one hub; yields events in order. Use from one thread only."""

    def __init__(self, runtime_dir: Path, *, is_viewer: bool, clock: Clock | None = None) -> None:
        self.samples_dropped = 0
        """Samples that were published and never reached this end."""
        self.refused: str | None = None
        """Why the newest refused message was refused."""
        self.heard_s: float | None = None
        """When the hub was last heard, in monotonic seconds."""
        self.is_watched_closed = False
        """Whether the pipe given to `watch` was closed at its other end."""
        self.is_woken = False
        """Whether something was written to that pipe during the last `events`."""
        self._watched_fd: int | None = None
        self._clock = clock or SystemClock()
        self._hub_id: str | None = None
        self._last_seq: int | None = None
        self._pending: deque[Sample] = deque()
        self._asked: tuple[int, float] | None = None
        self._request_ids = itertools.count(1)
        self._context = zmq.Context()
        self._subscriber = self._context.socket(zmq.SUB)
        self._control = self._context.socket(zmq.DEALER)
        self._poller = zmq.Poller()
        self._connect(runtime_dir, is_viewer)

    def _connect(self, runtime_dir: Path, is_viewer: bool) -> None:
        endpoints = endpoints_of(runtime_dir)
        for socket in (self._subscriber, self._control):
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)
            socket.setsockopt(zmq.RECONNECT_IVL, 100)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
            self._poller.register(socket, zmq.POLLIN)
        self._subscriber.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
        self._control.setsockopt(zmq.MAXMSGSIZE, MAX_HISTORY_BYTES)
        topics = (TOPIC_SAMPLE, TOPIC_FINDING, TOPIC_HUB, TOPIC_SEGMENTS, TOPIC_VIEWER)
        for topic in topics if is_viewer else (TOPIC_SAMPLE, TOPIC_SEGMENTS):
            self._subscriber.setsockopt(zmq.SUBSCRIBE, topic)
        self._subscriber.connect(endpoints.stream)
        self._control.connect(endpoints.control)
        self.ask()

    def ask(self) -> None:
        """Ask the hub for everything it knows."""
        request_id = next(self._request_ids)
        self._asked = (request_id, self._clock.monotonic_s())
        self._control.send(encode("request", self._hub_id or "", Request("join", request_id)))

    def repeat(self) -> None:
        """Send the open question again under its number, in case it was lost: the first answer counts."""
        if self._asked is not None:
            self._control.send(encode("request", self._hub_id or "", Request("join", self._asked[0])))

    def send(self, verb: RankVerb, pid: int, *, is_on: bool = True, seconds: float | None = None) -> int:
        """Ask something of a training process; return the number under which `Done` or `Refusal` comes."""
        request_id = next(self._request_ids)
        request = Request(verb, request_id, pid, is_on, seconds)
        self._control.send(encode("request", self._hub_id or "", request))
        return request_id

    def decide(self, decision: FindingDecision) -> int:
        """Tell the hub what a person decided; return the number under which `Done` or `Refusal` comes."""
        request_id = next(self._request_ids)
        request = Request("decide", request_id, decision=decision)
        self._control.send(encode("request", self._hub_id or "", request))
        return request_id

    @property
    def is_asking(self) -> bool:
        """Whether an answer of the hub is waited for."""
        return self._asked is not None

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
        self._give_up_if_unanswered(found)
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
            try:
                self._take(frames[-1], found)
            except WireError as error:
                self.refused = str(error)

    def _take(self, data: bytes, found: list[Event]) -> None:
        envelope = decode(data, MAX_HISTORY_BYTES)
        self.heard_s = self._clock.monotonic_s()
        if envelope.kind == "welcome":
            self._join(envelope.hub_id, body_of(envelope, Welcome), found)
        elif envelope.kind == "refusal":
            self._take_refusal(body_of(envelope, Refusal), found)
        elif envelope.kind == "done":
            found.append(body_of(envelope, Done))
        elif envelope.hub_id != self._hub_id:
            self._meet_new_hub(envelope.hub_id)
            if envelope.kind == "sample":
                self._pend(body_of(envelope, Sample))
        elif envelope.kind == "sample":
            self._follow(body_of(envelope, Sample), found)
        elif envelope.kind == "findings":
            batch = body_of(envelope, FindingBatch)
            found.extend(batch.findings)
            found.extend([] if batch.assessments is None else [Assessed(batch.assessments)])
        elif envelope.kind == "segments":
            found.append(body_of(envelope, PackedSegments))
        elif envelope.kind == "alerts":
            found.append(body_of(envelope, AlertState))
        elif envelope.kind == "hub":
            status = body_of(envelope, HubStatus)
            self._compare(status)
            found.append(status)

    def _take_refusal(self, refusal: Refusal, found: list[Event]) -> None:
        if self._asked is not None and refusal.request_id == self._asked[0]:
            self.refused = refusal.reason
        else:
            found.append(refusal)

    def _meet_new_hub(self, hub_id: str) -> None:
        """Begin anew: the hub was restarted, so its sequence is another one."""
        if self._hub_id is not None or self._asked is None:
            self.ask()
        self._hub_id, self._last_seq = hub_id, None
        self._pending.clear()

    def _join(self, hub_id: str, welcome: Welcome, found: list[Event]) -> None:
        if self._asked is None or welcome.request_id != self._asked[0]:
            return
        is_new_hub = hub_id != self._hub_id or self._last_seq is None
        self._asked, self._hub_id = None, hub_id
        if not is_new_hub and self._last_seq is not None:
            self.samples_dropped += max(0, (welcome.history_first_seq or 0) - self._last_seq - 1)
        if welcome.sample is not None:
            last_seq = welcome.sample.seq if self._last_seq is None else self._last_seq
            self._last_seq = max(welcome.sample.seq, last_seq)
        known_seq = -1 if self._last_seq is None else self._last_seq
        held = tuple(sample for sample in self._pending if sample.seq <= known_seq)
        found.append(Joined(welcome, is_new_hub, held))
        self._release(found)

    def _follow(self, sample: Sample, found: list[Event]) -> None:
        if self._asked is not None:
            self._pend(sample)
        elif self._last_seq is None or sample.seq > self._last_seq + 1:
            self._pend(sample)
            self.ask()
        elif sample.seq > self._last_seq:
            self._last_seq = sample.seq
            found.append(sample)

    def _compare(self, status: HubStatus) -> None:
        """Ask for what was published and has not arrived: the hub tells its newest sample's number."""
        newest = status.last_seq
        is_behind = newest is not None and (self._last_seq is None or newest > self._last_seq)
        if is_behind and self._asked is None:
            self.ask()

    def _pend(self, sample: Sample) -> None:
        """Hold a sample back until the gap before it is filled."""
        self._pending.append(sample)
        if len(self._pending) > MAX_PENDING:
            self._pending.popleft()

    def _release(self, found: list[Event]) -> None:
        while self._pending:
            sample = self._pending.popleft()
            if self._last_seq is not None and sample.seq > self._last_seq + 1:
                self.samples_dropped += sample.seq - self._last_seq - 1
            if self._last_seq is None or sample.seq > self._last_seq:
                self._last_seq = sample.seq
                found.append(sample)

    def _give_up_if_unanswered(self, found: list[Event]) -> None:
        """Ask again when an answer stays out, and let held-back samples go meanwhile."""
        if self._asked is not None and self._clock.monotonic_s() - self._asked[1] > ANSWER_WITHIN_S:
            self._release(found)
            self.ask()
