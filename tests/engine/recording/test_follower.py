"""A recording beside an agent has what the agent told, in full, and goes on without it."""

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from vramscope.engine.history import History
from vramscope.engine.history.history import FINE_TICKS
from vramscope.engine.model import Assessment, Finding, HubStatus, Sample
from vramscope.engine.paths import locate_runtime_folder, open_runtime_folder
from vramscope.engine.recording.follower import Heard, NodeFollower
from vramscope.engine.recording.hub_follower import REMEMBERED_NOTE, HubFollower
from vramscope.engine.viewer.conversation import HubStream, Joined
from vramscope.engine.viewer.this_node import Words
from vramscope.engine.wire.endpoints import HubLock, endpoints_of
from vramscope.engine.wire.messages import Welcome, WorkerReport, encode

from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until
from ..agent.hubs import RunningHub
from .samples import make_assessment, make_finding, make_sample


def report(folder: Path, hub_id: str, finding: Finding, assessment: Assessment) -> None:
    """Tell a hub what a worker would."""
    import zmq

    context = zmq.Context()
    socket = context.socket(zmq.PUSH)
    socket.connect(endpoints_of(folder).reports)
    body = WorkerReport("worker", 1, 3, 0, (), (finding,), assessments=(assessment,))
    socket.send(encode("report", hub_id, body))
    context.destroy(linger=1000)


class Listener:
    """Keeps all that a follower tells."""

    def __init__(self, since_s: float = math.inf) -> None:
        self.follower = NodeFollower(interval_s=0.1, memory_interval_s=0.05, since_s=since_s)
        self.heard: list[Heard] = []

    def hear(self) -> list[Sample]:
        """Listen a moment and return all samples so far."""
        self.heard.extend(self.follower.hear(0.05))
        return [it for it in self.heard if isinstance(it, Sample)]

    def words(self) -> tuple[list[Finding], list[Assessment]]:
        """Listen a moment and return all that was said so far."""
        self.hear()
        words = [it for it in self.heard if isinstance(it, Words)]
        return (
            [finding for it in words for finding in it.findings],
            [assessment for it in words for assessment in it.assessments or ()],
        )


@pytest.fixture
def folder() -> Iterator[Path]:
    """A runtime folder that is held as an agent holds it."""
    folder = open_runtime_folder(locate_runtime_folder())
    lock = HubLock(folder)
    lock.acquire()
    yield folder
    lock.release()


def test_samples_of_an_agent_are_heard_in_full_with_what_is_said_of_them(folder: Path) -> None:
    samples = [make_sample(tick, 3) for tick in range(1, 40)]
    with RunningHub(folder) as running:
        running.producer.push(samples[:3])
        listener = Listener()
        assert listener.follower.is_of_agent
        wait_until(lambda: listener.hear()[-1:] == samples[2:3], what="the newest sample")
        running.producer.push(samples[3:])
        wait_until(lambda: listener.hear()[-1] == samples[-1], what="all samples")
        got = listener.hear()
        assert got[-36:] == samples[3:], "in order, none twice, to the last field"
        assert [it.seq for it in got] == list(range(got[0].seq, 40))
        assert listener.follower._source.agent is not None
        # As after a gap: the agent sends its newest sample again.
        listener.follower._source.agent._stream.ask()
        wait_until(lambda: listener.hear() and isinstance(listener.heard[-1], Words), what="the answer")
        assert listener.hear() == got
        report(folder, running.hub.hub_id, make_finding(1), make_assessment(1))
        wait_until(lambda: all(listener.words()), what="what the worker said")
        findings, assessments = listener.words()
        assert findings == [make_finding(1)]
        assert assessments[0] == make_assessment(1)
    listener.follower.close()


