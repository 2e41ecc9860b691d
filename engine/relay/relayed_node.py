"""One node that a relay follows: what it says is passed on as it came, and who joins is told all of it."""

from collections.abc import Callable, Sequence

from ..alerts.state import AlertState
from ..bus.cells import trim_to_cells
from ..bus.conversation import ANSWERS, Event, Joined
from ..bus.device_selection import DeviceSelection, select_devices
from ..bus.device_trimming import Told, trim_welcome
from ..bus.messages import (
    TOPIC_CELLS,
    TOPIC_FINDING,
    TOPIC_HUB,
    TOPIC_SAMPLE,
    TOPIC_SEGMENTS,
    FindingBatch,
    KnownNode,
    Request,
    Welcome,
)
from ..bus.published import encode_told, encode_wanted
from ..bus.wire import Envelope, body_of, decode, encode
from ..clock import Clock
from ..cluster.gate import MAX_PEERS, Gate
from ..cluster.remote_node import RemoteNode
from ..errors import WireError
from ..history import History
from ..model import HubStatus, Sample
from ..ranks.segments import PackedSegments
from .passed_requests import PassedRequests

STATUS_S = 5.0
"""How often the state of a hub is passed on where no more than cells is drawn, and samples come."""
QUIET_S = 1.5
"""Where none has come for so long the state of the hub alone says that it is there."""
UNWATCHED_S = 30.0
"""A node is followed in full for so long after the last who wanted that has gone."""
_PASSED: dict[str, tuple[bytes, type[FindingBatch | AlertState | HubStatus | PackedSegments]]] = {
    "findings": (TOPIC_FINDING, FindingBatch),
    "alerts": (TOPIC_FINDING, AlertState),
    "hub": (TOPIC_HUB, HubStatus),
    "segments": (TOPIC_SEGMENTS, PackedSegments),
}
"""What is passed on as it came, by its kind: its topic, and what is told in it."""


