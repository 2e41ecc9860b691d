"""Forecasts of out-of-memory errors: when, how grave, and when not."""

import random

import msgspec
import pytest

from tests.analyzers.leak.courses import CAPACITY, sawtooth, series, steps, used, watch
from vramscope.analyzers.leak import LeakAnalyzer
from vramscope.analyzers.oom import OomAnalyzer
from vramscope.engine.model import Assessment, Finding
from vramscope.engine.units import GIB, MIB

ROOM_STEPS = 50 * GIB / (20 * MIB)
"""Steps that a leak of 20 MiB a step takes from a floor of 20 GiB under activations of 10."""


def _evidence(finding: Finding, name: str) -> float:
    value = next(evidence.value for evidence in finding.evidence if evidence.name == name)
    assert isinstance(value, int | float)
    return value


def _assess(analyzer: OomAnalyzer) -> Assessment:
    (assessment,) = analyzer.assess()
    return assessment


def _leak(count: int) -> list[float]:
    return [20 * GIB + 20 * MIB * step for step in range(count)]


@pytest.mark.parametrize("life", [0.25, 0.5, 0.9])
def test_the_time_left_is_told_within_a_few_percent(life: float) -> None:
    analyzer, seen = OomAnalyzer(), int(life * ROOM_STEPS)
    watch(analyzer, steps(_leak(seen)))
    assessment = _assess(analyzer)
    assert assessment.oom_in_s == pytest.approx(ROOM_STEPS - seen, rel=0.05)
    assert assessment.oom_in_low_s is not None
    assert assessment.oom_in_high_s is not None
    assert assessment.oom_in_low_s <= ROOM_STEPS - seen <= assessment.oom_in_high_s


def test_no_growth_is_told_only_until_the_leak_is_found() -> None:
    leaks, forecasts, reasons = LeakAnalyzer(), OomAnalyzer(), []
    for sample in steps([20.0 * GIB] * 10 + [20 * GIB + 200 * MIB * step for step in range(60)]):
        is_told = any(finding.kind == "leak" for finding in leaks.observe(sample))
        forecasts.observe(sample)
        reasons += [assessment.reason for assessment in forecasts.assess()]
        if is_told:
            assert reasons[-1] == "its floor grows"
    assert reasons[0] == "no growth found so far"


def test_a_finding_opens_and_becomes_graver_as_the_end_comes_near() -> None:
    found = watch(OomAnalyzer(), steps(_leak(int(ROOM_STEPS) - 5)))
    assert len({finding.id for finding in found}) == 1
    severities = list(dict.fromkeys(finding.severity for finding in found))
    assert severities == ["medium", "high", "critical"]
    assert found[0].opened_s < 0.2 * ROOM_STEPS
    assert found[-1].title.startswith("GPU 0 (process 4711) out of memory in ")
    assert _evidence(found[-1], "growth a step") == pytest.approx(20 * MIB, rel=0.02)


def test_it_is_high_only_once_much_more_was_taken_than_is_left() -> None:
    found = watch(OomAnalyzer(), steps([20 * GIB + 100 * MIB * step for step in range(500)]))
    first = next(finding for finding in found if finding.severity == "high")
    left = _evidence(first, "capacity") - _evidence(first, "floor") - _evidence(first, "peak above floor")
    assert _evidence(first, "grown since onset") > 1.55 * left
    assert _evidence(first, "time to out of memory") > 120


