"""A hub and its viewers over real ZeroMQ sockets."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from vramscope.engine.alerts.state import FindingDecision
from vramscope.engine.errors import HubTakenError, HubUnreachableError, RuntimeFolderError
from vramscope.engine.history import History
from vramscope.engine.model import Finding, Sample
from vramscope.engine.viewer.client import Client, connect
from vramscope.engine.viewer.conversation import HubStream, Joined
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.endpoints import HubLock, endpoints_of
from vramscope.engine.wire.messages import Welcome, WorkerReport, encode

from ...waiting import wait_until
from .hubs import RunningHub, make_sample

Condition = Callable[[Snapshot], object]


def _until(client: Client, condition: Condition) -> Snapshot:
    found: list[Snapshot] = []

    def is_met() -> bool:
        found.append(client.snapshot(timeout_s=0.05))
        return bool(condition(found[-1]))

    wait_until(is_met, what="the viewer's picture")
    return found[-1]


def _has_seq(seq: int) -> Condition:
    return lambda s: s.sample is not None and s.sample.seq == seq


def _counts_viewers(count: int) -> Condition:
    return lambda s: s.hub is not None and s.hub.viewers == count


def test_a_viewer_that_attaches_late_sees_the_past(private_environment: Path) -> None:
    with RunningHub(private_environment) as running:
        running.producer.push([make_sample(seq, used_gib=seq) for seq in range(1, 31)])
        with Client(private_environment) as client:
            snapshot = _until(client, _has_seq(30))
            columns = client.history.columns("GPU-a", "used", 1030.0, 1.0, 30)
    assert snapshot.connection == "live"
    assert snapshot.samples_dropped == 0
    assert columns.last == [seq * 1024**3 for seq in range(1, 31)]


def test_a_sequence_that_begins_at_zero_is_whole(private_environment: Path) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        _until(client, lambda s: s.hub is not None)
        running.producer.push([make_sample(0), make_sample(1)])
        snapshot = _until(client, _has_seq(1))
        assert client.history.columns("GPU-a", "used", 1001.0, 1.0, 2).last.count(None) == 0
        assert snapshot.samples_dropped == 0


def test_a_sample_published_before_the_subscription_stood_is_not_missed(private_environment: Path) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        _until(client, lambda s: s.hub is not None)
        running.hub._history.add(make_sample(1))  # published to nobody, and no other sample comes
        running.hub._sample = make_sample(1)
        assert _until(client, _has_seq(1)).samples_dropped == 0


def test_two_viewers_see_the_same(private_environment: Path) -> None:
    with (
        RunningHub(private_environment) as running,
        Client(private_environment) as one,
        Client(private_environment) as other,
    ):
        running.producer.push([make_sample(1)])
        assert _until(one, _has_seq(1)).sample == _until(other, _has_seq(1)).sample


def test_a_gap_is_filled_from_the_ring_and_not_counted(private_environment: Path) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        running.producer.push([make_sample(1)])
        _until(client, _has_seq(1))
        running.hub._history.add(make_sample(2))  # published to nobody: as if dropped on the way
        running.producer.push([make_sample(3)])
        snapshot = _until(client, _has_seq(3))
        assert client.history.columns("GPU-a", "used", 1003.0, 1.0, 3).last.count(None) == 0
        assert snapshot.samples_dropped == 0


def test_what_even_the_ring_lost_is_counted(private_environment: Path) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        running.producer.push([make_sample(1)])
        _until(client, _has_seq(1))
        running.hub._history = History(fine_ticks=2)
        for seq in (2, 3, 4):
            running.hub._history.add(make_sample(seq))
        running.producer.push([make_sample(5)])
        assert _until(client, _has_seq(5)).samples_dropped == 2


def test_a_viewer_that_slept_through_thousands_ends_with_the_newest_and_no_hole(
    private_environment: Path,
) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        running.producer.push([make_sample(1)])
        _until(client, _has_seq(1))
        running.producer.push([make_sample(seq) for seq in range(2, 3001)])
        wait_until(lambda: running.hub.last_seq == 3000, what="the hub to publish it all")
        running.producer.push([make_sample(3001)])
        snapshot = _until(client, _has_seq(3001))
        columns = client.history.columns("GPU-a", "used", 4001.0, 1.0, 3001)
    assert columns.last.count(None) == 0
    assert snapshot.samples_dropped == 0


def test_a_viewer_says_lost_keeps_the_picture_and_comes_back(private_environment: Path) -> None:
    with Client(private_environment) as client:
        with RunningHub(private_environment) as running:
            running.producer.push([make_sample(7)])
            _until(client, _has_seq(7))
        lost = _until(client, lambda s: s.connection == "lost")
        assert lost.sample is not None
        assert lost.sample.seq == 7
        assert lost.reason == "the agent ended"
        with RunningHub(private_environment) as again:
            again.producer.push([make_sample(1, used_gib=3)])
            back = _until(client, _has_seq(1))
        assert back.connection == "live"
        assert back.reason is None


def test_a_hub_leaves_with_its_last_viewer(private_environment: Path) -> None:
    running = RunningHub(private_environment, leaves_with_viewers=True)
    with running:
        running.producer.push([make_sample(1)])
        first, second = Client(private_environment), Client(private_environment)
        _until(first, _has_seq(1))
        _until(second, _has_seq(1))
        _until(first, _counts_viewers(2))
        first.close()
        running.producer.push([make_sample(2)])
        _until(second, _counts_viewers(1))
        assert running.thread.is_alive()
        second.close()
        wait_until(lambda: not running.thread.is_alive(), what="the hub to leave")


FINDING = Finding("f1", "pressure", "node", "GPU-a", "0", "low", "full", 1001.0, 1001.0)


@contextmanager
def _reporting(folder: Path) -> Iterator[tuple[Client, Callable[[WorkerReport], None]]]:
    """Yield a viewer of a hub with one sample, and what sends the hub a worker's report."""
    with (
        RunningHub(folder) as running,
        Client(folder) as client,
        zmq.Context() as context,
        context.socket(zmq.PUSH) as push,
    ):
        running.producer.push([make_sample(2)])
        push.connect(endpoints_of(folder).reports)
        yield client, lambda report: push.send(encode("report", "", report))


