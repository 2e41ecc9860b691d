"""One end's conversation with a hub: every sample in order, gaps filled from the hub's ring."""

import itertools
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import zmq

from ..alerts.state import AlertState, FindingDecision
from ..clock import Clock, SystemClock, ceil_ms
from ..errors import WireError
from ..model import AdviceAction, Assessment, Finding, HubStatus, Sample
from ..ranks.messages import PackedSegments
from ..wire.endpoints import endpoints_of
from ..wire.messages import (
    MAX_HISTORY_BYTES,
    MAX_MESSAGE_BYTES,
    TO_WHOM_IT_CONCERNS,
    TOPIC_FINDING,
    TOPIC_HUB,
    TOPIC_SAMPLE,
    TOPIC_SEGMENTS,
    TOPIC_VIEWER,
    Advised,
    Detail,
    Done,
    Envelope,
    FindingBatch,
    KnownNodes,
    ModulesAnswer,
    Refusal,
    Request,
    Welcome,
    body_of,
    decode,
    encode,
    fill_in_unchanged,
)

ANSWER_WITHIN_S = 3.0
# An unanswered question is repeated after so long, then after twice as long, and so on up to the most: on a
# slow line the answer may be on its way.
MOST_PATIENCE_S = 24.0
# Samples after a gap wait so long for what fills it.
HOLD_BACK_S = 30.0
MAX_PENDING = 1024

# What can be asked of a training process.
RankVerb = Literal["segments", "detach", "history", "modules"]


class Joined(msgspec.Struct, frozen=True):
    """The hub answered: at first, after it was restarted, or after a gap."""

    welcome: Welcome
    is_new_hub: bool
    # Samples in full that came before the answer, and are not newer than its own.
    held: tuple[Sample, ...] = ()


class Assessed(msgspec.Struct, frozen=True):
    """How near each process is to running out of memory, all of them."""

    assessments: tuple[Assessment, ...]


Event = (
    Joined
    | Sample
    | Finding
    | Assessed
    | AlertState
    | HubStatus
    | PackedSegments
    | ModulesAnswer
    | Advised
    | Done
    | Refusal
    | KnownNodes
)


# Answers of a hub to one end, by the kind of the message.
ANSWERS: dict[str, type[Done | ModulesAnswer | Advised]] = {
    "done": Done,
    "modules": ModulesAnswer,
    "advised": Advised,
}


