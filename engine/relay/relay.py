"""The relay: one loop that follows many nodes and serves who follows them through it."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from types import FrameType

import msgspec

from ..bus.messages import TO_WHOM_IT_CONCERNS, TOPIC_HUB, TOPIC_NODES, KnownNodes, Refusal, Request
from ..bus.picture import NodePicture
from ..bus.snapshot import Snapshot
from ..bus.usage import OwnUsage, rss_bytes
from ..bus.wire import body_of, decode, encode
from ..clock import Clock, SystemClock
from ..cluster.gate import Gate
from ..cluster.hosts import NodeAddress
from ..cluster.listening import Listening
from ..cluster.nodes_watch import NodesWatch
from ..cluster.relay_link import MAX_NAME_CHARACTERS
from ..cluster.remote_node import RemoteNode
from ..cluster.remote_peer import RemotePeer
from ..cluster.trust import Trust
from ..errors import WireError
from ..model import HubStatus
from .relayed_node import RelayedNode

TURN_S = 0.5
GATHER_S = 0.02
"""What comes within this time is taken together: to wait for hundreds of sockets costs more than to read."""
TELL_S = 1.0
"""How often at most is told which nodes there are; so often that the relay is there."""
SEND_QUEUE_MESSAGES = 4096
"""Messages of all nodes together that a stalled viewer may fall behind: a few seconds of a thousand nodes."""
_NO_NODE = b""


class Relay:
    """Passes nodes on; everything happens on the thread that calls `run`.

    Args:
        addresses: Of agents and of other relays.
        trust: Keys by which they are reached.
        listening: Where viewers are let in.
        name: Of the node that it runs on.
        version: Version of vramscope, told to viewers.
        clock: Injected in tests.

    Raises:
        UsageError: The port is taken, or the address is none of this machine.
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
        self._clock, self._name, self._version = clock or SystemClock(), name, version
        self._started_wall_s, self._usage = self._clock.wall_s(), OwnUsage()
        self._nodes: dict[str, RelayedNode] = {}
        self._told: KnownNodes | None = None
        self._tell_s = 0.0
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
        """What is known of each node, by what it is called here."""
        return {name: relayed.node.picture for name, relayed in self._nodes.items()}

    def run(self) -> None:
        """Serve until `stop` is called."""
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
            self._note(snapshot)
        if self._has_other_nodes:
            self._has_other_nodes = False
            self._gate.offer(self._nodes)
        self._gate.take_questions()
        for peer, data in self._gate.take_requests():
            self._take(peer, data)
        self._tell()

    def _note(self, snapshot: Snapshot) -> None:
        if snapshot.is_gone:
            self._nodes.pop(snapshot.node, None)
            self._has_other_nodes = True
        else:
            self._nodes[snapshot.node].answer_waiting()

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
                return f"{self._name} is a relay: ask one of the nodes behind it"
            known = self._list_nodes(request.request_id)
            self._gate.answer_join(peer, request, _NO_NODE, encode("nodes", self.relay_id, known))
        elif request.verb == "join":
            node.join(peer, request, known_hub_id)
        elif node.known.connection != "live":
            return f"{node.name} is not there: {node.known.reason or 'it has not answered yet'}"
        else:
            node.pass_on(peer, request)
        return None

    def _tell(self) -> None:
        """Tell once a second that the relay is there, and of its nodes where that is news."""
        now_s = self._clock.monotonic_s()
        if now_s < self._tell_s:
            return
        self._tell_s = now_s + TELL_S
        self._gate.cut_off_revoked()
        for node in self._nodes.values():
            node.judge()
        known = self._list_nodes(TO_WHOM_IT_CONCERNS, has_ages=False)
        if known != self._told:
            self._told = known
            told = encode("nodes", self.relay_id, self._list_nodes(TO_WHOM_IT_CONCERNS))
            self._gate.publish(TOPIC_NODES, _NO_NODE, told)
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
