"""What comes over the wire, fuzzed: what agents and relays tell, and what peers ask of a hub or a relay.

Nothing may come of a message but what it says, or that it is refused.
"""

import atexit
import tempfile
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from tests.analyzers.cluster_state.clusters import make_node as make_rank_node
from tests.analyzers.fleet.nodes import make_node
from tests.clocks import HandClock
from tests.engine.agent.assessors import make_assessment
from tests.engine.agent.hubs import HandProducer, make_sample
from tests.engine.cluster.remote import free_port
from vramscope.analyzers.cluster_state.state import ClusterState
from vramscope.analyzers.fleet.fleet import Fleet
from vramscope.analyzers.fleet.verdict import judge_fleet
from vramscope.engine.agent.hub import Hub
from vramscope.engine.alerts.state import Acknowledgement, AlertState, FindingChange, Mute
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.distributed import REPORT, read_report
from vramscope.engine.cluster.gate import Listening, make_listening
from vramscope.engine.cluster.keys import AllowList, KeyPair, make_key_pair
from vramscope.engine.cluster.relay import Relay
from vramscope.engine.cluster.remote_node import RelayLink, RemoteNode
from vramscope.engine.cluster.trust import Trust
from vramscope.engine.errors import WireError
from vramscope.engine.history import History
from vramscope.engine.model import Finding, HubStatus
from vramscope.engine.ranks.messages import PackedSegments
from vramscope.engine.ranks.roster import Roster
from vramscope.engine.text import make_printable_lines
from vramscope.engine.wire.messages import (
    Advised,
    Done,
    FindingBatch,
    KnownNode,
    KnownNodes,
    ModulesAnswer,
    NodeReport,
    Refusal,
    Request,
    Welcome,
    WorkerReport,
    encode,
)
from vramscope.engine.wire.selection import RemotePeer
from vramscope.exporters.json_lines import encode_line
from vramscope.exporters.reports.frame import Provenance
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.text import describe_report
from vramscope.exporters.status.document import describe_snapshot
from vramscope.memory.distributed_exchange import DistributedRole, Meeting, NodeExchange

from .showing import is_shown

HUB = "hub"
_FINDING = Finding("f1", "oom", "node", "GPU-a", "0", "high", "runs out", 1001.0, 1001.0)