class HubConversation:
    """One end of one hub's stream, whatever carries it. Use from one thread only.

    Args:
        topics: What the hub is to send from the first answer on, if there is no subscription.
        detail: How much of each sample these topics have.
        node: The node's name at a relay in between; "" without one.
        devices: Words for the devices to receive; none for all.
    """

    def __init__(
        self,
        send: Callable[[bytes], None],
        clock: Clock,
        *,
        topics: tuple[str, ...] = (),
        detail: Detail = "full",
        node: str = "",
        devices: tuple[str, ...] = (),
    ) -> None:
        # Samples that were published and never reached this end.
        self.samples_dropped = 0
        self.refused: str | None = None
        # Why the hub does not let this end follow; None while it does or has not answered.
        self.turned_away: str | None = None
        # Monotonic seconds of the hub's newest message.
        self.heard_s: float | None = None
        # With `cells`, missed samples are not asked for: the newest one is enough.
        self.detail: Detail = detail
        self._send = send
        self._clock = clock
        self._topics = topics
        self._node = node
        self._devices = devices
        self._hub_id: str | None = None
        self._last_seq: int | None = None
        # Number of the newest findings before which none is missing; None where nobody counts.
        self._batch_number: int | None = None
        # The highest number that arrived, in order or not.
        self._newest_number = 0
        self._pending: deque[Sample] = deque()
        # The newest sample that was found: the next one leaves out what is as in it.
        self._before: Sample | None = None
        self._asked: tuple[int, float] | None = None
        self._repeat_s = self._patience_s = 0.0
        self._has_history = False
        self._request_ids = itertools.count(1)

    def ask(self) -> None:
        request_id = next(self._request_ids)
        now_s = self._clock.monotonic_s()
        self._asked = (request_id, now_s)
        self._patience_s = ANSWER_WITHIN_S
        self._repeat_s = now_s + self._patience_s
        self._send(self._join_request(request_id))

    def count_on(self, before: "HubConversation") -> None:
        """Continue the request numbers of a conversation over the same connection."""
        self._request_ids = before._request_ids

    def follow(self, detail: Detail, topics: tuple[str, ...]) -> None:
        """Ask for everything, and from the answer on for other topics."""
        self.detail = detail
        self._topics = topics
        self._has_history = False
        self.ask()

    def repeat(self) -> None:
        """Send the open question again under its number, in case it was lost: the first answer counts."""
        if self._asked is not None:
            self._send(self._join_request(self._asked[0]))

    def send(self, verb: RankVerb, pid: int, *, is_on: bool = True, seconds: float | None = None) -> int:
        """Ask something of a training process; return the number under which `Done` or `Refusal` comes."""
        return self.ask_for(Request(verb, 0, pid, is_on, seconds))

    def advise(self, pid: int, action: AdviceAction, reason: str, seconds: float) -> int:
        """Advise a training process; return the number under which `Advised` or `Refusal` comes."""
        return self.ask_for(Request("advise", 0, pid, seconds=seconds, action=action, reason=reason))

    def attach(self, pid: int, started_s: float | None) -> int:
        """Have the probe loaded into a process; return the number under which `Done` or `Refusal` comes."""
        return self.ask_for(Request("attach", 0, pid, started_s=started_s))

    def decide(self, decision: FindingDecision) -> int:
        """Send a person's decision; return the number under which `Done` or `Refusal` comes."""
        return self.ask_for(Request("decide", 0, decision=decision))

    def ask_for(self, request: Request) -> int:
        """Send a request under a number of this end, and return that."""
        request_id = next(self._request_ids)
        request = msgspec.structs.replace(request, request_id=request_id, node=self._node)
        self._send(encode("request", self.hub_id, request))
        return request_id

    def _join_request(self, request_id: int) -> bytes:
        since_seq = self._last_seq if self._has_history else None
        request = Request(
            "join",
            request_id,
            topics=self._topics,
            detail=self.detail,
            since_seq=since_seq,
            node=self._node,
            devices=self._devices,
        )
        return encode("request", self.hub_id, request)

    @property
    def hub_id(self) -> str:
        return self._hub_id or ""

    @property
    def is_asking(self) -> bool:
        return self._asked is not None

    def take(self, data: bytes, found: list[Event]) -> None:
        """Process one message of the hub, and add its events to `found`; a rejected one is remembered."""
        try:
            self._take(data, found)
        except WireError as error:
            self.refused = str(error)

    def give_up_if_unanswered(self, found: list[Event]) -> None:
        """Repeat an unanswered question; in the end release the samples that were held back for it."""
        now_s = self._clock.monotonic_s()
        if self._asked is None:
            return
        if now_s - self._asked[1] > HOLD_BACK_S:
            self._release(found)
        if now_s > self._repeat_s:
            self._patience_s = min(2 * self._patience_s, MOST_PATIENCE_S)
            self._repeat_s = now_s + self._patience_s
            self.repeat()

    def _take(self, data: bytes, found: list[Event]) -> None:
        envelope = decode(data, MAX_HISTORY_BYTES)
        self.heard_s = self._clock.monotonic_s()
        if envelope.kind == "welcome":
            welcome = body_of(envelope, Welcome)
            self._join(envelope.hub_id, welcome, found)
        elif envelope.kind == "refusal":
            self._note_refusal(body_of(envelope, Refusal), found)
        elif envelope.kind == "nodes":
            self._note_nodes(envelope.hub_id, body_of(envelope, KnownNodes), found)
        elif envelope.kind in ANSWERS:
            found.append(body_of(envelope, ANSWERS[envelope.kind]))
        elif envelope.hub_id != self._hub_id:
            self._start_over(envelope.hub_id)
            if envelope.kind == "sample":
                self._pend(body_of(envelope, Sample))
        else:
            self._process_published(envelope, found)

    def _process_published(self, envelope: Envelope, found: list[Event]) -> None:
        if envelope.kind == "sample":
            self._follow(body_of(envelope, Sample), found)
        elif envelope.kind == "findings":
            batch = body_of(envelope, FindingBatch)
            found.extend(batch.findings)
            found.extend([] if batch.assessments is None else [Assessed(batch.assessments)])
            self._count_batch(batch)
        elif envelope.kind == "segments":
            found.append(body_of(envelope, PackedSegments))
        elif envelope.kind == "alerts":
            found.append(body_of(envelope, AlertState))
        elif envelope.kind == "hub":
            status = body_of(envelope, HubStatus)
            self._compare(status)
            found.append(status)

    def _count_batch(self, batch: FindingBatch) -> None:
        """Ask for all findings if a batch of them was missed; an empty one repeats the newest number."""
        number = batch.number
        if number is None:
            return
        self._newest_number = max(self._newest_number, number)
        if self._asked is not None:
            return  # the answer says what it has
        known = self._batch_number
        self._batch_number = number
        is_repeat = not batch.findings and batch.assessments is None
        if known is not None and number > (known if is_repeat else known + 1):
            self.ask()

    def _note_nodes(self, relay_id: str, nodes: KnownNodes, found: list[Event]) -> None:
        self._asked = None
        self._hub_id = relay_id
        self._last_seq = None
        if self.turned_away is not None:
            self.refused = self.turned_away = None
        found.append(nodes)

    def _note_refusal(self, refusal: Refusal, found: list[Event]) -> None:
        is_of_join = self._asked is not None and refusal.request_id == self._asked[0]
        if is_of_join or refusal.request_id == TO_WHOM_IT_CONCERNS:
            self.refused = self.turned_away = refusal.reason
        else:
            found.append(refusal)

    def _start_over(self, hub_id: str) -> None:
        """Start over: the hub was restarted, so its sequence has changed."""
        if self._hub_id is not None or self._asked is None:
            self.ask()
        self._hub_id = hub_id
        self._last_seq = None
        self._has_history = False
        self._batch_number = None
        self._newest_number = 0
        self._pending.clear()

    def _join(self, hub_id: str, welcome: Welcome, found: list[Event]) -> None:
        if self._asked is None or welcome.request_id != self._asked[0]:
            return
        if hub_id != self._hub_id:  # its numbers start again, and what was held back is of the former hub
            self._last_seq = None
            self._newest_number = 0
            self._pending.clear()
        is_new_hub = self._last_seq is None
        self._asked = None
        self._hub_id = hub_id
        self._has_history = self.detail == "full"
        if self.turned_away is not None:
            self.refused = self.turned_away = None
        if not is_new_hub and self._last_seq is not None:
            self.samples_dropped += max(0, self._first_known_seq(welcome) - self._last_seq - 1)
        if welcome.sample is not None:
            last_seq = welcome.sample.seq if self._last_seq is None else self._last_seq
            if self._before is None or is_new_hub or welcome.sample.seq >= last_seq:
                self._before = welcome.sample
            self._last_seq = max(welcome.sample.seq, last_seq)
        known_seq = -1 if self._last_seq is None else self._last_seq
        held = tuple(sample for sample in self._pending if sample.seq <= known_seq)
        found.append(Joined(welcome, is_new_hub, held))
        self._release(found)
        self._batch_number = welcome.findings_number
        if self._batch_number is not None and self._batch_number < self._newest_number:
            self.ask()  # findings that came meanwhile are newer than the answer, which took their place

    def _first_known_seq(self, welcome: Welcome) -> int:
        """Return from which sample on nothing is missing; 0 without samples."""
        if self.detail == "full":
            return welcome.history_first_seq or 0
        known = [*self._pending, *([] if welcome.sample is None else [welcome.sample])]
        return min((sample.seq for sample in known), default=0)

    def _follow(self, sample: Sample, found: list[Event]) -> None:
        if self._asked is not None:
            self._pend(sample)
        elif self._last_seq is None or sample.seq > self._last_seq + 1:
            self._pend(sample)
            self.ask()
        elif sample.seq > self._last_seq:
            self._last_seq = sample.seq
            found.append(self._complete(sample))

    def _complete(self, sample: Sample) -> Sample:
        self._before = fill_in_unchanged(sample, self._before)
        return self._before

    def _compare(self, status: HubStatus) -> None:
        """Ask for what was published and has not arrived: the hub sends its newest sample's number.

        If that is lower than ours, ours is of another hub, and new samples would count as old.
        """
        newest = status.last_seq
        if newest is None or self._asked is not None or newest == self._last_seq:
            return
        if self._last_seq is not None and newest < self._last_seq:
            self._last_seq = None
            self._has_history = False
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
                found.append(self._complete(sample))


