"""A recording beside an agent has what the agent told, in full, and goes on without it."""

from pathlib import Path

from vramscope.engine.bus.endpoints import endpoints_of
from vramscope.engine.bus.lock import HubLock
from vramscope.engine.bus.messages import WorkerReport
from vramscope.engine.bus.wire import encode
from vramscope.engine.model import Assessment, Finding, Sample
from vramscope.engine.paths import locate_runtime_folder, open_runtime_folder
from vramscope.engine.recording.follower import Heard, NodeFollower, Words

from ..bus.hubs import RunningHub
from ..pretend_nvml.driver import PretendDriver
from ..waiting import wait_until
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


def test_samples_of_an_agent_are_heard_in_full_with_what_is_said_of_them(
    pretend_nvml: PretendDriver,
) -> None:
    folder = open_runtime_folder(locate_runtime_folder())
    lock = HubLock(folder)
    lock.acquire()
    heard: list[Heard] = []
    samples = [make_sample(tick, 3) for tick in range(1, 40)]

    def hear() -> list[Sample]:
        heard.extend(follower.hear(0.05))
        return [it for it in heard if isinstance(it, Sample)]

    with RunningHub(folder) as running:
        running.producer.push(samples[:3])
        follower = NodeFollower(interval_s=0.1, memory_interval_s=0.05)
        assert follower.is_of_agent
        wait_until(lambda: hear()[-1:] == samples[2:3], what="the newest sample")
        running.producer.push(samples[3:])
        wait_until(lambda: hear()[-1] == samples[-1], what="all samples")
        got = hear()
        assert got == samples[-len(got) :], "in order, none twice, to the last field"
        assert len(got) >= 37
        assert follower._hub is not None
        follower._hub._stream.ask()  # as after a gap: the agent tells its newest sample again
        wait_until(lambda: hear() and isinstance(heard[-1], Words), what="the answer")
        assert hear() == got
        report(folder, running.hub.hub_id, make_finding(1), make_assessment(1))
        wait_until(lambda: hear() and any(told_of(heard)[0]), what="the finding")
        assert told_of(heard)[0] == [make_finding(1)]
        wait_until(lambda: hear() and told_of(heard)[1], what="the assessment")
    lock.release()
    pretend_nvml.add_device()
    wait_until(lambda: bool(hear()) and follower.sentences, what="the end of the agent to be noticed")
    assert follower.sentences == ["the agent ended; sampling in this process until one answers"]
    wait_until(lambda: hear()[-1].seq < 39, what="a sample of our own")
    lock.acquire()
    with RunningHub(folder) as running:
        running.producer.push([make_sample(7)])
        wait_until(lambda: hear()[-1] == make_sample(7), what="a sample of the new agent")
    assert follower.sentences[1:] == ["an agent runs; following it from here on"]
    follower.close()
    lock.release()


def told_of(heard: list[Heard]) -> tuple[list[Finding], list[Assessment]]:
    words = [it for it in heard if not isinstance(it, Sample)]
    return (
        [finding for it in words for finding in it.findings],
        [assessment for it in words for assessment in it.assessments or ()],
    )
