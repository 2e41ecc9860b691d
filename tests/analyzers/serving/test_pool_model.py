"""The model of a pool: its law is that of its formulas, and its forecasts are those of the simulator."""

import math
import random
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from msgspec.structs import replace as change

from vramscope.analyzers.serving.arrivals import ArrivalTrack
from vramscope.analyzers.serving.pool_model import MOST_COHORTS, SPREAD, Count, Law, PoolModel, Use
from vramscope.engine.workloads.serving.pool import Engine, Rate, Speed, Traffic
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

from .servers import make_sample

OUTPUTS = 400.0
"""Median."""
TRAFFIC = Traffic(Rate(((0.0, 2.0),)), prompt_tokens=500, output_tokens=OUTPUTS, output_spread=SPREAD)
SETUP = ServerSetup(traffic=TRAFFIC, blocks=20_000, most_sequences=10_000)
POOL_TOKENS = SETUP.pool_blocks * SETUP.block_tokens
LAW = Law.of_mean(OUTPUTS * math.exp(SPREAD**2 / 2))
SPEED = Speed()


def read(engine: Engine) -> Count:
    counters = engine.counters
    return Count(
        len(engine.running),
        len(engine.waiting),
        engine.used_share * POOL_TOKENS,
        engine.used_share,
        counters.finished,
        counters.generation_tokens,
        counters.prefix_queries - counters.prefix_hits,
    )


def follow(server: SimulatedServer, model: PoolModel, until_s: float) -> Iterator[Count]:
    """Let a model follow a server; yield each reading."""
    last = read(server.engines[0])
    while server.now_s < until_s:
        server.advance(server.now_s + 2.0)
        now = read(server.engines[0])
        model.add(2.0, last, now, LAW)
        last = now
        yield now


def look(model: PoolModel, now: Count, rate: Callable[[float], float]) -> list[Use]:
    return model.look_ahead(now, LAW, measure_step_s, rate, POOL_TOKENS, every_s=10.0, looks=12)


def measure_step_s(running: float) -> float:
    """Return the time of a step as metrics show it: the simulator lets sequences leave each second alone."""
    step_s = SPEED.step_base_s + SPEED.step_sequence_s * running
    return step_s + 0.5 / LAW.mean


def test_the_law_is_that_of_lengths_that_are_drawn() -> None:
    chance = random.Random(1)
    drawn = [chance.lognormvariate(LAW.middle, LAW.spread) for _ in range(40_000)]
    assert statistics.fmean(drawn) == pytest.approx(LAW.mean, rel=0.02)
    longer = [it for it in drawn if it > 300.0]
    assert sum(it > 500.0 for it in longer) / len(longer) == pytest.approx(LAW.keep(300.0, 200.0), rel=0.02)
    for power, integral in enumerate(LAW.integrate(700.0)):
        ends = (min(it, 700.0) ** (power + 1) / (power + 1) for it in drawn)
        assert statistics.fmean(ends) == pytest.approx(integral, rel=0.02)
    # Ages of running sequences, where as many come as go.
    ages = sum(it * it / 2 for it in drawn) / sum(drawn)
    assert ages == pytest.approx(LAW.mean_age, rel=0.03)


def test_the_tail_of_the_law_goes_on_where_hardly_an_output_is_as_long() -> None:
    far = [LAW.keep(age, 0.1 * age) for age in (9_000.0, 12_000.0, 14_000.0, 50_000.0, 1e6)]
    assert all(0.0 < it < 1.0 for it in far)
    assert far == sorted(far, reverse=True)


@pytest.mark.parametrize("rates", [((0.0, 5.0),), ((0.0, 3.0), (900.0, 8.0))])
def test_the_use_that_is_computed_ahead_is_that_which_comes_and_scatters_as_it_says(
    rates: tuple[tuple[float, float], ...],
) -> None:
    rate = Rate(rates)
    traffic = replace(TRAFFIC, rate_per_s=rate, prefix_share=0.0)
    errors: dict[float, list[float]] = {}
    ratios: dict[float, list[float]] = {}
    for seed in range(4):
        server = SimulatedServer(replace(SETUP, traffic=traffic), seed)
        model = PoolModel()
        made: list[tuple[float, Use]] = []
        for now in follow(server, model, 800.0):
            for due_s, use in made:
                if due_s == server.now_s:
                    error = now.used_share - use.mean
                    errors.setdefault(use.ahead_s, []).append(error)
                    ratios.setdefault(use.ahead_s, []).append(error / math.sqrt(use.variance))
            if server.now_s >= 200.0 and server.now_s % 20.0 == 0.0:
                uses = look(model, now, partial(rise, rate, server.now_s))
                made += [(server.now_s + uses[at].ahead_s, uses[at]) for at in (2, 5, 11)]
    assert set(errors) == {30.0, 60.0, 120.0}
    for ahead_s, found in errors.items():
        assert abs(statistics.fmean(found)) < 0.025, ahead_s
        assert 0.7 < statistics.pstdev(ratios[ahead_s]) < 1.4, ahead_s