class HandConnection:
    """A connection over which comes what is put there."""

    node, answers_within_s = "n1", 2.0
    trouble: str | None = None
    warning: str | None = "speaks without keys"
    sources: tuple[object, ...] = ()
    address = TcpAddress(LOOPBACK, 5757)
    silence = "silent"
    is_connected = True

    def __init__(self) -> None:
        self.waiting: list[bytes] = []
        self._is_new = True

    def silence_s(self, now_s: float) -> float | None:
        """Nobody is between."""
        return None

    def send(self, data: bytes) -> None:
        """Nobody is there."""

    def receive(self) -> list[bytes]:
        """Return what was put there."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def note_events(self) -> bool:
        """Return whether this is the first look."""
        is_new, self._is_new = self._is_new, False
        return is_new

    def mend(self, now_s: float, *, is_silent: bool = False) -> None:
        """Nothing breaks."""

    def close(self) -> None:
        """Nothing is open."""


class _ReadyProducer(HandProducer):
    """Lets its hub wait for nothing."""

    def wait_s(self) -> float:
        return 0.0


def split(data: bytes) -> list[bytes]:
    """Return the messages that bytes are read as: a MessagePack list of them, or one."""
    try:
        return msgspec.msgpack.decode(data, type=list[bytes])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return [data]


def hear(data: bytes) -> None:
    """Follow a node that tells these messages, in full or in part, and show it; both if it is shown."""
    if is_shown(data) or zlib.crc32(data) & 1 << 8:
        _hear_in("full", data)
    if is_shown(data) or not zlib.crc32(data) & 1 << 8:
        _hear_in("cells", data)


def _hear_in(detail: Literal["full", "cells"], data: bytes) -> None:
    clock, connection = HandClock(1000.0), HandConnection()
    node = RemoteNode("n1", connection, clock, History(), detail)
    node.receive()
    node.picture.ask_modules(7)
    node.picture.advise(7, "empty_cache")
    for message in split(data):
        connection.waiting.append(message)
        node.receive()
        clock.now_s += 1.0
        node.judge()
    node.picture.history.block()
    if not is_shown(data):
        return
    newest = node.picture.newest
    fleet, across = Fleet(), ClusterState()
    fleet.note(newest, 1000.0)
    judge_fleet(fleet.picture.census, fleet.coverage)
    across.observe(newest, 1000.0)
    status = describe_snapshot(newest)
    encode_line(newest if status is None else status)
    link = RelayLink(node, connection, None)  # type: ignore[arg-type]
    if link.take_news():
        link.list_nodes()


def ask(data: bytes) -> None:
    """Ask these things of a hub and of a relay, as one who may do everything."""
    hub, relay, user = _serve()
    peer = RemotePeer.of(b"fuzz", user)
    for message in split(data):
        hub._handle_request(peer, message)
        relay._take(peer, message)
    hub._serve_once()


def gather(data: bytes) -> None:
    """Gather these reports of nodes, and report what they come to."""
    clock, log = HandClock(1000.0), RunLog()
    meeting = Meeting(DistributedRole.MASTER)
    exchange = NodeExchange("m", meeting, interval_s=1.0, timeout_s=30.0, clock=clock)
    for message in split(data):
        try:
            report = read_report(message)
        except WireError:
            continue
        if exchange.roll.refuse(report) is None:
            exchange.roll.take(report)
        if is_shown(data):
            exchange.events.note(exchange.roll.present)
            exchange.jobs.note(exchange.roll)
        clock.now_s += 1.0
    if is_shown(data):
        built = exchange.build(log, Provenance(source="driver"))
        encode_line(built)
        assert make_printable_lines(text := describe_report(built, 80)) == text


@cache
def _serve() -> tuple[Hub, Relay, str]:
    """Return a hub and a relay that listen, and the key of who asks."""
    folder = tempfile.TemporaryDirectory(prefix="vs-fuzz-", dir="/tmp")
    atexit.register(folder.cleanup)
    runtime = Path(folder.name) / "run"
    runtime.mkdir(mode=0o700)
    pair, roster = make_key_pair(), Roster(runtime, node="node")
    hub = Hub(
        runtime,
        _ReadyProducer(),
        version="fuzz",
        roster=roster,
        listening=_listen(pair, Path(folder.name)),
    )
    hub._publish_sample(make_sample(1))
    relay = Relay(
        [TcpAddress(LOOPBACK, free_port())],
        Trust(pair, AllowList()),
        _listen(pair, Path(folder.name)),
        name="r1",
        version="fuzz",
    )
    for close in (roster.close, hub._sockets.close, relay._watch.close):
        atexit.register(close)
    return hub, relay, pair.public_text


def _listen(pair: KeyPair, folder: Path) -> Listening:
    return make_listening(TcpAddress(LOOPBACK, free_port()), pair, folder)


def seed_told() -> Iterable[bytes]:
    """Yield what agents and relays tell."""
    history = History()
    for seq in range(1, 4):
        history.add(make_sample(seq))
    status = HubStatus(HUB, 1, "1", 1000.0, 1.0, 3)
    welcome = Welcome(1, make_sample(3), (_FINDING,), status, history.block(), 1, 1)
    nodes = KnownNodes(
        1, "r1", (KnownNode("n1", "lost", "away", 3.0), KnownNode("r2/n1", "live")), ("relay",)
    )
    batch = FindingBatch((_FINDING,), (make_assessment(),))
    alerts = AlertState(
        (Acknowledgement("f1", "oom", "node", "GPU-a", 1001.0),),
        (Mute("oom", "node", "GPU-a", 1001.0, until_s=2000.0),),
        (FindingChange("f1", 1001.0, "opened, high"),),
    )
    training = make_node("node", 2, oom=0, seq=5)
    assert training.sample is not None
    told: tuple[tuple[str, msgspec.Struct], ...] = (
        ("welcome", welcome),
        ("sample", make_sample(4)),
        ("sample", training.sample),
        ("findings", batch),
        ("findings", FindingBatch((), training.assessments)),
        ("alerts", alerts),
        ("hub", status),
        ("segments", PackedSegments("node", 7, None, b"")),
        ("modules", ModulesAnswer(2, 7, b"")),
        ("advised", Advised(3, 7, True, "gave back 1 GiB", 1 << 30)),
        ("done", Done(2)),
        ("refusal", Refusal(2, "no")),
        ("nodes", nodes),
    )
    messages = [encode(kind, HUB, body) for kind, body in told]
    yield msgspec.msgpack.encode(messages)
    yield from (msgspec.msgpack.encode([messages[0], message]) for message in messages)
    yield messages[-1]


def seed_gathered() -> Iterable[bytes]:
    """Yield what nodes of a distributed run report."""
    samples = (make_rank_node(number, at_s, {}, stages=2).sample for at_s in (1.0, 2.0) for number in (0, 1))
    reports = [
        encode(REPORT, HUB, NodeReport(sample=it, findings=(_FINDING,), step=2, session="s"))
        for it in samples
        if it is not None
    ]
    yield msgspec.msgpack.encode(reports)
    yield from reports


def seed_asked() -> Iterable[bytes]:
    """Yield what peers ask."""
    join = Request("join", 1, topics=("sample/", "hub/"), detail="cells", node="n1", since_seq=2)
    advise = Request("advise", 2, 7, action="skip_long_batch", reason="near", seconds=3.0)
    report = WorkerReport("w", 1, 1, 0, ("oom",), (_FINDING,), ("f1",), found_by=("oom",), is_chosen=True)
    some = Request("join", 4, topics=("sample/",), devices=("0-3", "GPU-a", "[*"))
    asked = [encode("request", HUB, it) for it in (join, advise, Request("leave", 3, node="n1"), some)]
    yield msgspec.msgpack.encode([*asked, encode("report", "", report)])
    yield from asked