class RelayedNode:
    """Passes one node on; use from the thread of its relay.

    Of a node nobody looks at comes what a cell of the fleet shows. It is followed in full, with its history,
    from the first `join` in full on.

    Args:
        name: What it is called here.
        node: As the relay follows it.
        gate: Where viewers are.
        clock: Where time is read.
    """

    def __init__(self, name: str, node: RemoteNode, gate: Gate, clock: Clock) -> None:
        self.name, self.node = name, node
        self._gate, self._clock, self._label = gate, clock, name.encode()
        self._questions = PassedRequests(node.conversation, self._answer)
        self._waiting: dict[bytes, tuple[Request, str]] = {}
        self._is_full = False
        self._wanted_s = clock.monotonic_s()
        self._told_seq: int | None = None
        self._status_s = self._sampled_s = 0.0
        self._first_seq: int | None = None
        self._joined_hub_id: str | None = None
        node.on_heard = self._hear

    @property
    def known(self) -> KnownNode:
        """What viewers are told of it."""
        newest = self.node.picture.newest
        return KnownNode(self.name, newest.connection, newest.reason, newest.silent_s)

    def join(self, peer: bytes, request: Request, known_hub_id: str) -> None:
        """Tell a peer everything, at once or as soon as the node has told it.

        Args:
            peer: Who asks.
            request: What is asked.
            known_hub_id: The hub of which the peer has history already.
        """
        if request.detail == "full":
            self._wanted_s = self._clock.monotonic_s()
            self.node.follow("full")
        self._waiting.pop(peer, None)
        self._waiting[bytes(peer)] = (request, known_hub_id)
        if len(self._waiting) > MAX_PEERS:  # who waits longest has gone
            del self._waiting[next(iter(self._waiting))]
        self.answer_waiting()

    def pass_on(self, peer: bytes, request: Request) -> None:
        """Hand a request on to the node."""
        self._questions.pass_on(peer, request)

    def answer_waiting(self) -> None:
        """Tell everything to those who wait for it, where it is known."""
        newest, hub_id = self.node.picture.newest, self.node.conversation.hub_id
        if not self._waiting or newest.connection != "live" or newest.hub is None:
            return
        if self._joined_hub_id != hub_id:
            return  # the agent was started again, and what is known here is of the one before
        for peer, (request, known_hub_id) in list(self._waiting.items()):
            if request.detail == "cells" or self._is_full:
                del self._waiting[peer]
                welcome = self._welcome(request, known_hub_id, newest.hub)
                self._gate.answer_join(peer, request, self._label, encode("welcome", hub_id, welcome))

    def judge(self) -> None:
        """Follow no more than cells where nobody has wanted more for a while."""
        now_s = self._clock.monotonic_s()
        if self._gate.has_followers(TOPIC_SAMPLE, self.name):
            self._wanted_s = now_s
        elif self._is_full and now_s - self._wanted_s > UNWATCHED_S:
            self._is_full = False
            self.node.follow("cells")

    def _answer(self, peer: bytes, message: bytes) -> None:
        self._gate.answer(peer, self._label, message)

    def _tell(self, topic: bytes, told: Told, data: bytes | None = None) -> None:
        """Tell all who follow a topic, as it came where that is known."""
        message = data or encode_told(topic, self.node.conversation.hub_id, told)
        self._publish(topic, message, lambda: told)

    def _publish(self, topic: bytes, message: bytes, read: Callable[[], Told]) -> None:
        """Send a message to all who follow its topic; it is read for those who follow some devices alone."""
        hub_id = self.node.conversation.hub_id

        def trim(wanted: DeviceSelection) -> bytes | None:
            return encode_wanted(topic, hub_id, read(), wanted, self.node.picture.newest.sample)

        self._gate.publish(topic, self._label, message, node=self.name, trim=trim)

    def _hear(self, data: bytes | None, events: Sequence[Event]) -> None:
        """Pass on a message; one that could not be read says nothing, and goes no further."""
        try:
            envelope = None if data is None else decode(data)
            if envelope is None or data is None or not self._pass_as_it_came(envelope, data, events):
                self._pass_events(events, data)
        except WireError:
            return

    def _pass_as_it_came(self, envelope: Envelope, data: bytes, events: Sequence[Event]) -> bool:
        """Pass on what is no sample; return whether it was that."""
        if envelope.kind in ANSWERS or envelope.kind == "refusal":
            self._questions.take_answer(envelope)
            return True
        if envelope.kind not in _PASSED:
            return False
        topic, kind = _PASSED[envelope.kind]
        # While something is missing here, who follows would ask for it in vain.
        if events and (topic != TOPIC_HUB or self._is_status_wanted()):
            self._publish(topic, data, lambda: body_of(envelope, kind))
        return True

    def _is_status_wanted(self) -> bool:
        """Return whether the state of the hub is passed on; samples say as much to who draws cells."""
        now_s = self._clock.monotonic_s()
        is_due = now_s >= self._status_s or now_s - self._sampled_s > QUIET_S
        is_due = is_due or self._gate.has_followers(TOPIC_SAMPLE, self.name)
        if self.node.conversation.is_asking or not is_due:
            return False
        self._status_s = now_s + STATUS_S
        return True

    def _pass_events(self, events: Sequence[Event], data: bytes | None) -> None:
        for event in events:
            if isinstance(event, Joined):
                self._pass_joined(event)
            elif isinstance(event, Sample):
                self._pass_sample(event, data if len(events) == 1 else None)

    def _pass_sample(self, sample: Sample, data: bytes | None) -> None:
        """Pass on a sample, as it came where that is known; whoever draws cells gets no more than cells."""
        self._told_seq, self._sampled_s = sample.seq, self._clock.monotonic_s()
        if self._is_full and self._gate.has_followers(TOPIC_SAMPLE, self.name):
            self._tell(TOPIC_SAMPLE, sample, data)
        if self._gate.has_followers(TOPIC_CELLS, self.name):
            self._pass_cells(sample, None if self._is_full else data)

    def _pass_cells(self, sample: Sample, data: bytes | None) -> None:
        self._tell(TOPIC_CELLS, sample, data if sample.host is None else None)

    def _pass_joined(self, event: Joined) -> None:
        """Pass on what this end was told anew: who follows has missed the same."""
        welcome, hub_id = event.welcome, self.node.conversation.hub_id
        if event.is_new_hub:
            if self._told_seq is not None:
                self.node.picture.forget_history()
            self._told_seq = None
        self._is_full = self.node.conversation.detail == "full"
        self._first_seq, self._joined_hub_id = welcome.first_seq, hub_id
        for sample in (*event.held, *(() if welcome.sample is None else (welcome.sample,))):
            if self._told_seq is None or sample.seq > self._told_seq:
                self._told_seq = sample.seq
                self._pass_cells(sample, None)
        batch = FindingBatch(welcome.findings, welcome.assessments)
        self._tell(TOPIC_FINDING, batch)
        self._tell(TOPIC_FINDING, welcome.alerts)
        self._tell(TOPIC_HUB, welcome.hub)

    def _welcome(self, request: Request, known_hub_id: str, hub: HubStatus) -> Welcome:
        newest, history = self.node.picture.newest, self.node.picture.history
        is_full, sample = request.detail == "full", newest.sample
        since_seq = request.since_seq if known_hub_id == self.node.conversation.hub_id else None
        wanted = select_devices(request.devices)
        welcome = Welcome(
            request_id=request.request_id,
            sample=sample if is_full or sample is None else trim_to_cells(sample),
            findings=newest.findings,
            hub=hub,
            history=history.block(since_seq) if is_full else History().block(),
            first_seq=self._first_seq,
            history_first_seq=history.first_seq if is_full else None,
            assessments=newest.assessments,
            alerts=newest.alerts,
        )
        return welcome if wanted is None else trim_welcome(welcome, wanted)
