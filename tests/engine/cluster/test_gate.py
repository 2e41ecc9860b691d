"""Who keeps a place at an agent's tcp port: names of connections are chosen by peers, keys are not."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import get_args, get_type_hints

import msgspec
import zmq

from vramscope.engine.clock import Clock, SystemClock
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.gate import MAX_INCOMING_BYTES, VISITOR, Gate, make_listening
from vramscope.engine.cluster.keys import KeyPair, keys_folder, make_key_pair
from vramscope.engine.wire.messages import Request
from vramscope.engine.wire.selection import MAX_PEERS_OF_KEY, RemotePeer

from ...clocks import HandClock
from .remote import allow, free_port

OWN, ALICE, BOB, CAROL = (make_key_pair() for _ in range(4))


@contextmanager
def _open_gate(pair: KeyPair | None = OWN, clock: Clock | None = None) -> Iterator[Gate]:
    listening = make_listening(TcpAddress(LOOPBACK, free_port()), pair, keys_folder())
    context = zmq.Context()
    try:
        yield Gate(context, listening, "n1", "hub", clock or SystemClock())
    finally:
        context.destroy(linger=0)


def _join(gate: Gate, identity: bytes, pair: KeyPair) -> str | None:
    return gate.refuse(RemotePeer.of(identity, pair.public_text), Request("join", 1, topics=("sample/",)))


def test_who_takes_the_name_of_another_connection_is_cut_off_by_the_own_key() -> None:
    allow(keys_folder(), ("viewer", ALICE), ("viewer", BOB))
    with _open_gate() as gate:
        assert _join(gate, b"same", ALICE) is None
        assert _join(gate, b"same", BOB) is None
        assert gate.viewers == 1
        allow(keys_folder(), ("viewer", ALICE))
        gate.cut_off_revoked()
        assert gate.viewers == 0


def test_who_may_read_may_nothing_else_whatever_can_be_asked() -> None:
    allow(keys_folder(), ("viewer", ALICE), ("node", BOB), ("worker", CAROL))
    verbs: tuple[str, ...] = get_args(get_type_hints(Request)["verb"])

    def find_granted(gate: Gate, user: str) -> set[str]:
        peer = RemotePeer.of(b"p", user)
        granted = {
            verb
            for verb in verbs
            if gate.refuse(peer, msgspec.convert({"verb": verb, "request_id": 1}, Request)) is None
        }
        return granted | ({"report"} if gate.refuse_report(peer) is None else set())

    with _open_gate() as gate:
        assert find_granted(gate, ALICE.public_text) == {"join", "leave"}
        assert find_granted(gate, BOB.public_text) == set()
        of_worker = {"join", "leave", "segments", "history", "advise", "report"}
        assert find_granted(gate, CAROL.public_text) == of_worker
        assert find_granted(gate, OWN.public_text) == {*verbs, "report"}
    with _open_gate(None) as gate:
        assert find_granted(gate, VISITOR) == {"join", "leave"}


def test_one_key_cannot_take_the_places_of_all_others() -> None:
    allow(keys_folder(), ("viewer", ALICE), ("viewer", BOB))
    with _open_gate() as gate:
        refusals = [_join(gate, bytes([1, *divmod(at, 256)]), ALICE) for at in range(MAX_PEERS_OF_KEY + 1)]
        assert refusals[0] is None
        assert "with one key" in (refusals[-1] or "")
        assert _join(gate, b"bob", BOB) is None
        assert _join(gate, b"own", OWN) is None


def test_many_connections_of_one_key_ask_no_more_together_than_the_key_may() -> None:
    allow(keys_folder(), ("viewer", ALICE), ("viewer", BOB))
    clock = HandClock()
    with _open_gate(clock=clock) as gate:
        # Names are new each time: a connection that is not remembered is counted against its key too.
        asked = [_join(gate, at.to_bytes(4), ALICE) for at in range(1, 4 * MAX_PEERS_OF_KEY)]
        assert sum("too often" in (it or "") for it in asked) > 2 * MAX_PEERS_OF_KEY
        assert _join(gate, b"bob", BOB) is None
        clock.now_s += 10.0
        assert "too often" not in (_join(gate, b"late", ALICE) or "")


def test_who_sends_much_is_held_up_before_it_fills_the_memory() -> None:
    with _open_gate(None) as gate, zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        peer.setsockopt(zmq.SNDHWM, 1)
        peer.setsockopt(zmq.SNDTIMEO, 500)
        peer.connect(gate.router.getsockopt_string(zmq.LAST_ENDPOINT))
        assert gate.questions.poll(10_000)
        gate.take_questions()
        message, sent = bytes(MAX_INCOMING_BYTES), 0
        with suppress(zmq.Again):
            while sent < 60:  # nobody reads there; the system itself buffers some
                peer.send(message)
                sent += 1
        assert 1 < sent < 60
