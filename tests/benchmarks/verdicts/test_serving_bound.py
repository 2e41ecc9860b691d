"""The forecaster that knows the state: its futures are the simulator's, its words are scored alike."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.serving_bound import HORIZONS_S, KNOWLEDGES, Looked
from benchmarks.serving_engine import CompiledEngine, CompiledServer
from benchmarks.serving_verdicts import Watched, score_serving
from vramscope.engine.workloads.serving.pool import Rate, Speed, Traffic
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the futures are computed in C")

TRAFFIC = Traffic(Rate(((0.0, 0.5), (300.0, 0.5), (900.0, 2.5))), output_tokens=400, prompt_tokens=700)
SETUP = ServerSetup(traffic=TRAFFIC, blocks=1500, speed=Speed(step_token_s=3e-8))
LONGER = replace(
    TRAFFIC,
    rate_per_s=Rate(((0.0, 10.0), (900.0, 90.0))),
    think_s=20.0,
    length=Rate(((0.0, 1.0), (800.0, 3.0))),
)
QUEUED = replace(TRAFFIC, rate_per_s=Rate(((0.0, 0.5), (300.0, 6.0))), prompt_tokens=2700)


@needs_compiler
@pytest.mark.parametrize(
    ("setup", "seed"),
    [
        (SETUP, 1),
        (SETUP, 2),
        (replace(SETUP, traffic=LONGER, blocks=4000), 3),
        (replace(SETUP, traffic=QUEUED, blocks=6000, most_sequences=40), 4),
    ],
)
def test_the_copy_in_c_is_the_simulator_in_each_second_up_to_the_first_preemption(
    setup: ServerSetup, seed: int
) -> None:
    server, copy = SimulatedServer(setup, seed), CompiledServer(setup, seed)
    [engine], [copied] = server.engines, copy.engines
    most_waiting = 0
    while server.now_s < 1200.0 and not engine.counters.preemptions:
        server.advance(server.now_s + 1.0)
        copy.advance(copy.now_s + 1.0)
        assert copied.counters.first_preemption_s == engine.counters.first_preemption_s
        if not engine.counters.preemptions:
            assert (len(copied.running), len(copied.waiting)) == (len(engine.running), len(engine.waiting))
            assert (copied.used_share, copied.counters) == (engine.used_share, engine.counters)
        most_waiting = max(most_waiting, len(engine.waiting))
    assert engine.counters.finished > 100
    assert engine.counters.preemptions or most_waiting > 5


@needs_compiler
def test_chances_are_those_of_the_simulator_from_an_empty_engine() -> None:
    traffic = Traffic(Rate(((0.0, 1.2),)), output_tokens=400, prompt_tokens=700)
    setup = ServerSetup(traffic=traffic, blocks=1500)
    [engine] = CompiledServer(setup).engines
    assert isinstance(engine, CompiledEngine)
    ones = np.ones(300)
    first, most = engine.roll_ahead(1.2 * ones, ones, redraws=True, futures=2000, screen=2000, seed=1)
    chance = float(np.mean(first <= 300))
    assert most == 1.0
    runs = 60
    found = 0
    for seed in range(runs):
        server = CompiledServer(setup, seed)
        server.advance(300.0)
        found += server.engines[0].counters.preemptions > 0
    assert 0.1 < chance < 0.9
    assert found / runs == pytest.approx(chance, abs=3.5 * (chance * (1 - chance) / runs) ** 0.5)


@needs_compiler
def test_where_the_first_futures_have_room_the_others_are_not_computed() -> None:
    [engine] = CompiledServer(ServerSetup(traffic=TRAFFIC, blocks=1500)).engines
    assert isinstance(engine, CompiledEngine)
    ones = np.ones(100)
    first, most = engine.roll_ahead(0.1 * ones, ones, redraws=True, futures=50, screen=5, seed=1)
    assert list(first) == [101] * 50
    assert 0.0 < most < 0.7


def test_words_open_after_enough_looks_and_close_when_the_pool_is_calm() -> None:
    run = Watched("ramp", "ramp/0", 2000.0, 600.0, 1500.0, (), None)
    times = tuple(float(at) for at in range(60, 1500, 20))
    chances = np.zeros((len(KNOWLEDGES), len(times), len(HORIZONS_S)))
    chances[0, 5:8, 0] = 0.5
    looked = Looked(run, 24_000, times, (0.2,) * len(times), chances)
    assert looked.say(0, 0, 0.6, 2).opened == ()
    assert looked.say(0, 0, 0.5, 4).opened == ()
    [(opened_s, closed_s)] = looked.say(0, 0, 0.5, 2).opened
    assert opened_s == times[6]
    assert closed_s is not None
    assert closed_s - times[7] == pytest.approx(450.0, abs=40.0)
    score = score_serving([looked.say(0, 0, 0.5, 2)])
    assert (score.forecast, score.forecastable, score.false_words) == (0, 1, 1)
