"""What comes in at an agent's tcp port from strangers: garbage, half greetings, floods; the hub goes on."""

import math
import resource
import socket
import subprocess
import sys
from contextlib import suppress

import msgspec
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramscope.engine.agent.supervisor import MOST_DESCRIPTORS
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.gate import MAX_INCOMING_BYTES, MAX_PEERS, Doorkeeper
from vramscope.engine.cluster.keys import keys_folder, make_key_pair
from vramscope.engine.history import History
from vramscope.engine.model import Finding, HubStatus
from vramscope.engine.wire.messages import Request, Welcome, WorkerReport, body_of, decode, encode
from vramscope.engine.wire.selection import BURST, JOIN_COSTS, PER_SECOND, PeerState

from ..agent.hubs import make_sample
from .remote import ListeningHub, allow, following, free_port, has_seq, trust_of, until

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)
"""What ZMTP 3.1 begins with; handshakes follow."""
COMMANDS = (b"\x04\x26\x05HELLO", b"\x04\x19\x05READY", b"\x06" + (2**62).to_bytes(8), b"\x00\x05hello", b"")


def _throw(address: TcpAddress, data: bytes) -> None:
    """Connect, send these bytes and leave."""
    with socket.create_connection((address.host, address.port), timeout=5) as peer, suppress(OSError):
        peer.sendall(data)


def test_bytes_of_strangers_take_no_hub_down() -> None:
    pair = make_key_pair()
    with ListeningHub(pair, keys_folder()) as locked, ListeningHub(None, keys_folder()) as open_to_all:

        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.integers(0, len(GREETING)), st.sampled_from(COMMANDS), st.binary(max_size=300))
        def throw(length: int, command: bytes, rest: bytes) -> None:
            for address in (locked.address, open_to_all.address):
                _throw(address, GREETING[:length] + command + rest)

        throw()
        for hub, trust in ((locked, trust_of(pair)), (open_to_all, trust_of(None))):
            hub.producer.push([make_sample(1)])
            with following(trust, hub.address) as watch:
                until(watch, has_seq(1))


@pytest.mark.parametrize("size", [0, 1, MAX_INCOMING_BYTES + 1])
def test_messages_that_are_none_and_messages_too_large_are_left_out(size: int) -> None:
    with ListeningHub(None, keys_folder()) as hub:
        context = zmq.Context()
        peer = context.socket(zmq.DEALER)
        peer.connect(hub.address.endpoint)
        for message in (bytes(size), b"\xc1" * min(size, 100), encode("request", "", Request("decide", 1))):
            peer.send_multipart([message, message])
            peer.send(message)
        hub.producer.push([make_sample(1)])
        with following(trust_of(None), hub.address) as watch:
            until(watch, has_seq(1))
        context.destroy(linger=0)


def test_who_asks_for_everything_again_and_again_is_answered_a_few_times() -> None:
    with ListeningHub(None, keys_folder()) as hub:
        hub.producer.push([make_sample(1)])
        context = zmq.Context()
        peer = context.socket(zmq.DEALER)
        peer.connect(hub.address.endpoint)
        for number in range(1, 30):
            peer.send(encode("request", "", Request("join", number, topics=("hub/",))))
        kinds = [msgspec.msgpack.decode(peer.recv())["kind"] for _ in range(10)]
        context.destroy(linger=0)
    assert 1 <= kinds.count("welcome") <= 3
    assert "refusal" in kinds


def test_an_agent_that_listens_raises_its_limit_of_connections() -> None:
    words = f"exec {sys.executable} -m vramscope agent --no-worker --listen {free_port()}"
    agent = subprocess.Popen(["sh", "-c", f"ulimit -Sn 256; {words}"], stderr=subprocess.PIPE, text=True)
    try:
        assert agent.stderr is not None
        assert any("listening on" in line for line in agent.stderr)
        soft, hard = resource.prlimit(agent.pid, resource.RLIMIT_NOFILE)
        assert soft == min(hard, MOST_DESCRIPTORS)
    finally:
        agent.terminate()
        agent.communicate(timeout=60)


def test_what_a_peer_may_ask_comes_back_with_time() -> None:
    peer = PeerState("bob", noted_s=0.0)
    assert [peer.spend(JOIN_COSTS, 0.0) for _ in range(4)] == [True, True, True, False]
    assert not peer.spend(JOIN_COSTS, 0.5)
    assert peer.spend(JOIN_COSTS, JOIN_COSTS / PER_SECOND + 0.01)
    assert peer.spend(BURST, 1000.0)


