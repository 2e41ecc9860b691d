"""Which nodes and which of their devices are followed: of others nothing comes over the wire."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import msgspec
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from tests.clocks import HandClock
from tests.engine.agent.assessors import make_assessment
from tests.fuzz.peers import HandConnection, seed_told, split
from vramscope.cli.application import run as main
from vramscope.cli.verbs.guard import Guard, GuardOptions
from vramscope.engine.cluster.addresses import LOOPBACK, TcpAddress
from vramscope.engine.cluster.keys import keys_folder
from vramscope.engine.cluster.nodes_watch import NO_NODE, NodesWatch
from vramscope.engine.cluster.remote_node import Choice, RemoteNode
from vramscope.engine.errors import UsageError
from vramscope.engine.history import History
from vramscope.engine.model import AllocatorReading, Finding, HostSample, ProcessReading, RankSample, Sample
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.endpoints import endpoints_of
from vramscope.engine.wire.messages import TOPIC_CELLS, TOPIC_SAMPLE, WorkerReport, decode, encode
from vramscope.engine.wire.selection import DeviceSelection, parse_devices, trim_sample

from ...waiting import wait_until
from ..agent.hubs import make_sample
from .relays import RunningRelay, until_of
from .remote import ListeningHub, has_seq, trust_of

WANTED, OTHER = "GPU-a", "GPU-other"
NOBODY = TcpAddress(LOOPBACK, 9)


def make_pair(seq: int) -> Sample:
    """Return a sample of two devices, with a process and a rank on each."""
    devices = [
        msgspec.structs.replace(
            make_sample(seq, uuid=uuid).devices[0], index=at, processes=(ProcessReading(7),)
        )
        for at, uuid in enumerate((WANTED, OTHER))
    ]
    ranks = [
        RankSample(10 + at, 1.0, device_uuid=it.uuid, allocator=AllocatorReading(1024))
        for at, it in enumerate(devices)
    ]
    return msgspec.structs.replace(
        make_sample(seq), devices=tuple(devices), ranks=tuple(ranks), host=HostSample(total_bytes=1024)
    )


def has_host(snapshot: Snapshot) -> bool:
    """Return whether a node is followed in full."""
    return snapshot.sample is not None and snapshot.sample.host is not None


def find_something(hub: ListeningHub, seq: int) -> None:
    """Tell a hub what a worker would say of both devices."""
    findings, assessments = [], []
    for label, uuid in enumerate((WANTED, OTHER)):
        title = f"{uuid} is nearly full"
        findings.append(
            Finding(f"f{uuid}", "oom", "node", uuid, str(label), "high", title, 1000.0, 1000.0 + seq)
        )
        assessments.append(make_assessment(1000.0 + seq, uuid=uuid, device=str(label), pid=10 + label))
    report = WorkerReport("w", 1, seq, 0, ("oom",), tuple(findings), assessments=tuple(assessments))
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(endpoints_of(hub.folder).reports)
        push.send(encode("report", "", report))


@contextmanager
def choosing(
    choice: Choice, *addresses: TcpAddress, most_in_full: int | None = None
) -> Iterator[tuple[NodesWatch, list[bytes]]]:
    """Follow what is chosen until the block ends; yield the watch, and every message that comes of nodes."""
    heard: list[bytes] = []
    watch = NodesWatch(addresses, trust_of(None), most_in_full=most_in_full, choice=choice)

    def listen(_name: str, node: RemoteNode) -> None:
        node.on_heard = lambda data, _events: heard.append(data or b"")

    watch.on_added = listen
    for name, node in watch.nodes.items():
        listen(name, node)
    with closing(watch):
        yield watch, heard


@pytest.mark.parametrize("most_in_full", [None, 0])
@pytest.mark.parametrize("is_relayed", [False, True])
def test_nothing_is_sent_of_devices_that_were_not_chosen(most_in_full: int | None, is_relayed: bool) -> None:
    with ListeningHub(None, keys_folder()) as hub, RunningRelay(hub.address) as relay:
        name, address = hub.address.label, relay.address if is_relayed else hub.address
        hub.producer.push([make_pair(seq) for seq in range(1, 6)])
        find_something(hub, 5)
        with (
            choosing(Choice(devices=("0",)), address, most_in_full=most_in_full) as (watch, heard),
            choosing(Choice(), address, most_in_full=most_in_full) as (others, all_heard),
        ):
            for each in (watch, others):
                until_of(each, name, lambda it: has_seq(5)(it) and it.findings and it.assessments)
            find_something(hub, 6)
            hub.producer.push([make_pair(6)])
            seen = until_of(watch, name, lambda it: has_seq(6)(it) and it.findings[0].updated_s == 1006.0)
            whole = until_of(others, name, lambda it: has_seq(6)(it) and it.findings[0].updated_s == 1006.0)
            assert seen.sample is not None
            assert whole.sample is not None
            assert [(it.uuid, it.index) for it in seen.sample.devices] == [(WANTED, 0)]
            assert [it.pid for it in seen.sample.ranks] == [10]
            assert (seen.sample.devices_left_out, whole.sample.devices_left_out) == (1, 0)
            for its in (seen.findings, seen.assessments, seen.alerts.changes):
                assert {it.device_uuid for it in its} == {WANTED}
            assert len(whole.sample.devices) == len(whole.findings) == len(whole.assessments) == 2
            assert heard
            assert not [data for data in heard if OTHER.encode() in data]
            assert [data for data in all_heard if OTHER.encode() in data]
            held = [it.seq for it in watch.nodes[name].picture.history.samples()]
            assert held == ([1, 2, 3, 4, 5, 6] if most_in_full is None else [])
            assert (seen.sample.host is None) == (most_in_full == 0)


def test_of_an_agent_that_tells_of_all_devices_only_those_chosen_are_taken() -> None:
    connection = HandConnection()
    node = RemoteNode("n1", connection, HandClock(1000.0), History(), devices=("GPU-nobody",))
    node.receive()
    for message in split(next(iter(seed_told()))):
        connection.waiting.append(message)
        node.receive()
    newest = node.picture.newest
    assert newest.sample is not None
    assert (newest.sample.devices, newest.findings, newest.assessments) == ((), (), ())
    assert newest.sample.devices_left_out > 0
    assert [*newest.alerts.acknowledged, *newest.alerts.mutes] == []
    assert not [device for sample in node.picture.history.samples() for device in sample.devices]


def test_what_was_decided_of_a_chosen_device_is_known_though_it_comes_with_the_first_answer() -> None:
    connection = HandConnection()
    node = RemoteNode("n1", connection, HandClock(1000.0), History(), devices=("GPU-a",))
    node.receive()
    told = split(next(iter(seed_told())))
    connection.waiting += [data for data in told if decode(data).kind in ("welcome", "alerts")]
    node.receive()
    assert [it.device_uuid for it in node.picture.newest.alerts.mutes] == ["GPU-a"]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("0", "0"),
        ("0-1,sim3", "0 1 sim3"),
        ("1:*", "1:0 1:1"),
        ("0,1:1", "0 1:1"),
        ("gpu-b", "1"),
        ("CPU", "cpu"),
        ("9", ""),
    ],
)
def test_words_mean_devices_as_they_are_shown_or_by_uuid(words: str, wanted: str) -> None:
    known = {"0": "GPU-aa", "1": "GPU-bb", "1:0": "MIG-c", "1:1": "MIG-d", "sim3": "sim-e", "cpu": "cpu"}
    selection = DeviceSelection(parse_devices(words))
    assert [label for label, uuid in known.items() if selection.wants(uuid, label)] == wanted.split()


@pytest.mark.parametrize("words", ["", "0,", "5-2", "-3", "1-2-3", "\x1b", ",".join("0" * 65), "x" * 81])
def test_words_that_can_mean_no_device_are_refused(words: str) -> None:
    with pytest.raises(UsageError, match="--devices"):
        parse_devices(words)


@given(st.lists(st.text(max_size=12), max_size=4))
def test_whatever_is_asked_for_is_left_or_counted(words: list[str]) -> None:
    whole, wanted = make_pair(1), DeviceSelection(tuple(words))
    left = trim_sample(whole, wanted)
    assert len(left.devices) + left.devices_left_out == 2
    assert set(left.devices) <= set(whole.devices)
    assert trim_sample(left, wanted) == left


def show(*words: str) -> int:
    """Print what the nodes tell, once, and return the exit code."""
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main([*words, "--once"]))
    return int(ended.value.code or 0)


def test_a_table_says_how_many_devices_are_followed_and_what_there_is_instead(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramscope.cli.remote_view.leave_now", _leave)
    with ListeningHub(None, keys_folder()) as hub:
        hub.producer.push([make_pair(1)])
        node = ("--connect", hub.address.text)
        assert show(*node, "--devices", "1") == 0
        told = capfd.readouterr()
        assert told.out.splitlines()[0].startswith("node · 1 of 2 devices followed · ")
        assert "OOM risk" in told.out.splitlines()[1]
        assert show(*node, "--devices", "1", "--json") == 0
        line: dict[str, Any] = json.loads(capfd.readouterr().out)
        assert (line["devices_left_out"], [it["uuid"] for it in line["devices"]]) == (1, [OTHER])
        assert show(*node, "--devices", "9") == 2
        told = capfd.readouterr()
        assert "o device of node matches --devices 9: it has 0-1" in told.err
        assert "No device of node matches --devices 9: it has 0-1" in told.out
        assert show(*node, "--nodes", "elsewhere*") == 2
        assert "no node matches --nodes elsewhere*; known are 127.0.0.1" in capfd.readouterr().err


def _leave(code: int) -> None:
    raise SystemExit(code)


def test_only_chosen_nodes_behind_a_relay_are_followed_and_the_rest_is_counted() -> None:
    with (
        ListeningHub(None, keys_folder()) as one,
        ListeningHub(None, keys_folder()) as other,
        RunningRelay(one.address, other.address) as relay,
    ):
        for hub in (one, other):
            hub.producer.push([make_pair(1)])
        names = [hub.address.label for hub in (one, other)]
        with choosing(Choice((names[1],)), relay.address, one.address, most_in_full=2) as (watch, _):
            until_of(watch, names[1], has_host)
            wait_until(lambda: (watch.turn(0.05), watch.nodes_left_out == 2)[1], what="the others")
            assert list(watch.nodes) == [names[1]]
            assert watch.mismatch is None
            gate = relay.relay._gate
            assert [gate.has_followers(TOPIC_SAMPLE, name) for name in names] == [False, True]
            assert not gate.has_followers(TOPIC_CELLS, names[0])
        with choosing(Choice(("n7",)), relay.address) as (watch, _):
            told: list[Snapshot] = []

            def is_said() -> bool:
                told.extend(watch.turn(0.05))
                return watch.mismatch is not None

            wait_until(is_said, what="that there is none")
            assert [it.reason for it in told if it.node == NO_NODE] == [watch.mismatch]
            assert watch.mismatch == f"no node matches --nodes n7; known are {', '.join(names)}"


def test_guard_says_that_it_concludes_from_what_is_followed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with ListeningHub(None, keys_folder()) as hub, RunningRelay(hub.address, NOBODY) as relay:
        hub.producer.push([make_pair(1)])
        name = hub.address.label
        with choosing(Choice((name,), ("9",)), relay.address, most_in_full=0) as (watch, _):
            guard = Guard(watch, GuardOptions())
            said = f"only what matches --nodes {name} and --devices 9 is analyzed; findings do not cover"
            assert said in capsys.readouterr().err

            def is_said() -> bool:
                guard.turn(0.05)
                return "o device of node matches --devices 9: it has 0-1" in capsys.readouterr().err

            wait_until(is_said, what="what there is instead")
            guard._finish()
            assert "not followed: 1 node and 2 devices of followed nodes" in capsys.readouterr().out