def test_findings_reported_twice_are_one_and_those_nobody_holds_close(private_environment: Path) -> None:
    with _reporting(private_environment) as (client, send):
        report = WorkerReport("w", 1, 1, 0, ("pressure",), (FINDING,), ("f1",))
        send(report)
        send(report)
        opened = _until(client, lambda s: len(s.findings) == 1)
        assert opened.findings == (FINDING,)
        send(WorkerReport("w", 1, 1, 0, ("pressure",), (), ()))
        closed = _until(client, lambda s: s.findings and not s.findings[0].is_open)
    assert closed.findings[0].closed_s == 1002.0


def test_a_decision_is_numbered_so_that_a_viewer_that_missed_it_asks(private_environment: Path) -> None:
    with _reporting(private_environment) as (client, send):
        send(WorkerReport("w", 1, 1, 0, ("pressure",), (FINDING,), ("f1",)))
        _until(client, lambda s: s.findings and s.alerts.changes)
        before = _join(private_environment).findings_number
        client.decide(FindingDecision("acknowledge", "f1"))
        _until(client, lambda s: s.alerts.acknowledged)
        after = _join(private_environment)
    assert after.alerts.acknowledged
    assert (before, after.findings_number) == (2, 3)


def _join(folder: Path) -> Welcome:
    stream = HubStream(folder, is_viewer=False)
    found: list[Welcome] = []

    def is_met() -> bool:
        found.extend(event.welcome for event in stream.events(0.05) if isinstance(event, Joined))
        return bool(found)

    wait_until(is_met, what="the welcome")
    stream.close()
    return found[0]


