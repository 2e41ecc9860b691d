"""The score of the forecast of preemptions: what counts as forecast, and what as a false word."""

from collections import Counter
from dataclasses import replace

import pytest

from benchmarks import serving_scenes
from benchmarks.serving_scenes import (
    FAMILIES,
    SPLITS,
    Split,
    find_blocks,
    find_seed,
    list_serving_tasks,
    make_scene,
)
from benchmarks.serving_verdicts import (
    KnownRate,
    Watched,
    judge_serving,
    list_serving_errors,
    score_serving,
    watch_serving_one,
)
from vramscope.engine.workloads.serving.pool import Rate
from vramscope.engine.workloads.serving.server import ServerSetup, SimulatedServer

RUN = Watched("ramp", "ramp/0", 2000.0, 500.0, 1900.0, ((1700.0, None),), 190.0)
QUIET = Watched("steady", "steady/0", 7200.0, None, None, (), None)


@pytest.fixture
def any_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all servers have one capacity: to find their own takes seconds, and no shape depends on it."""
    monkeypatch.setattr(serving_scenes._Server, "capacity", 2.0)


@pytest.mark.parametrize(
    ("opened", "is_forecast"),
    [
        ((), False),
        (((1700.0, None),), True),
        (((1841.0, None),), False),
        (((1700.0, 1800.0),), False),
        (((1700.0, 1841.0),), True),
        (((400.0, None),), False),
    ],
)
def test_a_forecast_must_stand_a_minute_before_and_begin_with_the_growth(
    opened: tuple[tuple[float, float | None], ...], is_forecast: bool
) -> None:
    assert replace(RUN, opened=opened).is_forecast is is_forecast


def test_words_where_nothing_grows_are_false() -> None:
    assert replace(RUN, opened=((400.0, 450.0), (1700.0, None))).false_words == 1
    assert replace(QUIET, opened=((10.0, 20.0), (30.0, None))).false_words == 2
    assert RUN.false_words == 0


def test_what_grows_for_less_than_three_minutes_does_not_count() -> None:
    sudden = replace(RUN, growth_s=1750.0, opened=())
    assert not sudden.allows_lead
    assert score_serving([sudden]).forecastable == 0
    unknown = replace(RUN, growth_s=None, opened=())
    assert score_serving([unknown]).forecastable == 0


def test_the_targets_are_those_of_the_issue() -> None:
    recall, false = judge_serving([RUN, QUIET, replace(QUIET, opened=((10.0, None),))])
    assert recall["measured"] == 1.0
    hours = (7200.0 + 7200.0 + 500.0) / 3600
    assert false["measured"] == pytest.approx(100 / hours)
    assert (recall["limit"], false["limit"]) == ("≥ 0.95", "≤ 1")
    assert list_serving_errors([replace(RUN, opened=())])[0].startswith("ramp/0: not forecast")


def test_what_is_tuned_on_is_not_what_is_scored() -> None:
    tasks = {split: list_serving_tasks(split) for split in SPLITS}
    seeds = [find_seed(task) for of in tasks.values() for task in of]
    assert len(set(seeds)) == len(seeds)
    names = {split: {FAMILIES[it[1]].name for it in of} for split, of in tasks.items()}
    assert names["scored"] - names["tuning"] == {"steps", "surge"}
    only_fresh = {"smooth", "sprint", "outgrow", "clients", "crowd"}
    assert names["fresh"] - names["tuning"] - names["scored"] == only_fresh
    looked_at = names["tuning"] | names["scored"] | names["fresh"]
    assert names["sealed"] - looked_at == {"stairs", "doubling", "lull", "drift", "terrace"}
    assert names["sealed2"] == names["sealed3"] == names["sealed"]
    assert names["sealed4"] - names["sealed"] == {"knee", "steps", "surge", "swell", "smooth"}
    assert names["broad"] == {it.name for it in FAMILIES}


def test_splits_with_even_sizes_have_as_many_runs_of_each() -> None:
    tasks = [task for task in list_serving_tasks("sealed3") if FAMILIES[task[1]].name == "steady"]
    assert Counter(map(find_blocks, tasks)) == dict.fromkeys((1500, 4000, 6000, 12_500, 25_000, 40_000), 6)


@pytest.mark.usefixtures("any_capacity")
@pytest.mark.parametrize("name", ["outgrow", "clients"])
def test_new_families_fill_the_pool_by_what_they_are_named_after(name: str) -> None:
    """Neither raises the rate of requests: what grows is their length, or the number of those who ask."""
    task = next(it for it in list_serving_tasks("fresh") if FAMILIES[it[1]].name == name)
    traffic = make_scene(task)[0].setup.traffic
    rates = [rate for _, rate in traffic.rate_per_s.points]
    if name == "outgrow":
        assert len(set(rates)) == 1
        assert traffic.length is not None
        assert traffic.length.at(1e6) >= 2.5
    else:
        assert traffic.think_s is not None
        assert max(rates) >= 1.4 / 0.3 * min(rates)


@pytest.mark.usefixtures("any_capacity")
@pytest.mark.parametrize("name", ["stairs", "doubling", "lull"])
def test_sealed_families_that_grow_end_beyond_the_pool(name: str) -> None:
    task = next(it for it in list_serving_tasks("sealed") if FAMILIES[it[1]].name == name)
    scene = make_scene(task)[0]
    assert scene.growth_s is not None
    rate = scene.setup.traffic.rate_per_s
    assert rate.at(scene.duration_s) > 2 * rate.at(scene.growth_s)
    before = [rate.at(at_s) for at_s in range(0, int(scene.growth_s), 60)]
    assert max(before) < 0.6 * rate.at(scene.duration_s)


@pytest.mark.usefixtures("any_capacity")
@pytest.mark.parametrize("name", ["drift", "terrace"])
def test_sealed_families_that_stay_below_the_pool_grow_all_the_same(name: str) -> None:
    task = next(it for it in list_serving_tasks("sealed") if FAMILIES[it[1]].name == name)
    scene = make_scene(task)[0]
    assert scene.growth_s is None
    rates = [rate for _, rate in scene.setup.traffic.rate_per_s.points]
    assert rates == sorted(rates)
    assert max(rates) > 1.5 * min(rates)


@pytest.mark.usefixtures("any_capacity")
def test_sizes_and_lengths_of_the_splits_differ() -> None:
    def describe(split: Split) -> set[int]:
        tasks = [it for it in list_serving_tasks(split) if FAMILIES[it[1]].name == "steady"][:6]
        return {make_scene(task)[0].setup.pool_blocks for task in tasks}

    assert not describe("tuning") & describe("scored")
    assert not describe("sealed4") & (describe("sealed3") | describe("broad"))


def test_a_run_that_grows_is_watched_up_to_its_first_preemption() -> None:
    task = next(it for it in list_serving_tasks("tuning") if FAMILIES[it[1]].name == "ramp")
    watched = watch_serving_one(task)
    assert watched.preempted_s is not None
    assert watched.preempted_s <= watched.duration_s <= watched.preempted_s + 2.0


def test_a_known_rate_is_that_of_now_and_its_slope() -> None:
    server = SimulatedServer(ServerSetup())
    server.now_s = 100.0
    known = KnownRate(Rate(((0.0, 1.0), (200.0, 3.0), (201.0, 50.0))), server)
    known.add(9.0, 5.0)
    assert known.level == pytest.approx(2.0)
    assert known.ahead(50.0) == pytest.approx(2.5)
    assert known.ahead(150.0, -1.0) == pytest.approx(3.5), "what comes later is not known"
