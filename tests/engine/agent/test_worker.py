"""Workers: a restarted one concludes the same as one that never died, and what it missed is counted."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.pressure import PressureAnalyzer
from vramscope.analyzers.replay_capacity import CapacityAnalyzer
from vramscope.engine.agent import worker as worker_module
from vramscope.engine.agent.analyzer_host import AnalyzerHost
from vramscope.engine.agent.worker import LocalWorkerLink, Worker
from vramscope.engine.clock import SystemClock
from vramscope.engine.history import History
from vramscope.engine.model import Analyzer, DeviceSample, Finding, MemoryReading, Sample
from vramscope.engine.viewer.client import Client
from vramscope.engine.viewer.conversation import Event, RankVerb
from vramscope.engine.wire.messages import WorkerReport
from vramscope.engine.wire.stores import FindingStore

from ...waiting import wait_until
from .assessors import UsedAssessor
from .hubs import GIB, RunningHub, make_sample


class RunningWorker:
    """A worker on a thread of the test's own."""

    def __init__(self, folder: Path, *analyzers: Analyzer, is_chosen: bool = False) -> None:
        link = LocalWorkerLink(folder, SystemClock())
        self.worker = Worker(link, analyzers or [PressureAnalyzer()], is_chosen=is_chosen)
        self.thread = threading.Thread(target=self.worker.run, daemon=True)

    def __enter__(self) -> "RunningWorker":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.stop()
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()


def _until(client: Client, condition: Callable[[tuple[Finding, ...]], bool]) -> tuple[Finding, ...]:
    found: list[tuple[Finding, ...]] = []

    def is_met() -> bool:
        found.append(client.snapshot(timeout_s=0.05).findings)
        return condition(found[-1])

    wait_until(is_met, what="the findings")
    return found[-1]


def _full(first: int, last: int) -> list[Sample]:
    return [make_sample(seq, used_gib=79.0) for seq in range(first, last + 1)]


def test_a_full_device_opens_one_finding_and_an_emptied_one_closes_it(private_environment: Path) -> None:
    with (
        RunningHub(private_environment) as running,
        RunningWorker(private_environment),
        Client(private_environment) as client,
    ):
        running.producer.push(_full(1, 120))
        (opened,) = _until(client, lambda found: len(found) == 1)
        running.producer.push([make_sample(seq, used_gib=20.0) for seq in range(121, 260)])
        (closed,) = _until(client, lambda found: bool(found) and not found[0].is_open)
    assert opened.kind == "pressure"
    assert opened.id == closed.id


def test_a_worker_that_died_is_fed_the_ring_and_opens_nothing_twice(private_environment: Path) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        with RunningWorker(private_environment):
            running.producer.push(_full(1, 120))
            (before,) = _until(client, lambda found: len(found) == 1)
        running.producer.push(_full(121, 140))
        with RunningWorker(private_environment):
            running.producer.push([make_sample(seq, used_gib=20.0) for seq in range(141, 280)])
            after = _until(client, lambda found: any(not f.is_open for f in found))
    assert [finding.id for finding in after] == [before.id]


def test_a_finding_older_than_the_ring_is_adopted_and_closed_by_the_next_worker(
    private_environment: Path,
) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        running.hub._history = History(fine_ticks=60)
        with RunningWorker(private_environment):
            running.producer.push(_full(1, 40))
            (before,) = _until(client, lambda found: len(found) == 1)
        running.producer.push(_full(41, 140))
        wait_until(lambda: running.hub.last_seq == 140, what="the ring to fill")
        assert (running.hub._write_history().first_seq or 0) > before.opened_s - 1000
        with RunningWorker(private_environment):
            running.producer.push([make_sample(seq, used_gib=20.0) for seq in range(141, 180)])
            (after,) = _until(client, lambda found: any(not f.is_open for f in found))
    assert (after.id, after.closed_s) == (before.id, 1151.0)
    assert "stayed below" in str(after.evidence[-1].value)