# How far a stalled reader may fall behind before new messages are dropped; the ring then fills the gap.
QUEUE_MESSAGES = 256


class HubStream(HubConversation):
    """Subscribes to one hub of this user and node; yields events in order. Use from one thread only.

    Args:
        is_viewer: Receive findings and the hub's own state too.
        is_counted: A viewer counts as one, for whom a hub stays.
    """

    def __init__(
        self, runtime_dir: Path, *, is_viewer: bool, is_counted: bool = True, clock: Clock | None = None
    ) -> None:
        # Whether a pipe given to `watch` was closed at its other end.
        self.is_watched_closed = False
        # Whether something was written to such a pipe during the last `events`.
        self.is_woken = False
        self._watched_fds: list[int] = []
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
        for fd in self._watched_fds:
            if fd in ready:
                is_written = bool(os.read(fd, 64))
                self.is_woken |= is_written
                self.is_watched_closed |= not is_written
        if self._control in ready:
            self._drain(self._control, found)
        if self._subscriber in ready:
            self._drain(self._subscriber, found)
        self.give_up_if_unanswered(found)
        return found

    def watch(self, fd: int) -> None:
        """Wake up when a pipe's other end writes, or closes: then `is_watched_closed` is set."""
        self._watched_fds.append(fd)
        self._poller.register(fd, zmq.POLLIN | zmq.POLLERR)

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _drain(self, socket: "zmq.Socket[bytes]", found: list[Event]) -> None:
        for _ in range(QUEUE_MESSAGES):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self.take(frames[-1], found)
