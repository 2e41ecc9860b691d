"""A trainer and a server on one card, as in RL jobs: sleep and wake are events on the trainer's clock."""

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from vramscope.analyzers.gap import explain_gap
from vramscope.analyzers.serving.analyzer import ASLEEP, OUTSIDE, ServingAnalyzer
from vramscope.engine.model import AllocatorReading, Finding, RankSample, Sample
from vramscope.engine.recording import Recording, RecordingWriter
from vramscope.engine.units import GIB
from vramscope.engine.workloads.serving.pool import Rate, Traffic
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

from ...engine.recording.samples import IDENTITY
from .servers import make_sample

# Rollouts, a training step while the server sleeps, rollouts.
ROLLOUT_S = 60.0
TRAINING_S = 40.0
TRAINER_IDLE = 2 * GIB
TRAINER_BUSY = 60 * GIB
CONTEXT = GIB // 2


def play_job(*, kept: int = TRAINER_IDLE) -> Iterator[tuple[Sample, SimulatedServer]]:
    """Yield what a node samples, and the server.

    Args:
        kept: Bytes that the trainer still holds when the server has woken.
    """
    server = SimulatedServer(ServerSetup(traffic=Traffic(Rate(((0.0, 2.0),)))), 1)
    seq = 0
    for is_asleep, seconds, reserved in (
        (False, ROLLOUT_S, TRAINER_IDLE),
        (True, TRAINING_S, TRAINER_BUSY),
        (False, ROLLOUT_S, kept),
    ):
        (server.sleep if is_asleep else server.wake)()
        end_s = server.now_s + seconds
        while server.now_s < end_s:
            server.advance(server.now_s + 2.0)
            seq += 1
            sample = make_sample(server, seq, other_bytes=reserved + CONTEXT)
            trainer = RankSample(
                99,
                device_uuid="GPU-0",
                allocator=AllocatorReading(allocated_bytes=reserved // 2, reserved_bytes=reserved),
            )
            yield replace(sample, ranks=(trainer,)), server


def test_sleep_and_wake_are_events_at_the_times_of_the_samples_that_show_them() -> None:
    analyzer = ServingAnalyzer()
    told: list[tuple[float, Finding]] = []
    asleep_s = []
    for sample, _ in play_job():
        told += [(sample.time_s, it) for it in analyzer.observe(sample) if it.kind == ASLEEP]
        if sample.servers[0].state == "asleep":
            asleep_s.append(sample.time_s)
    (opened_s, opened), (closed_s, closed) = told
    assert (opened_s, opened.opened_s) == (asleep_s[0], asleep_s[0])
    assert (closed.id, closed.is_open) == (opened.id, False)
    assert closed_s == asleep_s[-1] + 2.0
    assert opened.device_uuid == "GPU-0"


def test_every_byte_is_the_trainers_the_servers_or_another_part_in_every_phase() -> None:
    for sample, server in play_job():
        (device,) = sample.devices
        gap = explain_gap(device, sample.ranks, sample.servers)
        assert sum(part.size_bytes for part in gap.parts) == gap.used_bytes == device.memory.used_bytes
        allocator = sample.ranks[0].allocator
        assert allocator is not None
        assert gap.size_of("allocated") == allocator.allocated_bytes
        weights = gap.size_of("weights")
        assert weights == (None if server.is_asleep else server.setup.plan.weights_bytes)


def test_a_trainer_that_keeps_its_memory_leaves_the_waking_server_no_room() -> None:
    analyzer = ServingAnalyzer()
    found = [it for sample, _ in play_job(kept=6 * GIB) for it in analyzer.observe(sample)]
    kinds = [it.kind for it in found]
    assert kinds.index(ASLEEP) < kinds.index(OUTSIDE)


def test_a_recording_has_both_on_one_clock(tmp_path: Path) -> None:
    path = tmp_path / "rl.vscope"
    analyzer = ServingAnalyzer()
    with RecordingWriter(path, IDENTITY) as writer:
        for sample, _ in play_job():
            writer.append(sample)
            writer.tell(sample.node, analyzer.observe(sample))
    with Recording(path) as recording:
        samples = list(recording.samples())
        (event,) = [it for it in recording.findings() if it.kind == ASLEEP]
    asleep = [it for it in samples if it.servers[0].state == "asleep"]
    assert event.opened_s == asleep[0].time_s
    assert {it.ranks[0].allocator.reserved_bytes for it in asleep if it.ranks[0].allocator} == {TRAINER_BUSY}
    awake = [it for it in samples if it.servers[0].state == "ok"]
    assert {it.ranks[0].allocator.reserved_bytes for it in awake if it.ranks[0].allocator} == {TRAINER_IDLE}
