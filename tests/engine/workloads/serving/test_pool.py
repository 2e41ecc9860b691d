"""The simulated scheduler: blocks never leak, a seed is a run, preemption comes when nothing is left."""

import pytest

from vramscope.engine.errors import UsageError
from vramscope.engine.workloads.serving.pool import Engine, EngineSetup, Rate, Request, Traffic
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

SMALL = EngineSetup(blocks=100, block_tokens=16)


def run(seed: int, seconds: float = 600.0) -> SimulatedServer:
    traffic = Traffic(Rate(((0.0, 2.0), (300.0, 12.0), (400.0, 1.0))))
    server = SimulatedServer(ServerSetup(traffic=traffic, blocks=3000, most_queued=50), seed)
    for second in range(1, int(seconds) + 1):
        server.advance(float(second))
        (engine,) = server.engines
        assert min(engine.used_blocks, engine.cached_blocks, engine.free_blocks) >= 0
        assert sum(it.own_blocks for it in engine.running) <= engine.used_blocks
    return server


def test_blocks_are_neither_lost_nor_made() -> None:
    engine = run(1).engines[0]
    assert engine.counters.preemptions
    assert engine.counters.rejections
    engine.advance(engine.now_s)
    for second in range(1, 2000):
        engine.advance(600.0 + second)
    assert not engine.running
    assert not engine.waiting
    assert engine.used_blocks == 0


def test_the_same_seed_is_the_same_run_and_another_is_not() -> None:
    assert run(1).engines[0].counters == run(1).engines[0].counters
    assert run(1).engines[0].counters != run(2).engines[0].counters


def test_a_run_does_not_depend_on_when_it_is_looked_at() -> None:
    often, seldom = SimulatedServer(ServerSetup(), 5), SimulatedServer(ServerSetup(), 5)
    for second in range(1, 61):
        often.advance(float(second))
    seldom.advance(60.0)
    assert often.engines[0].counters == seldom.engines[0].counters


def test_the_newest_sequence_is_preempted_and_computed_again() -> None:
    engine = Engine(SMALL)
    engine.ask(Request(0.0, 700, 2000))
    engine.ask(Request(0.0, 700, 100))
    seen = 0
    for second in range(1, 200):
        engine.advance(float(second))
        seen = max(seen, engine.counters.preemptions)
        if engine.running:
            assert engine.running[0].request.output_tokens in (2000, 100)
    assert seen >= 1
    assert engine.counters.first_preemption_s is not None


def test_a_known_beginning_is_not_computed_again_and_evicted_only_when_needed() -> None:
    engine = Engine(SMALL)
    engine.ask(Request(0.0, 160, 10, prefix=1, prefix_tokens=128))
    for second in range(1, 5):
        engine.advance(float(second))
    assert (engine.used_blocks, engine.cached_blocks) == (0, 11)
    engine.ask(Request(5.0, 160, 10, prefix=1, prefix_tokens=128))
    engine.advance(5.0)
    assert engine.counters.prefix_hits == 128
    engine.ask(Request(6.0, 1500, 10))
    for second in range(6, 12):
        engine.advance(float(second))
    assert engine.counters.finished == 3
    assert engine.counters.preemptions == 0


def test_a_full_queue_refuses() -> None:
    engine = Engine(EngineSetup(blocks=100, most_queued=2))
    for _ in range(5):
        engine.ask(Request(0.0, 10, 10))
    assert (len(engine.waiting), engine.counters.rejections) == (2, 3)


def test_sleep_gives_the_memory_back_and_loses_no_request() -> None:
    server = SimulatedServer(ServerSetup(), 1)
    server.advance(30.0)
    running = len(server.engines[0].running)
    awake = server.used_bytes
    server.sleep()
    assert server.used_bytes < 0.05 * awake
    assert len(server.engines[0].waiting) >= running
    server.wake()
    server.advance(40.0)
    assert server.engines[0].running
    assert server.used_bytes == awake


@pytest.mark.parametrize("at_s", [-1.0, 0.0, 5.0, 10.0, 99.0])
def test_a_rate_follows_its_points(at_s: float) -> None:
    expected = {-1.0: 2.0, 0.0: 2.0, 5.0: 3.0, 10.0: 4.0, 99.0: 4.0}
    assert Rate(((0.0, 2.0), (10.0, 4.0))).at(at_s) == expected[at_s]


@pytest.mark.parametrize("think_s", [0.0, -1.0, float("nan")])
def test_clients_who_do_not_think_are_refused(think_s: float) -> None:
    with pytest.raises(UsageError, match="think for more than 0 s"):
        Traffic(Rate(((0.0, 2.0),)), think_s=think_s)
