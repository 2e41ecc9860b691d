"""Reports over loopback with keys and without: whose are taken, and what becomes of the rest."""

import math
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
import zmq

from vramscope.engine.cluster.distributed import (
    EARLIER_REPORT,
    REPORT,
    Collector,
    MasterTrust,
    NodeRoll,
    Reporter,
    describe_gathering,
    open_reporter,
    prepare_gathering,
    read_report,
)
from vramscope.engine.cluster.gate import MAX_INCOMING_BYTES
from vramscope.engine.cluster.keys import KeyPair, make_key_pair, save_key_pair
from vramscope.engine.errors import UsageError
from vramscope.engine.model import DeviceSample, MemoryReading
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.wire.messages import (
    PROTOCOL_VERSION,
    Envelope,
    NodeReceipt,
    Refusal,
    Request,
    body_of,
    decode,
    encode,
)

from ...vramscope.memory.test_node_roll import make_report
from ...waiting import wait_until
from .remote import allow, free_port, trust_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of keys that is there and private."""
    path = tmp_path / "keys"
    path.mkdir(mode=0o700)
    return path


@contextmanager
def gathering(folder: Path, *, is_insecure: bool = False) -> Iterator[tuple[Collector, NodeRoll, int]]:
    """Gather on a port of loopback until the block ends."""
    roll, port = NodeRoll(30.0), free_port()
    listening = prepare_gathering("localhost", port, is_insecure=is_insecure, folder=folder)
    with closing(Collector(listening, "m", roll)) as collector:
        yield collector, roll, port


def reporting(port: int, pair: KeyPair | None, node: KeyPair | None = None) -> "closing[Reporter]":
    """Report with a key, knowing the master by another."""
    trust = MasterTrust(*trust_of(pair, node=node))
    return closing(open_reporter("localhost", port, is_insecure=False, trust=trust))


def turn_until(
    collector: Collector, reporter: Reporter, condition: Callable[[], object], node_id: str = "w"
) -> None:
    """Let both ends do their work until the condition is met."""

    def is_met() -> bool:
        reporter.send(make_report(node_id, 40))
        collector.collect()
        reporter.receive()
        return bool(condition())

    wait_until(is_met, 60.0, "the condition")


def test_keys_decide_whose_reports_are_taken(folder: Path) -> None:
    master, worker, viewer, stranger = (make_key_pair() for _ in range(4))
    save_key_pair(master, folder)
    allow(folder, ("worker", worker), ("viewer", viewer))
    with gathering(folder) as (collector, roll, port):
        for pair, name in ((master, "own"), (worker, "w")):
            with reporting(port, pair, master) as reporter:
                turn_until(collector, reporter, partial(roll.nodes.__contains__, name), name)
        assert set(roll.nodes) == {"own", "w"}
        with reporting(port, viewer, master) as reporter:
            turn_until(collector, reporter, lambda: reporter.receipt, "v")
            assert f"keys allow {viewer.public_text} --name NAME --role worker" in (reporter.trouble or "")
        with reporting(port, stranger, master) as reporter:
            turn_until(collector, reporter, lambda: "this key is not allowed" in (reporter.trouble or ""))
        with reporting(port, None) as reporter:
            turn_until(collector, reporter, lambda: "asks for a key" in (reporter.trouble or ""))
        assert set(roll.nodes) == {"own", "w"}, "nobody else"
        with reporting(port, worker, master) as reporter:
            turn_until(collector, reporter, lambda: reporter.has_been_accepted)
            allow(folder)
            turn_until(collector, reporter, lambda: not reporter.receipt or not reporter.receipt.is_accepted)


def test_without_keys_a_master_on_loopback_takes_reports_of_its_user_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with gathering(folder) as (collector, roll, port):
        assert describe_gathering(collector.listening).endswith("from your processes on this machine")
        with closing(open_reporter("localhost", port, is_insecure=False)) as own:
            turn_until(collector, own, lambda: own.has_been_accepted, "own")
        # Another user reaches the port, and not the folder with the key.
        file = locate_runtime_folder() / "loopback" / "own.key"
        assert [it.stat().st_mode & 0o777 for it in (file, file.parent, file.parent.parent)] == [
            *(0o600, 0o700, 0o700)
        ]
        monkeypatch.setenv("VRAMSCOPE_RUNTIME_DIR", str(tmp_path / "other"))
        with closing(open_reporter("localhost", port, is_insecure=False)) as other:
            turn_until(
                collector, other, lambda: "asks for a key that you do not have" in (other.trouble or "")
            )
        with zmq.Context() as context, context.socket(zmq.DEALER) as plain:
            plain.setsockopt(zmq.LINGER, 0)
            events = plain.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
            plain.connect(f"tcp://127.0.0.1:{port}")
            plain.send(encode(REPORT, "false", make_report("false", 40)))
            wait_until(lambda: (collector.collect(), events.poll(0))[1], 60.0, "the end of the connection")
            plain.disable_monitor()
            events.close()
        assert set(roll.nodes) == {"own"}


def test_a_name_is_of_the_first_key_that_reports_under_it_until_its_node_has_left(folder: Path) -> None:
    master, first, second = (make_key_pair() for _ in range(3))
    save_key_pair(master, folder)
    allow(folder, ("worker", first), ("worker", second))
    with (
        gathering(folder) as (collector, roll, port),
        reporting(port, first, master) as holder,
        reporting(port, second, master) as other,
    ):
        turn_until(collector, holder, lambda: holder.has_been_accepted)
        # Even word for word what the holder reports, its end included, is of the wrong key.
        forged = msgspec.structs.replace(make_report("w", 40), is_leaving=True)

        def is_told() -> bool:
            other.send(forged)
            collector.collect()
            other.receive()
            return "in use with another key" in (other.trouble or "")

        wait_until(is_told, what="the refusal")
        assert (roll.find("here"), roll.twins > 0) == (("w",), True)
        holder.send(forged)
        wait_until(lambda: collector.collect() and roll.find("left"), what="the end of the first")
        turn_until(collector, other, lambda: other.has_been_accepted)
        assert roll.nodes["w"].key == second.public_text


def test_what_is_no_report_is_counted_and_a_second_node_of_one_name_is_told(folder: Path) -> None:
    with gathering(folder, is_insecure=True) as (collector, roll, port), reporting(port, None) as reporter:
        turn_until(collector, reporter, lambda: reporter.has_been_accepted)
        taken = roll.nodes["w"].report
        changes = ({"node": "n" * 201}, {"node": ""}, {"interval_s": math.nan})
        samples = [msgspec.structs.replace(taken.sample, **change) for change in changes]
        forged = [
            bytes(MAX_INCOMING_BYTES),
            encode("sample", "w", taken),
            *(encode(REPORT, "w", msgspec.structs.replace(taken, sample=it)) for it in samples),
        ]
        with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
            peer.setsockopt(zmq.LINGER, 0)
            peer.connect(f"tcp://127.0.0.1:{port}")
            for data in forged:
                peer.send(data)
            turn_until(collector, reporter, lambda: collector.rejected == len(forged))
            peer.send(encode(REPORT, "w", msgspec.structs.replace(taken, session="twin")))
            turn_until(collector, reporter, lambda: roll.twins)
            peer.send(bytes(MAX_INCOMING_BYTES + 1))  # this cuts it off, and nobody else
            reporter.receipt = None
            turn_until(collector, reporter, lambda: reporter.receipt)
        assert collector.rejected == len(forged)
        assert list(roll.nodes) == ["w"]


def test_a_node_of_another_version_is_refused_in_a_sentence(folder: Path) -> None:
    with (
        gathering(folder, is_insecure=True) as (collector, roll, port),
        zmq.Context() as context,
        context.socket(zmq.DEALER) as peer,
    ):
        peer.setsockopt(zmq.LINGER, 0)
        peer.connect(f"tcp://127.0.0.1:{port}")
        newer = Envelope(PROTOCOL_VERSION + 1, REPORT, "w", msgspec.Raw(msgspec.msgpack.encode({})))
        peer.send(encode("request", "", Request("join", 1)))
        wait_until(lambda: collector.collect() or collector.rejected, what="a message")
        # There was no answer to it, which a viewer would take for that of an agent: the first is to the next.
        for data in (encode(EARLIER_REPORT, "w", Refusal(1, "")), msgspec.msgpack.encode(newer)):
            peer.send(data)
            wait_until(lambda: collector.collect() or peer.poll(10), what="an answer")
            receipt = body_of(decode(peer.recv()), NodeReceipt)
            assert not receipt.is_accepted
            assert receipt.reason.endswith(": install the same version of vramscope on both sides")
        assert (collector.rejected, dict(roll.nodes)) == (3, {})


GIB = 1 << 30


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (MemoryReading(80 * GIB, -40 * GIB, 90 * GIB), MemoryReading(80 * GIB)),
        (MemoryReading(1, 1 << 62, 0), MemoryReading(1, None, 0)),
        (MemoryReading(0, 5, 5), MemoryReading(None, 5, 5)),
        (MemoryReading(-1, None, None), MemoryReading()),
        (MemoryReading(80 * GIB, 80 * GIB, 0), MemoryReading(80 * GIB, 80 * GIB, 0)),
    ],
)
def test_sizes_that_no_device_can_have_are_unmeasured(told: MemoryReading, kept: MemoryReading) -> None:
    report = make_report("n", 40)
    sample = msgspec.structs.replace(report.sample, devices=(DeviceSample("GPU-0", 0, memory=told),))
    read = read_report(encode(REPORT, "n", msgspec.structs.replace(report, sample=sample)))
    assert read.sample.devices[0].memory == kept


def test_a_node_that_floods_holds_up_no_other(folder: Path) -> None:
    with (
        gathering(folder, is_insecure=True) as (collector, roll, port),
        reporting(port, None) as reporter,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as flood,
    ):
        flood.setsockopt(zmq.LINGER, 0)
        flood.connect(f"tcp://127.0.0.1:{port}")
        report = encode(REPORT, "f", make_report("f", 40))

        def is_taken() -> bool:
            with suppress(zmq.Again):
                while True:  # until its queue is full
                    flood.send(report, zmq.NOBLOCK)
            return {*roll.nodes} == {"f", "w"} and reporter.has_been_accepted

        turn_until(collector, reporter, is_taken)


def test_beyond_loopback_there_are_keys_or_it_is_typed(folder: Path) -> None:
    with pytest.raises(UsageError, match="`vramscope keys new`"):
        prepare_gathering("*", free_port(), is_insecure=False, folder=folder)
    assert prepare_gathering("*", free_port(), is_insecure=True, folder=folder).pair is None
    save_key_pair(make_key_pair(), folder)
    assert prepare_gathering("*", free_port(), is_insecure=False, folder=folder).pair is not None