def test_capacity_of_a_replay_goes_through_hub_and_worker_and_outlives_both_ring_and_worker(
    private_environment: Path,
) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        running.hub._history = History(fine_ticks=20)
        with RunningWorker(private_environment, CapacityAnalyzer()):
            running.producer.push([_recorded(1, 75.0), _recorded(2, 40.0)])
            (before,) = _until(client, lambda found: len(found) == 1)
        running.producer.push([_recorded(seq, 65.0) for seq in range(3, 60)])
        wait_until(lambda: running.hub.last_seq == 59, what="the ring to fill")
        with RunningWorker(private_environment, CapacityAnalyzer()):
            running.producer.push([_recorded(60, 76.0), _recorded(61, 30.0)])
            (after,) = _until(client, lambda found: any(f.updated_s == 1060.0 for f in found))
    assert before.title == "would not fit 60.0 GiB: rank 0 used 75.0 GiB at 1,001.0 s"
    assert (after.id, after.is_open) == (before.id, True)
    assert after.title == "would not fit 60.0 GiB: rank 0 used 76.0 GiB at 1,060.0 s"


def _recorded(seq: int, used_gib: float) -> Sample:
    used = round(used_gib * GIB)
    memory = MemoryReading(60 * GIB, used, max(0, 60 * GIB - used), used, used)
    device = DeviceSample(uuid="trace-a-rank0", index=0, kind="trace", age_s=0.0, memory=memory)
    return msgspec.structs.replace(make_sample(seq), devices=(device,), clock="trace")


class _Noter:
    """Opens one finding at the first sample, or none."""

    name = "noter"

    def __init__(self, *, finds: bool) -> None:
        self._finds = finds

    def observe(self, sample: Sample) -> Sequence[Finding]:
        is_due, self._finds = self._finds, False
        noted = Finding("n1", "note", "node", "GPU-a", "0", "low", "noted", sample.time_s, sample.time_s)
        return [noted] if is_due else []

    def restore(self, findings: Sequence[Finding]) -> None:
        pass


@pytest.mark.waits
def test_analyzers_that_were_chosen_close_what_is_theirs_and_nothing_of_others(
    private_environment: Path,
) -> None:
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        with RunningWorker(private_environment, PressureAnalyzer(), UsedAssessor(), _Noter(finds=True)):
            running.producer.push(_full(1, 120))
            _until(client, lambda found: len(found) == 2)
        running.hub._assessments._source = 0  # as of a worker in another process
        with RunningWorker(private_environment, _Noter(finds=False), is_chosen=True):
            after = _until(client, lambda found: any(not it.is_open for it in found))
        assert {it.kind: it.is_open for it in after} == {"note": False, "pressure": True}
        assert [it.level for it in client.snapshot(timeout_s=0.0).assessments] == ["high"]
        with RunningWorker(private_environment, UsedAssessor()):  # one of all, who finds none of it
            _until(client, lambda found: not any(it.is_open for it in found))


def test_what_the_ring_forgot_is_counted(private_environment: Path) -> None:
    reports: list[WorkerReport] = []
    with RunningHub(private_environment) as running:
        running.hub._history = History(fine_ticks=10)
        running.hub._accept_report = reports.append  # type: ignore[method-assign,assignment]
        running.producer.push(_full(1, 30))
        with RunningWorker(private_environment):
            wait_until(lambda: any(r.seen_seq == 30 for r in reports), what="the worker to catch up")
    assert reports[-1].samples_dropped == 20


useds = st.lists(st.sampled_from([20.0, 70.0, 76.5, 78.0, 79.5, 79.9]), min_size=1, max_size=90)


@settings(max_examples=60)
@given(useds, st.integers(0, 90), st.sampled_from([0.0, 0.06, 0.5]))
def test_findings_after_a_restart_equal_those_without_one(
    gibs: list[float], death: int, driver_gib: float
) -> None:
    samples = [make_sample(seq, used_gib=gib, driver_gib=driver_gib) for seq, gib in enumerate(gibs, 1)]
    steady, store, ring = FindingStore(), FindingStore(), History()
    host = AnalyzerHost([PressureAnalyzer()])
    for sample in samples:
        steady.merge(host.observe(sample))
    first, second = AnalyzerHost([PressureAnalyzer()]), AnalyzerHost([PressureAnalyzer()])
    for number, sample in enumerate(samples):
        ring.add(sample)
        if number == death:
            for remembered in ring.samples():
                store.merge(second.observe(remembered))
        else:
            store.merge((first if number < death else second).observe(sample))
    assert store.all() == steady.all()


class _Broken:
    name = "broken"

    def observe(self, sample: Sample) -> Sequence[Finding]:
        raise ZeroDivisionError("oops")

    def restore(self, findings: Sequence[Finding]) -> None:
        pass


