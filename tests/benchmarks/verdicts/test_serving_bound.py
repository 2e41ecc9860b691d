"""The forecaster that knows the state: its futures are the simulator's, its words are scored alike."""

import shutil

import numpy as np
import pytest

from benchmarks.serving_bound import (
    HORIZONS_S,
    KNOWLEDGES,
    Looked,
    describe_state,
    replay_requests,
    roll_ahead,
)
from benchmarks.serving_verdicts import Watched, score_serving
from vramscope.engine.workloads.serving.pool import Rate, Request, Speed, Traffic
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="the futures are computed in C")

TRAFFIC = Traffic(Rate(((0.0, 0.5), (300.0, 0.5), (900.0, 2.5))), output_tokens=400, prompt_tokens=700)
SETUP = ServerSetup(traffic=TRAFFIC, blocks=1500, speed=Speed(step_token_s=3e-8))


@needs_compiler
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_copy_in_c_preempts_in_the_same_second_as_the_simulator(seed: int) -> None:
    server = SimulatedServer(SETUP, seed)
    states = []
    while server.engines[0].counters.first_preemption_s is None:
        server.advance(server.now_s + 1.0)
        if int(server.now_s) % 100 == 0:
            states.append((int(server.now_s), *describe_state(server.engines[0], TRAFFIC, 0)))
    first_s = int(server.engines[0].counters.first_preemption_s)
    by_second: list[list[Request]] = [[] for _ in range(first_s)]
    for request in TRAFFIC.generate(seed).take_until(first_s):
        by_second[int(request.arrived_s)].append(request)
    assert len(states) > 3
    for at_s, state, present in states:
        coming = by_second[at_s:]
        state.seconds = len(coming)
        assert replay_requests(state, present, coming) == first_s - at_s


@needs_compiler
def test_chances_are_those_of_the_simulator_from_an_empty_engine() -> None:
    traffic = Traffic(Rate(((0.0, 1.2),)), output_tokens=400, prompt_tokens=700)
    setup = ServerSetup(traffic=traffic, blocks=1500)
    state, present = describe_state(SimulatedServer(setup).engines[0], traffic, 300)
    ones = np.ones(300)
    chance = float(np.mean(roll_ahead(state, present, 1.2 * ones, ones, futures=2000, seed=1) <= 300))
    runs = 60
    found = 0
    for seed in range(runs):
        server = SimulatedServer(setup, seed)
        server.advance(300.0)
        found += server.engines[0].counters.preemptions > 0
    assert 0.1 < chance < 0.9
    assert found / runs == pytest.approx(chance, abs=3.5 * (chance * (1 - chance) / runs) ** 0.5)


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
