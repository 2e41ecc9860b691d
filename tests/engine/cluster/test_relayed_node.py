"""What a relay tells of one node, message by message."""

from tests.clocks import HandClock
from tests.fuzz.peers import HandConnection
from vramscope.engine.cluster.gate import Cutter
from vramscope.engine.cluster.relay import RelayedNode
from vramscope.engine.cluster.remote_node import RemoteNode
from vramscope.engine.history import History
from vramscope.engine.model import HubStatus
from vramscope.engine.wire.messages import Envelope, Request, Welcome, body_of, decode, encode
from vramscope.engine.wire.selection import Cut

from ..agent.hubs import make_sample


class HandGate:
    """A gate at which answers are kept."""

    def __init__(self) -> None:
        self.answers: list[Envelope] = []

    def has_followers(self, topic: bytes, node: str = "") -> bool:
        """Nobody follows."""
        return False

    def publish(
        self,
        topic: bytes,
        *frames: bytes,
        node: str = "",
        cut: Cutter | None = None,
        has_commands: bool = False,
    ) -> None:
        """Nobody listens."""

    def find_part(self, peer: bytes, request: Request) -> Cut:
        """Everything."""
        return Cut()

    def answer_join(self, identity: bytes, request: Request, *frames: bytes) -> None:
        """Keep an answer."""
        self.answers.append(decode(frames[-1]))


def _status(hub_id: str, seq: int) -> HubStatus:
    return HubStatus(hub_id, 1, "test", 0.0, 1.0, last_seq=seq)


def _welcome(hub_id: str, seq: int, request_id: int) -> bytes:
    welcome = Welcome(request_id, make_sample(seq), (), _status(hub_id, seq), History().block())
    return encode("welcome", hub_id, welcome)


def test_of_an_agent_that_was_started_again_nothing_is_told_before_its_own_answer() -> None:
    clock, connection, gate = HandClock(1000.0), HandConnection(), HandGate()
    node = RemoteNode("n1", connection, clock, History(), "cells")
    relayed = RelayedNode("n1", node, gate, clock)  # type: ignore[arg-type] # all of it that is used here

    def hear(*messages: bytes) -> None:
        connection.waiting += messages
        node.receive()
        relayed.answer_waiting()

    node.receive()
    hear(_welcome("first", 100, 1))
    relayed.join(b"viewer", Request("join", 7, detail="cells"), "")
    assert [answer.hub_id for answer in gate.answers] == ["first"]
    # The state of the agent that was started again comes before its answer does.
    hear(encode("hub", "second", _status("second", 1)))
    relayed.join(b"viewer", Request("join", 8, detail="cells"), "second")
    assert len(gate.answers) == 1
    hear(_welcome("second", 2, 2))
    newest = gate.answers[-1]
    told = body_of(newest, Welcome)
    assert (newest.hub_id, told.request_id) == ("second", 8)
    assert told.sample is not None
    assert told.sample.seq == 2