def rise(rate: Rate, now_s: float, ahead_s: float) -> float:
    return rate.at(now_s + ahead_s)


def test_scatter_grows_from_what_is_known_now() -> None:
    server = SimulatedServer(replace(SETUP, traffic=replace(TRAFFIC, rate_per_s=Rate(((0.0, 5.0),)))), 1)
    model = PoolModel()
    *_, now = follow(server, model, 300.0)
    uses = look(model, now, lambda _: 5.0)
    [first] = model.look_ahead(now, LAW, measure_step_s, lambda _: 5.0, POOL_TOKENS, every_s=1.0, looks=1)
    assert first.variance < 0.7 * uses[2].variance
    assert first.mean == pytest.approx(now.used_share, rel=0.1)
    assert [it.arriving for it in uses] == sorted(it.arriving for it in uses)
    assert uses[-1].arriving > 0.8 * uses[-1].mean, "most of what runs now has left by then"


def test_requests_that_wait_come_no_faster_than_prompts_are_computed() -> None:
    traffic = replace(TRAFFIC, rate_per_s=Rate(((0.0, 1.0), (200.0, 8.0))), prompt_tokens=3000)
    speed = Speed(prefill_tokens_per_s=6000.0)
    server = SimulatedServer(replace(SETUP, traffic=traffic, speed=speed), 1)
    model = PoolModel()
    readings = list(follow(server, model, 500.0))
    assert readings[-1].waiting > 300
    means = [it.mean for it in look(model, readings[-1], lambda _: 8.0)]
    assert max(means) < 1.3 * readings[-1].used_share
    blind = PoolModel()
    for before, now in pairwise(readings):
        blind.add(2.0, before._replace(waiting=0), now._replace(waiting=0), LAW)
    unlimited = [it.mean for it in look(blind, readings[-1]._replace(waiting=0), lambda _: 8.0)]
    assert unlimited[-1] > 2.0 * means[-1]


def test_outputs_are_measured_by_requests_that_began_not_by_those_that_wait() -> None:
    traffic = replace(TRAFFIC, rate_per_s=Rate(((0.0, 8.0),)), prompt_tokens=3000)
    server = SimulatedServer(replace(SETUP, traffic=traffic, speed=Speed(prefill_tokens_per_s=6000.0)), 1)
    track = ArrivalTrack()
    while server.now_s < 400.0:
        server.advance(server.now_s + 2.0)
        track.add(server.now_s, make_sample(server, 1).servers[0].engines[0])
    assert len(server.engines[0].waiting) > 1000
    assert track._law is not None
    assert track._law.mean == pytest.approx(LAW.mean, rel=0.2)


def test_a_model_that_joins_a_running_server_soon_knows_as_much() -> None:
    traffic = replace(TRAFFIC, rate_per_s=Rate(((0.0, 5.0),)))
    server = SimulatedServer(replace(SETUP, traffic=traffic), 3)
    early = PoolModel()
    *_, _ = follow(server, early, 400.0)
    late = PoolModel()
    last = read(server.engines[0])
    for _ in range(60):
        server.advance(server.now_s + 2.0)
        now = read(server.engines[0])
        early.add(2.0, last, now, LAW)
        late.add(2.0, last, now, LAW)
        last = now
    for one, other in zip(look(early, last, lambda _: 5.0), look(late, last, lambda _: 5.0), strict=True):
        assert other.mean == pytest.approx(one.mean, rel=0.05)


def test_cohorts_are_few_and_have_as_many_sequences_as_run() -> None:
    server = SimulatedServer(replace(SETUP, traffic=replace(TRAFFIC, rate_per_s=Rate(((0.0, 5.0),)))), 2)
    model = PoolModel()
    for now in follow(server, model, 300.0):
        assert len(model._cohorts) <= MOST_COHORTS
        assert sum(it.count for it in model._cohorts) == pytest.approx(now.running, abs=0.2)
    assert model.prompt == pytest.approx(500 * math.exp(0.7**2 / 2), rel=0.2)


def test_servers_that_do_not_count_prompts_are_not_forecast_from_arrivals() -> None:
    server = SimulatedServer(SETUP, 1)
    server.advance(10.0)
    engine = make_sample(server, 1).servers[0].engines[0]
    track = ArrivalTrack()
    track.add(10.0, engine)
    assert track.is_known
    for missing in (
        change(engine, pool_tokens=None),
        change(engine, prompt_tokens=None, prefix_queries=None),
    ):
        track.add(12.0, missing)
        assert not track.is_known
