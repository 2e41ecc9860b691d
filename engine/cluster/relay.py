"""The relay: one loop that follows many nodes and serves who follows them through it."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import msgspec

from ..agent.supervisor import OwnUsage, rss_bytes
from ..alerts.state import AlertState
from ..clock import Clock, SystemClock
from ..errors import WireError
from ..history import History
from ..model import HubStatus, Sample
from ..ranks.messages import PackedSegments
from ..viewer.conversation import ANSWERS, Event, HubConversation, Joined
from ..viewer.picture import NodePicture
from ..wire.cells import encode_part, encode_told, trim_to_cells
from ..wire.messages import (
    TO_WHOM_IT_CONCERNS,
    TOPIC_CELLS,
    TOPIC_FINDING,
    TOPIC_HUB,
    TOPIC_NODES,
    TOPIC_SAMPLE,
    TOPIC_SEGMENTS,
    Envelope,
    FindingBatch,
    KnownNode,
    KnownNodes,
    Refusal,
    Request,
    Welcome,
    body_of,
    decode,
    encode,
)
from ..wire.selection import Cut, RemotePeer, Told, cut_welcome
from .addresses import NodeAddress
from .gate import MAX_PEERS, Gate, Listening
from .nodes_watch import NodesWatch
from .remote_node import MAX_NAME_CHARACTERS, RemoteNode
from .trust import Trust

TURN_S = 0.5
GATHER_S = 0.02
"""What comes within this time is taken together: to wait for hundreds of sockets costs more than to read."""
TELL_S = 1.0
"""Shortest time between two lists of nodes; and how often the relay says that it is there."""
SEND_QUEUE_MESSAGES = 4096
"""Messages of all nodes together that a stalled viewer may fall behind: a few seconds of a thousand nodes."""
_NO_NODE = b""


class Relay:
    """Passes nodes on; everything happens on the thread that calls `run`.

    Args:
        addresses: Of agents and of other relays.
        trust: Keys by which they are reached.
        listening: Where viewers connect.
        name: Of the node that it runs on.
        version: Version of vramscope, sent to viewers.

    Raises:
        UsageError: The port is taken, or the address is not of this machine.
    """

    def __init__(
        self,
        addresses: Sequence[NodeAddress],
        trust: Trust,
        listening: Listening,
        *,
        name: str,
        version: str,
        clock: Clock | None = None,
    ) -> None:
        self.relay_id = os.urandom(8).hex()
        self._clock = clock or SystemClock()
        self._name = name
        self._version = version
        self._started_wall_s = self._clock.wall_s()
        self._usage = OwnUsage()
        self._nodes: dict[str, RelayedNode] = {}
        self._published: KnownNodes | None = None
        self._publish_s = 0.0
        self._has_other_nodes = False
        self._is_stopping = False
        self._watch = NodesWatch(addresses, trust, most_in_full=0, relay_id=self.relay_id, clock=self._clock)
        try:
            self._gate = self._open_gate(listening)
        except BaseException:
            self._watch.close()
            raise
        for name_here, node in self._watch.nodes.items():
            self._add(name_here, node)
        self._watch.on_added = self._add

    @property
    def pictures(self) -> Mapping[str, NodePicture]:
        return {name: relayed.node.picture for name, relayed in self._nodes.items()}

    def run(self) -> None:
        try:
            while not self._is_stopping:
                self._turn()
                time.sleep(GATHER_S)
        finally:
            self._watch.close()

    def stop(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        """End soon; may be called from a signal handler."""
        self._is_stopping = True

    def _open_gate(self, listening: Listening) -> Gate:
        gate = Gate(
            self._watch.context,
            listening,
            self._name,
            self.relay_id,
            self._clock,
            most_waiting=SEND_QUEUE_MESSAGES,
        )
        for socket in (gate.questions, gate.router):
            self._watch.wait_for(socket)
        return gate

    def _add(self, name: str, node: RemoteNode) -> None:
        self._nodes[name] = RelayedNode(name, node, self._gate, self._clock)
        self._has_other_nodes = True

    def _turn(self) -> None:
        for snapshot in self._watch.turn(TURN_S):
            if snapshot.is_gone:
                self._nodes.pop(snapshot.node, None)
                self._has_other_nodes = True
            else:
                self._nodes[snapshot.node].answer_waiting()
        if self._has_other_nodes:
            self._has_other_nodes = False
            self._gate.offer(self._nodes)
        self._gate.take_questions()
        for peer, data in self._gate.take_requests():
            self._take(peer, data)
        self._publish_state()

    def _take(self, peer: RemotePeer, data: bytes) -> None:
        try:
            envelope = decode(data)
            request = body_of(envelope, Request)
        except WireError:
            self._gate.note_rejected()
            return
        if request.verb == "leave":
            self._gate.stop_following(peer, request.node)
            return
        if self._gate.is_on_its_way(peer, request):
            return
        if not request.node:
            # Who does not know yet that this is a relay asks for topics of a node.
            topics = tuple(topic.decode() for topic in (TOPIC_NODES, TOPIC_HUB))
            request = msgspec.structs.replace(request, topics=topics, detail="cells")
        refusal = self._gate.refuse(peer, request)
        if refusal is None:
            refusal = self._carry_out(peer, request, envelope.hub_id)
        if refusal is not None:
            refused = encode("refusal", self.relay_id, Refusal(request.request_id, refusal))
            self._gate.answer(peer, request.node[:MAX_NAME_CHARACTERS].encode(), refused)

    def _carry_out(self, peer: bytes, request: Request, known_hub_id: str) -> str | None:
        """Do what is asked; return why not, in one sentence, where it cannot be."""
        node = self._nodes.get(request.node)
        if node is None:
            if request.verb != "join":
                return f"{self._name} is a relay: ask a node behind it"
            known = self._list_nodes(request.request_id)
            self._gate.answer_join(peer, request, _NO_NODE, encode("nodes", self.relay_id, known))
        elif request.verb == "join":
            node.join(peer, request, known_hub_id)
        elif node.known.connection != "live":
            return f"{node.name} is not connected: {node.known.reason or 'it has not answered yet'}"
        else:
            node.pass_on(peer, request)
        return None

    def _publish_state(self) -> None:
        """Report once a second that the relay is there, and of its nodes where that is news."""
        now_s = self._clock.monotonic_s()
        if now_s < self._publish_s:
            return
        self._publish_s = now_s + TELL_S
        self._gate.cut_off_revoked()
        for node in self._nodes.values():
            node.judge()
        known = self._list_nodes(TO_WHOM_IT_CONCERNS, has_ages=False)
        if known != self._published:
            self._published = known
            message = encode("nodes", self.relay_id, self._list_nodes(TO_WHOM_IT_CONCERNS))
            self._gate.publish(TOPIC_NODES, _NO_NODE, message)
        if self._gate.has_followers(TOPIC_HUB):
            self._gate.publish(TOPIC_HUB, _NO_NODE, encode("hub", self.relay_id, self._status(now_s)))

    def _list_nodes(self, request_id: int, *, has_ages: bool = True) -> KnownNodes:
        nodes = (node.known for node in self._nodes.values())
        shown = tuple(it if has_ages else msgspec.structs.replace(it, silent_s=None) for it in nodes)
        return KnownNodes(request_id, self._name, shown, relays=(self.relay_id, *self._watch.relay_ids))

    def _status(self, now_s: float) -> HubStatus:
        return HubStatus(
            hub_id=self.relay_id,
            pid=os.getpid(),
            version=self._version,
            started_s=self._started_wall_s,
            interval_s=TELL_S,
            cpu_percent=self._usage.cpu_percent(now_s, []),
            rss_bytes=rss_bytes(),
            viewers=self._gate.viewers,
            notes=self._gate.notes,
        )


def stop_on_signals(relay: Relay) -> None:
    """End the relay on Ctrl-C, on a polite kill and on hang-up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, relay.stop)