def test_steps_that_become_longer_are_no_alarm_before_that_though_the_device_refuses_memory() -> None:
    found: list[Finding] = []
    analyzer = OomAnalyzer()
    for tick, sample in enumerate(steps([20.0 * GIB] * 600, lambda step: (30 + 0.025 * step) * GIB)):
        before = sample.ranks[0].allocator
        assert before is not None
        allocator = msgspec.structs.replace(before, retries=tick // 60)
        rank = msgspec.structs.replace(sample.ranks[0], allocator=allocator)
        found += analyzer.observe(msgspec.structs.replace(sample, ranks=(rank,)))
    assert found
    assert {it.severity for it in found} == {"medium"}


def test_it_is_published_anew_only_when_a_person_would_see_it() -> None:
    found = watch(OomAnalyzer(), steps(_leak(2000)))
    assert len(found) < 40


def test_a_series_sampled_at_random_moments_is_foreseen_too() -> None:
    analyzer = OomAnalyzer()
    floors = [20 * GIB + 20 * MIB * tick for tick in range(1280)]
    found = watch(analyzer, series(sawtooth(floors)))
    assert found[-1].is_open
    assert _assess(analyzer).oom_in_s == pytest.approx(ROOM_STEPS - 1280, rel=0.1)


def test_growth_that_stops_closes_the_finding() -> None:
    found = watch(OomAnalyzer(), steps([*_leak(900), *[20 * GIB + 900 * 20 * MIB] * 2000]))
    assert len({finding.id for finding in found}) == 1
    assert found[-1].closed_s is not None


def test_a_steady_job_near_the_limit_is_at_low_risk() -> None:
    analyzer = OomAnalyzer()
    source = random.Random(3)
    lengths = [source.choice((0.6, 0.8, 1.0)) for _ in range(2000)]
    assert not watch(analyzer, steps([20 * GIB] * 2000, lambda step: 58 * GIB * lengths[step]))
    assessment = _assess(analyzer)
    assert (assessment.level, assessment.reason) == ("low", "steady below the limit")
    assert assessment.watched_steps == pytest.approx(2000, abs=10)
    assert assessment.capacity_bytes == CAPACITY
    assert assessment.floor_bytes == 20 * GIB
    assert assessment.peak_bytes == 78 * GIB


def test_a_steady_job_whose_peak_takes_all_there_is_is_never_at_low_risk() -> None:
    analyzer = OomAnalyzer()
    assert not watch(analyzer, steps([20 * GIB] * 400, lambda _: CAPACITY - 20 * GIB))
    assessment = _assess(analyzer)
    assert (assessment.level, assessment.reason) == ("medium", "no headroom left at its peak")


def test_lengths_without_a_bound_have_a_probability_within_steps() -> None:
    source = random.Random(5)
    lengths = [source.expovariate(1 / 6) for _ in range(400)]
    for floor, least, most in ((79 - max(lengths), 0.05, 0.9), (5, 0.0, 0.05)):
        analyzer = OomAnalyzer()
        assert not watch(analyzer, steps([floor * GIB] * 400, lambda step: lengths[step] * GIB))
        assessment = _assess(analyzer)
        assert assessment.steps_ahead == 1000
        assert assessment.probability_within_steps is not None
        assert least <= assessment.probability_within_steps < most


def test_device_memory_alone_foretells_nothing() -> None:
    analyzer = OomAnalyzer()
    assert not watch(analyzer, used([30 * GIB + 20 * MIB * tick for tick in range(2000)]))
    assessment = _assess(analyzer)
    assert (assessment.level, assessment.memory_source) == ("unknown", "device")
    assert assessment.reason == "no allocator data"


def test_nothing_is_told_twice() -> None:
    analyzer = OomAnalyzer()
    watch(analyzer, steps([20 * GIB] * 100))
    assert len(analyzer.assess()) == 1
    assert not analyzer.assess()


def test_a_successor_goes_on_with_the_same_finding() -> None:
    course = list(steps(_leak(1500)))
    before, successor = OomAnalyzer(), OomAnalyzer()
    found = watch(before, course[:1000])
    successor.restore([found[-1]])
    assert not watch(successor, course[:1000])
    assert {finding.id for finding in watch(successor, course[1000:])} == {found[0].id}


def test_a_job_that_has_just_begun_is_not_called_steady() -> None:
    analyzer = OomAnalyzer()
    watch(analyzer, steps([20 * GIB] * 60))
    assessment = _assess(analyzer)
    assert (assessment.level, assessment.reason) == ("low", "no growth found so far")


def _longer_steps(count: int) -> list[Finding]:
    """Watch activations that grow by 20 MiB a step from 10 GiB on, above a floor of 20: 2,560 steps fit."""
    analyzer = OomAnalyzer()
    ramp = steps([20.0 * GIB] * count, lambda step: 10 * GIB + 20 * MIB * step)
    found = watch(analyzer, ramp)
    assessment = _assess(analyzer)
    assert assessment.oom_in_s == pytest.approx(2560 - count, rel=0.15)
    assert assessment.reason.startswith("its peaks grow")
    return found


def test_longer_and_longer_steps_have_a_forecast_and_no_alarm_while_there_is_room() -> None:
    assert not _longer_steps(1000)


def test_longer_and_longer_steps_are_an_alarm_before_the_last_ones_that_fit() -> None:
    (first, *_) = _longer_steps(2400)
    assert 1900 <= first.opened_s <= 2200
    # No leak is open beside it, so that the words point to none.
    assert "peaks grow by" in first.title
    assert "leak" not in first.advice
    assert "through the peaks" in first.method


def test_growth_that_speeds_up_is_foreseen_sooner_than_a_line_would_have_it() -> None:
    analyzer, life = OomAnalyzer(), 2400
    watch(analyzer, steps([20 * GIB + 50 * GIB * (step / life) ** 2 for step in range(life // 2)]))
    assert _assess(analyzer).oom_in_s == pytest.approx(life / 2, rel=0.15)


def test_an_evaluation_every_ten_minutes_is_not_forgotten() -> None:
    analyzer = OomAnalyzer()
    spikes = steps(_leak(1700), lambda step: (30 if step % 600 < 5 else 10) * GIB)
    watch(analyzer, spikes)
    # With 30 GiB on top the floor may reach 50: since step 1,536 no evaluation fits, and one comes in 100.
    assessment = _assess(analyzer)
    assert assessment.oom_in_low_s is not None
    assert assessment.oom_in_s is not None
    assert assessment.oom_in_low_s <= 100 < assessment.oom_in_s < 600


@pytest.mark.parametrize("seed", range(3))
def test_long_steps_among_short_ones_that_stay_as_long_are_no_growth_in_samples(seed: int) -> None:
    chance = random.Random(seed)
    levels = [
        24 * GIB + (52 if chance.random() < 0.4 else 12) * GIB * max(0.0, 1 - 2 * chance.random())
        for _ in range(2000)
    ]
    assert watch(OomAnalyzer(), series(levels)) == []


def _scattered(seed: int, tops_gib: list[float]) -> list[float]:
    """Return samples of steps of all lengths, at random moments of them, whose longest reach such heights."""
    source = random.Random(seed)
    heights = [top * source.betavariate(5.0, 2.0) for top in tops_gib]
    return [20 * GIB + height * GIB * max(0.1, 1 - 2 * abs(source.random() - 0.5)) for height in heights]


@pytest.mark.parametrize("seed", range(3))
def test_sampled_lengths_that_scatter_and_grow_are_forecast_though_never_above_medium(seed: int) -> None:
    tops = [25.0] * 200 + [25.0 + 0.04 * tick for tick in range(850)]
    found = watch(OomAnalyzer(), series(_scattered(seed, tops), interval_s=5.0))
    # The first of these steps need all 60 GiB of the room above the floor at 5,375 s.
    assert found[0].opened_s < 5375 - 300
    assert found[-1].is_open
    assert {finding.severity for finding in found} <= {"low", "medium"}


@pytest.mark.parametrize("seed", range(3))
def test_sampled_lengths_that_scatter_and_stay_have_no_forecast(seed: int) -> None:
    assert not watch(OomAnalyzer(), series(_scattered(seed, [58.0] * 4000), interval_s=5.0))