def test_an_agent_that_tells_nonsense_is_named_and_disturbs_no_other() -> None:
    sample, port = make_sample(1), free_port()
    status = HubStatus("liar", 1, "1", 0.0, 1.0)
    forged = History()
    forged.add(sample)
    block = msgspec.structs.replace(forged.block(), fine_ticks={"time": b"1234567"})
    with (
        ListeningHub(None, keys_folder()) as hub,
        zmq.Context() as context,
        context.socket(zmq.ROUTER) as liar,
        following(trust_of(None), TcpAddress(LOOPBACK, port), hub.address) as watch,
    ):
        liar.bind(f"tcp://{LOOPBACK}:{port}")
        address = TcpAddress(LOOPBACK, port)
        until(watch, lambda _: liar.poll(0), address)
        peer, question = liar.recv_multipart()
        number = body_of(decode(question), Request).request_id
        liar.send_multipart([peer, encode("welcome", "liar", Welcome(number, sample, (), status, block))])
        until(watch, lambda it: "sends invalid values" in (it.reason or ""), address)
        hub.producer.push([make_sample(1)])
        until(watch, has_seq(1), hub.address)


def test_a_question_of_zeromq_that_is_none_lets_nobody_in() -> None:
    keeper = Doorkeeper(make_key_pair(), keys_folder())
    for question in (
        [],
        [b"1.0", b"1"],
        [b"1.0", b"1", b"d", b"a", b"", b"NULL"],
        [b""] * 5 + [b"CURVE", b"short"],
    ):
        assert keeper.answer(question)[2] == b"400"


def test_a_key_is_let_in_by_its_name_or_not_at_all() -> None:
    own, stranger = make_key_pair(), make_key_pair()
    keeper = Doorkeeper(own, keys_folder())
    head = [b"1.0", b"7", b"vramscope", b"192.0.2.1", b"", b"CURVE"]
    assert keeper.answer([*head, own.public])[1:5] == [b"7", b"200", b"", own.public_text.encode()]
    assert keeper.answer([*head, stranger.public])[1:5] == [b"7", b"400", b"this key is not allowed", b""]


def test_peers_are_bounded_and_those_that_follow_stay() -> None:
    with ListeningHub(None, keys_folder()) as hub, following(trust_of(None), hub.address) as watch:
        hub.producer.push([make_sample(1)])
        until(watch, has_seq(1))
        context = zmq.Context()
        context.set(zmq.MAX_SOCKETS, 2 * MAX_PEERS)
        peers = [context.socket(zmq.DEALER) for _ in range(MAX_PEERS + 20)]
        for peer in peers:
            peer.connect(hub.address.endpoint)
            peer.send(encode("request", "", Request("segments", 1)))
        for peer in peers:
            assert peer.poll(30_000)
        hub.producer.push([make_sample(2)])
        until(watch, has_seq(2))
        gate = hub.hub._sockets._gate
        assert gate is not None
        assert len(gate._peers) <= MAX_PEERS
        context.destroy(linger=0)


def test_times_that_are_none_over_tcp_are_counted_and_shut_nobody_out() -> None:
    """Of a worker elsewhere, whose sound findings are taken, and of its requests."""
    found = tuple(
        Finding(f"f{at}", "leak", "node", "GPU-a", "0", "high", "t", time_s, time_s)
        for at, time_s in enumerate((math.nan, 1e300, 1000.0))
    )
    report = WorkerReport("worker", 7, 1, 0, ("leak",), found, open_ids=("f2",))
    pair, worker = make_key_pair(), make_key_pair()
    allow(keys_folder(), ("worker", worker))
    with ListeningHub(pair, keys_folder()) as hub:
        hub.producer.push([make_sample(1)])
        context = zmq.Context()
        peer = context.socket(zmq.DEALER)
        peer.setsockopt(zmq.CURVE_SECRETKEY, worker.secret)
        peer.setsockopt(zmq.CURVE_PUBLICKEY, worker.public)
        peer.setsockopt(zmq.CURVE_SERVERKEY, pair.public)
        peer.connect(hub.address.endpoint)
        peer.send(encode("report", "", report))
        peer.send(encode("request", "", Request("history", 1, pid=1, seconds=math.inf)))
        with following(trust_of(pair, node=pair), hub.address) as watch:
            seen = until(watch, lambda it: it.hub is not None and "2 messages" in " ".join(it.hub.notes))
            assert [it.id for it in seen.findings] == ["f2"]
        context.destroy(linger=0)
    assert seen.hub is not None
    assert (
        "from a peer over tcp: a request message was rejected: Request.seconds is inf" in seen.hub.notes[-1]
    )