STATUS_S = 5.0
"""How often the state of a hub is passed on where no more than cells is drawn, and samples come."""
QUIET_S = 1.5
"""Where none has come for so long the state of the hub alone says that it is there."""
UNWATCHED_S = 30.0
"""Seconds for which a node is still followed in full after the last interested viewer has gone."""
_PASSED: dict[str, tuple[bytes, type[FindingBatch | AlertState | HubStatus | PackedSegments]]] = {
    "findings": (TOPIC_FINDING, FindingBatch),
    "alerts": (TOPIC_FINDING, AlertState),
    "hub": (TOPIC_HUB, HubStatus),
    "segments": (TOPIC_SEGMENTS, PackedSegments),
}
"""Messages that are passed on as they came, by kind: topic and type of the body."""


class RelayedNode:
    """Passes one node on; use from the thread of its relay.

    Of a node nobody looks at comes what a cell of the fleet shows. It is followed in full, with its history,
    from the first `join` in full on.

    Args:
        node: As the relay follows it.
    """

    def __init__(self, name: str, node: RemoteNode, gate: Gate, clock: Clock) -> None:
        self.name = name
        self.node = node
        self._gate = gate
        self._clock = clock
        self._label = name.encode()
        self._questions = PassedRequests(node.conversation, self._answer)
        self._waiting: dict[bytes, tuple[Request, str]] = {}
        self._is_full = False
        self._wanted_s = clock.monotonic_s()
        self._passed_seq: int | None = None
        self._status_s = self._sampled_s = 0.0
        self._first_seq: int | None = None
        self._joined_hub_id: str | None = None
        node.on_heard = self._pass_on

    @property
    def known(self) -> KnownNode:
        """Its state as it is sent to viewers."""
        newest = self.node.picture.newest
        return KnownNode(self.name, newest.connection, newest.reason, newest.silent_s)

    def join(self, peer: bytes, request: Request, known_hub_id: str) -> None:
        """Send a peer everything, at once or as soon as the node has sent it.

        Args:
            known_hub_id: The hub whose history the peer has already.
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
        self._questions.pass_on(peer, request)

    def answer_waiting(self) -> None:
        """Send everything to those who wait for it, where it is known."""
        newest = self.node.picture.newest
        hub_id = self.node.conversation.hub_id
        if not self._waiting or newest.connection != "live" or newest.hub is None:
            return
        if self._joined_hub_id != hub_id:
            return  # the agent was started again, and what is known here is of the one before
        for peer, (request, known_hub_id) in list(self._waiting.items()):
            if request.detail == "cells" or self._is_full:
                del self._waiting[peer]
                welcome = self._welcome(peer, request, known_hub_id, newest.hub)
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

    def _publish_body(self, topic: bytes, body: Told, data: bytes | None = None) -> None:
        """Send to all who follow a topic, as it came where that is known."""
        message = data or encode_told(topic, self.node.conversation.hub_id, body)
        has_commands = isinstance(body, Sample) and topic == TOPIC_SAMPLE
        self._publish(topic, message, lambda: body, has_commands=has_commands)

    def _publish(
        self, topic: bytes, message: bytes, read: Callable[[], Told], *, has_commands: bool = False
    ) -> None:
        """Send a message to all who follow its topic; it is read for those who get a part of it."""
        hub_id = self.node.conversation.hub_id

        def cut(part: Cut) -> bytes | None:
            return encode_part(topic, hub_id, read(), part, self.node.picture.newest.sample)

        self._gate.publish(topic, self._label, message, node=self.name, cut=cut, has_commands=has_commands)

    def _pass_on(self, data: bytes | None, events: Sequence[Event]) -> None:
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
        self._passed_seq = sample.seq
        self._sampled_s = self._clock.monotonic_s()
        if self._is_full and self._gate.has_followers(TOPIC_SAMPLE, self.name):
            self._publish_body(TOPIC_SAMPLE, sample, data)
        if self._gate.has_followers(TOPIC_CELLS, self.name):
            self._pass_cells(sample, None if self._is_full else data)

    def _pass_cells(self, sample: Sample, data: bytes | None) -> None:
        self._publish_body(TOPIC_CELLS, sample, data if sample.host is None else None)

    def _pass_joined(self, event: Joined) -> None:
        """Pass on everything after a gap: who follows has missed the same."""
        welcome = event.welcome
        hub_id = self.node.conversation.hub_id
        if event.is_new_hub:
            if self._passed_seq is not None:
                self.node.picture.forget_history()
            self._passed_seq = None
        self._is_full = self.node.conversation.detail == "full"
        self._first_seq = welcome.first_seq
        self._joined_hub_id = hub_id
        for sample in (*event.held, *(() if welcome.sample is None else (welcome.sample,))):
            if self._passed_seq is None or sample.seq > self._passed_seq:
                self._passed_seq = sample.seq
                self._pass_cells(sample, None)
        batch = FindingBatch(welcome.findings, welcome.assessments)
        self._publish_body(TOPIC_FINDING, batch)
        self._publish_body(TOPIC_FINDING, welcome.alerts)
        self._publish_body(TOPIC_HUB, welcome.hub)

    def _welcome(self, peer: bytes, request: Request, known_hub_id: str, hub: HubStatus) -> Welcome:
        newest = self.node.picture.newest
        history = self.node.picture.history
        is_full = request.detail == "full"
        sample = newest.sample
        since_seq = request.since_seq if known_hub_id == self.node.conversation.hub_id else None
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
        return cut_welcome(welcome, self._gate.find_part(peer, request))


MOST_OPEN = 256
"""Requests to one node whose answers are waited for; the oldest are forgotten, and time out at who asked."""


class PassedRequests:
    """Keeps who asked what of one node.

    Args:
        conversation: What is said with the node.
        answer: Sends a message to who asked.
    """

    def __init__(self, conversation: HubConversation, answer: Callable[[bytes, bytes], None]) -> None:
        self._conversation = conversation
        self._answer = answer
        self._open: dict[int, tuple[bytes, int]] = {}

    def pass_on(self, peer: bytes, request: Request) -> None:
        """Hand a request on to the node, with the rights that the relay has there."""
        self._open[self._conversation.ask_for(request)] = (peer, request.request_id)
        while len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]

    def take_answer(self, envelope: Envelope) -> None:
        """Hand an answer of the node back to who asked, under the number that was given there.

        Raises:
            WireError: It is no answer.
        """
        kind = ANSWERS.get(envelope.kind)
        body = body_of(envelope, Refusal) if kind is None else body_of(envelope, kind)
        asker = self._open.pop(body.request_id, None)
        if asker is not None:
            peer, number = asker
            answer = msgspec.structs.replace(body, request_id=number)
            self._answer(peer, encode(envelope.kind, envelope.hub_id, answer))