def test_garbage_on_every_socket_does_not_end_the_hub(private_environment: Path) -> None:
    endpoints = endpoints_of(private_environment)
    with RunningHub(private_environment) as running, zmq.Context() as context:
        for kind, address in ((zmq.PUSH, endpoints.reports), (zmq.DEALER, endpoints.control)):
            with context.socket(kind) as socket:
                socket.connect(address)
                for data in (b"", b"\xc1", b"\x93" * 500, encode("report", "", make_sample(1))):
                    socket.send(data)
        running.producer.push([make_sample(1)])
        with Client(private_environment) as client:
            assert _until(client, _has_seq(1)).connection == "live"


def test_a_taken_folder_names_its_holder(private_environment: Path) -> None:
    lock = HubLock(private_environment)
    lock.acquire()
    with pytest.raises(
        HubTakenError, match=rf"already serves {private_environment}: process {os.getpid()} \(.*python"
    ):
        HubLock(private_environment).acquire()
    lock.release()
    HubLock(private_environment).acquire()


def test_no_hub_is_said_in_one_line(private_environment: Path) -> None:
    with pytest.raises(HubUnreachableError, match=r"no agent serves .* start one with `vramscope agent`"):
        connect(private_environment)


def test_a_folder_too_deep_for_sockets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFolderError, match=r"at most 107.*VRAMSCOPE_RUNTIME_DIR"):
        endpoints_of(tmp_path / ("x" * 120))


def _follow_as_worker(running: RunningHub, folder: Path) -> HubStream:
    stream = HubStream(folder, is_viewer=False)
    running.producer.push([make_sample(0, used_gib=79)])
    wait_until(lambda: any(isinstance(it, Joined) for it in stream.events(0.05)), what="the hub's answer")
    wait_until(lambda: stream.hub_id and not stream.is_asking, what="the worker to follow")
    return stream


def test_it_samples_in_calm_while_a_worker_alone_follows_and_nothing_is_urgent(
    private_environment: Path,
) -> None:
    with RunningHub(private_environment) as running:
        stream = _follow_as_worker(running, private_environment)
        producer = running.producer
        assert not producer.is_calm
        producer.push([make_sample(1)])
        wait_until(lambda: producer.is_calm, what="calm")
        producer.push([make_sample(2, used_gib=79)])
        wait_until(lambda: not producer.is_calm, what="calm to end: the device is nearly full")
        producer.push([make_sample(3), make_sample(4)])
        wait_until(lambda: producer.is_calm, what="calm again")
        with Client(private_environment) as client:
            _until(client, _has_seq(4))
            wait_until(lambda: not producer.is_calm, what="calm to end: a viewer has come")
            producer.push([make_sample(5)])
            _until(client, _has_seq(5))
            assert not producer.is_calm
            assert client.history.columns("GPU-a", "used", 1005.0, 1.0, 3).last.count(None) == 0
        seqs: list[int] = []

        def hear() -> bool:
            seqs.extend(it.seq for it in stream.events(0.1) if isinstance(it, Sample))
            return seqs[-1:] == [5]

        wait_until(hear, what="the newest sample")
        assert seqs == [1, 2, 3, 4, 5]
        stream.close()


def test_who_comes_in_calm_gets_what_is_due_by_then(private_environment: Path) -> None:
    with RunningHub(private_environment) as running:
        stream = _follow_as_worker(running, private_environment)
        running.producer.push([make_sample(1)])
        wait_until(lambda: running.producer.is_calm, what="calm")
        running.producer.held = [make_sample(2), make_sample(3)]
        assert running.hub.last_seq == 1
        with Client(private_environment) as client:
            _until(client, _has_seq(3))
        stream.close()


def test_an_agent_that_leaves_with_its_viewers_is_never_calm(private_environment: Path) -> None:
    with RunningHub(private_environment, leaves_with_viewers=True) as running:
        for seq in (1, 2):
            running.producer.push([make_sample(seq)])
            wait_until(lambda: running.hub.last_seq == seq, what="the hub to have it")  # noqa: B023
        assert not running.producer.is_calm