def split(samples: list[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Return the samples that are as the agent remembers them, and the others."""
    remembered = [it for it in samples if it.notes == (REMEMBERED_NOTE,)]
    return remembered, [it for it in samples if not it.notes]


def test_what_is_still_on_its_way_when_the_agent_answers_is_not_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (make_sample(tick, 3) for tick in range(1, 4))
    history = History()
    for sample in (first, second, third):
        history.add(sample)
    hub = HubStatus(hub_id="hub", pid=1, version="1", started_s=0.0, interval_s=1.0)
    welcome = Welcome(1, third, (), hub, history.block())
    follower = HubFollower(folder)
    answers = iter([[Joined(welcome, is_new_hub=True, held=(first,)), second]])
    monkeypatch.setattr(HubStream, "events", lambda *_: next(answers))
    heard = [it for it in follower.hear(0.0) if isinstance(it, Sample)]
    follower.close()
    assert [it.seq for it in heard] == [1, 2, 3]
    assert heard[::2] == [first, third]
    assert REMEMBERED_NOTE in heard[1].notes
    assert (follower.remembered, follower.missed) == (1, 0)


@pytest.mark.parametrize("last", [3000, 6000])
def test_what_a_slow_recording_missed_is_filled_from_the_agents_memory_and_the_rest_counted(
    folder: Path, last: int
) -> None:
    samples = {tick: make_sample(tick) for tick in range(1, last + 1)}
    with RunningHub(folder) as running:
        running.producer.push([samples[1]])
        listener = Listener()
        wait_until(listener.hear, what="the first sample")
        running.producer.push([samples[tick] for tick in range(2, last)])  # more than any queue holds
        wait_until(lambda: running.hub.last_seq == last - 1, what="the agent to have told them")
        running.producer.push([samples[last]])
        wait_until(lambda: listener.hear()[-1].seq == last, what="the newest")
        got = listener.hear()
        missed = sum(after.seq - before.seq - 1 for before, after in pairwise(got))
        remembered, full = split(got)
        assert len(remembered) + len(full) == len(got) == last - missed
        assert [it.seq for it in got] == sorted({it.seq for it in got})
        assert all(samples[it.seq] == it for it in full), "what did arrive is there to the last field"
        for sample in remembered:
            original = samples[sample.seq]
            assert sample.time_s == original.time_s
            assert [it.memory for it in sample.devices] == [it.memory for it in original.devices]
        follower = listener.follower
        assert (follower.remembered, follower.missed) == (len(remembered), missed)
        assert len(remembered) > 1000
        assert (missed > 0) == (last > FINE_TICKS)
        assert any("from the agent's memory" in it for it in follower.sentences)
        assert any("that the agent no longer has: " in it for it in follower.sentences) == (missed > 0)
    listener.follower.close()


def test_a_recording_begins_with_what_the_agent_remembers_from_after_a_time(folder: Path) -> None:
    samples = [make_sample(tick, 3) for tick in range(1, 701)]
    with RunningHub(folder) as running:
        running.producer.push(samples)
        hub = running.hub
        # Sent too: what is not yet would come as it happens, not from memory.
        wait_until(lambda: hub.last_seq == 700 and not hub._sockets._outbox, what="all to be sent")
        for since_s, first in ((-math.inf, 1), (samples[499].time_s, 501), (math.inf, 700)):
            listener = Listener(since_s)
            wait_until(lambda: bool(listener.hear()) and listener.hear()[-1].seq == 700, what="the newest")  # noqa: B023
            assert [it.seq for it in listener.hear()] == list(range(first, 701))
            assert listener.hear()[-1] == samples[-1]
            assert listener.follower.remembered == 700 - first
            listener.follower.close()


def find_kinds(sample: Sample) -> set[str]:
    return {device.kind for device in sample.devices}


def test_without_its_agent_it_samples_itself_until_another_answers(pretend_nvml: PretendDriver) -> None:
    pretend_nvml.add_device()
    folder = open_runtime_folder(locate_runtime_folder())
    lock = HubLock(folder)
    lock.acquire()
    with RunningHub(folder) as running:
        running.producer.push([make_sample(1, 0)])
        listener = Listener()
        wait_until(listener.hear, what="a sample of the agent")
    lock.release()
    wait_until(lambda: {"gpu"} == find_kinds(listener.hear()[-1]), what="a sample of our own")
    assert listener.follower.sentences == ["the agent ended; sampling in this process until one answers"]
    lock.acquire()
    with RunningHub(folder) as running:
        running.producer.push([make_sample(7)])
        wait_until(lambda: listener.hear()[-1] == make_sample(7), what="a sample of the new agent")
    assert listener.follower.sentences[1:] == ["an agent is running now; following it from here on"]
    listener.follower.close()
    lock.release()