def test_an_analyzer_that_fails_is_set_aside_and_named() -> None:
    host = AnalyzerHost([_Broken(), PressureAnalyzer()])
    for sample in _full(1, 120):
        host.observe(sample)
    assert host.names == ("pressure",)
    assert host.reason == "analyzer broken failed and was stopped: ZeroDivisionError('oops')"
    assert len(host.open_ids) == 1


class _HandLink:
    """Brings what a test has prepared, one entry a wait, and then stops the worker."""

    samples_dropped = 0
    is_watched_closed = False

    def __init__(self, arrivals: Sequence[Sequence[Sample]]) -> None:
        self.arrivals = list(arrivals)
        self.waits = 0
        self.at_end: Callable[[], None] = lambda: None

    def events(self, timeout_s: float) -> list[Event]:
        assert timeout_s > 0
        self.waits += 1
        if not self.arrivals:
            self.at_end()
            return []
        return list(self.arrivals.pop(0))

    def send(self, verb: RankVerb, pid: int, *, is_on: bool = True, seconds: float | None = None) -> int:
        return 0

    def report(self, data: bytes) -> bool:
        return bool(data)

    def watch(self, fd: int) -> None:
        pass

    def close(self) -> None:
        pass


class _CountedPause:
    """Does not wait, and notes after how many waits for events it was asked to."""

    def __init__(self, link: _HandLink) -> None:
        self.after: list[int] = []
        self._link = link

    def poll(self, _timeout_ms: float) -> None:
        self.after.append(self._link.waits)


def _list_pauses(monkeypatch: pytest.MonkeyPatch, *arrivals: Sequence[Sample]) -> list[int]:
    link = _HandLink(arrivals)
    worker = Worker(link, [PressureAnalyzer()])
    link.at_end = worker.stop
    pause = _CountedPause(link)
    monkeypatch.setattr(worker, "_pause", pause)
    worker.run()
    return pause.after


def test_samples_come_together_only_half_a_minute_after_the_last_urgent_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calm = [[make_sample(seq)] for seq in range(1, 101)]
    assert _list_pauses(monkeypatch, *calm) == list(range(31, 101))
    with_urgent = [[make_sample(seq, used_gib=79.0 if seq == 50 else 20.0)] for seq in range(1, 101)]
    assert _list_pauses(monkeypatch, *with_urgent) == [*range(31, 50), *range(80, 101)]


def test_a_hub_that_sends_five_at_once_is_not_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [[make_sample(seq) for seq in range(first, first + 5)] for first in range(1, 101, 5)]
    assert _list_pauses(monkeypatch, *batches) == []


@pytest.mark.parametrize("way", ["stop", "parent"])
def test_a_pause_ends_with_the_worker(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "PAUSE_S", 3600.0)
    link = _HandLink([[make_sample(1)], [msgspec.structs.replace(make_sample(40), interval_s=30.0)]])
    parent = socket.socketpair()
    worker = Worker(link, [PressureAnalyzer()], parent_fd=parent[0].fileno())
    link.at_end = worker.stop
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    wait_until(lambda: link.waits == 2, what="both samples to be taken")
    assert thread.is_alive()
    if way == "stop":
        worker.stop()
    else:
        parent[1].close()
    thread.join(timeout=60)
    assert not thread.is_alive()
    for end in parent:
        end.close()


def test_a_worker_that_waits_for_its_hub_ends_as_soon_as_a_signal_or_another_thread_stops_it(
    private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "POLL_S", 3600.0)
    with RunningHub(private_environment) as running, Client(private_environment) as client:
        running.producer.push(_full(1, 120))
        with RunningWorker(private_environment):
            _until(client, lambda found: len(found) == 1)

        worker = Worker(LocalWorkerLink(private_environment, SystemClock()), [UsedAssessor()])

        def signal_it() -> None:
            wait_until(lambda: client.snapshot(0.05).assessments, what="an assessment")
            os.kill(os.getpid(), signal.SIGUSR1)

        # A handler interrupts the wait of this thread, which then would go on.
        usual = signal.signal(signal.SIGUSR1, worker.stop)
        thread = threading.Thread(target=signal_it)
        thread.start()
        worker.run()
        thread.join()
        signal.signal(signal.SIGUSR1, usual)
    assert not thread.is_alive()
