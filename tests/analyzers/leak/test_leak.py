"""Leaks open, are counted once, and close; what is bounded opens nothing."""

import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analyzers.leak.courses import CAPACITY, sawtooth, series, steps, used, watch
from vramscope.analyzers.leak import LeakAnalyzer
from vramscope.analyzers.oom import OomAnalyzer
from vramscope.engine.model import Finding
from vramscope.engine.units import GIB, MIB


def _find(samples: object) -> list[Finding]:
    return watch(LeakAnalyzer(), samples)  # type: ignore[arg-type]


def _evidence(finding: Finding, name: str) -> float:
    value = next(evidence.value for evidence in finding.evidence if evidence.name == name)
    assert isinstance(value, int | float)
    return value


def test_a_leak_of_every_step_opens_once_and_tells_its_rate_and_onset() -> None:
    floors = [20 * GIB + 40 * MIB * max(0, step - 300) for step in range(900)]
    found = _find(steps(floors))
    assert len({finding.id for finding in found}) == 1
    last = found[-1]
    assert last.kind == "leak"
    assert last.is_open
    assert _evidence(last, "growth a step") == pytest.approx(40 * MIB, rel=0.01)
    assert _evidence(last, "onset") == pytest.approx(300, abs=60)
    assert last.title.startswith("process 4711 leaks 40 MiB a step since step ")


def test_it_is_called_a_leak_before_three_tenths_of_its_life_are_over_and_forecast_before_a_fifth() -> None:
    life = 50 * GIB / (20 * MIB)
    course = [20 * GIB + 20 * MIB * step for step in range(900)]
    found = _find(steps(course))
    assert 0.2 * life < found[0].opened_s < 0.3 * life
    assert watch(OomAnalyzer(), steps(course))[0].opened_s < 0.2 * life


def test_results_that_pile_up_for_minutes_are_no_leak_and_a_leak_as_fast_is_named_before_its_end() -> None:
    rise = [20 * GIB + 80 * MIB * step for step in range(240)]
    assert not _find(steps([20.0 * GIB] * 60 + rise + [20.0 * GIB] * 200))
    end_s = 50 * GIB / (80 * MIB)
    found = _find(steps([20 * GIB + 80 * MIB * step for step in range(int(end_s))]))
    assert 240 < found[0].opened_s < 0.5 * end_s


def test_growth_that_becomes_slower_and_slower_is_not_called_a_leak() -> None:
    room = CAPACITY - 30 * GIB
    floors = [20 * GIB + 0.5 * room * (step / 5000) ** 0.7 // (64 * MIB) * 64 * MIB for step in range(5000)]
    assert watch(OomAnalyzer(), steps(floors))
    assert not _find(steps(floors))


def test_of_ten_caches_of_what_is_met_for_the_first_time_at_most_one_is_called_a_leak() -> None:
    called = 0
    for seed in range(10):
        drawn = random.Random(seed)
        known, floors = 0, []
        for step in range(1200):
            known += drawn.random() * (20 + step) < 20 + 0.6 * known
            floors.append(20 * GIB + known * 96 * MIB)
        called += bool(_find(steps(floors)))
    assert called <= 1


@pytest.mark.parametrize("steps_of_fill", [200, 400])
def test_a_leak_that_follows_a_faster_fill_is_named_once_it_lasted_twice_as_long(steps_of_fill: int) -> None:
    filled = 20 * GIB + 40 * MIB * steps_of_fill
    fill = [20 * GIB + 40 * MIB * step for step in range(steps_of_fill)]
    found = _find(steps([*fill, *(filled + 10 * MIB * step for step in range(2 * steps_of_fill))]))
    assert found
    assert found[0].opened_s < 3 * steps_of_fill


def test_a_leak_under_the_sawtooth_of_steps_is_found_in_a_series() -> None:
    floors = (20 * GIB + 5 * MIB * tick for tick in range(3600))
    found = _find(series(sawtooth(floors)))
    assert {finding.kind for finding in found} == {"leak"}
    assert _evidence(found[-1], "growth a second") == pytest.approx(5 * MIB, rel=0.05)


def test_stairs_of_evaluations_are_one_leak() -> None:
    floors = [20 * GIB + 400 * MIB * (step // 120) for step in range(3600)]
    found = _find(steps(floors))
    assert len({finding.id for finding in found}) == 1
    assert found[-1].is_open


def test_growth_that_stops_closes_the_finding_and_stays_closed() -> None:
    floors = [20 * GIB + 20 * MIB * min(step, 900) for step in range(3600)]
    found = _find(steps(floors))
    assert len({finding.id for finding in found}) == 1
    closed = found[-1]
    assert closed.closed_s is not None
    assert closed.closed_s > 900
    assert closed.evidence[-1].value is not None
    assert "growth stopped" in str(closed.evidence[-1].value)


def test_growth_that_returns_at_its_pace_after_a_rest_is_resumed_at_once() -> None:
    grown = [20 * GIB + 40 * MIB * step for step in range(600)]
    rest = [grown[-1]] * 100

    first = next(it for it in _find(steps(grown)))

    def follow(pace: int) -> list[Finding]:
        again = [grown[-1] + pace * MIB * step for step in range(1, 60)]
        found = _find(steps([*grown, *rest, *again]))
        closed = next(it for it in found if not it.is_open)
        return [closed, *(it for it in found if it.updated_s > closed.updated_s)]

    closed, resumed, *_ = follow(40)
    assert resumed.is_open
    assert resumed.updated_s < 700 + 20
    # The same leak after a pause is the same finding, with the same onset.
    assert resumed.id == closed.id == first.id
    assert _evidence(resumed, "onset") == _evidence(first, "onset")
    assert all("growth stopped" not in str(it.value) for it in resumed.evidence)
    # A pace of a quarter is other growth: it has to show for itself.
    assert len(follow(10)) == 1


def test_a_floor_that_falls_back_closes_it_and_a_second_leak_is_another() -> None:
    wave = [20 * MIB * step for step in range(900)]
    floors = [20 * GIB + grown for grown in [*wave, *[0] * 300, *[1.1 * grown for grown in wave * 2]]]
    found = _find(steps(floors[:2100]))
    ids = {finding.id for finding in found}
    assert len(ids) == 2
    assert sum(not finding.is_open for finding in found) == 1


def test_partial_release_does_not_hide_a_leak() -> None:
    floors = [20 * GIB + 20 * MIB * (step - 0.5 * (step // 40 * 40)) for step in range(1800)]
    found = _find(steps(floors))
    assert len({finding.id for finding in found}) == 1


def test_a_process_that_ends_closes_its_finding() -> None:
    analyzer = LeakAnalyzer()
    watch(analyzer, steps([20 * GIB + 40 * MIB * step for step in range(600)]))
    gone = watch(analyzer, series([1 * GIB] * 30, start_s=600.0))
    assert [finding.closed_s is not None for finding in gone] == [True]


def test_the_same_pid_started_again_is_another_owner() -> None:
    floors = [20 * GIB + 60 * MIB * step for step in range(400)]
    analyzer = LeakAnalyzer()
    first = watch(analyzer, steps(floors))
    second = watch(analyzer, steps([20 * GIB] * 400, started_s=900.0, start_s=400.0))
    assert first[-1].is_open
    assert [finding.id for finding in second if not finding.is_open] == [first[0].id]


def test_device_memory_alone_is_said_to_be_that() -> None:
    found = _find(used([30 * GIB + 5 * MIB * tick for tick in range(3600)]))
    assert found
    assert "device memory" in found[0].title
    assert "device used" in {evidence.value for evidence in found[0].evidence}


def test_host_memory_that_grows_without_end_is_a_leak_of_the_host() -> None:
    found = _find(steps([20 * GIB] * 3600, resident=lambda step: 4 * GIB + 2 * MIB * step))
    assert {finding.kind for finding in found} == {"host_leak"}
    assert "host memory" in found[0].title


@settings(max_examples=12, deadline=None)
@given(
    share=st.floats(0.01, 0.9),
    tau=st.floats(30, 2000),
    seed=st.integers(0, 1000),
)
def test_a_cache_that_fills_opens_nothing(share: float, tau: float, seed: int) -> None:
    room = CAPACITY - 30 * GIB
    floors = [20 * GIB + share * room * (1 - math.exp(-step / tau)) for step in range(3000)]
    assert not _find(steps(floors))


@settings(max_examples=15, deadline=None)
@given(levels=st.lists(st.floats(0, 0.9), min_size=1, max_size=4), seed=st.integers(0, 1000))
def test_a_few_steps_up_open_nothing(levels: list[float], seed: int) -> None:
    room = CAPACITY - 30 * GIB
    floors = [20 * GIB + room * sorted(levels)[step * len(levels) // 2400] for step in range(2400)]
    assert not _find(series(sawtooth(floors, seed=seed)))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), height=st.floats(0, 50))
def test_steps_of_any_size_over_a_flat_floor_open_nothing(seed: int, height: float) -> None:
    assert not _find(series(sawtooth([20 * GIB] * 3000, height * GIB, seed)))


def test_samples_that_come_twice_or_late_change_nothing() -> None:
    course = list(steps([20 * GIB + 20 * MIB * step for step in range(600)]))
    muddled = [
        one for sample, late in zip(course, [course[0], *course], strict=False) for one in (sample, late)
    ]
    assert _find(muddled) == _find(course)


def test_one_sample_says_nothing() -> None:
    assert not _find(series([20 * GIB]))


def test_a_successor_that_is_fed_the_same_samples_finds_the_same() -> None:
    course = list(steps([20 * GIB + 40 * MIB * step for step in range(900)]))
    before = LeakAnalyzer()
    found = watch(before, course[:600])
    successor = LeakAnalyzer()
    successor.restore([found[-1]])
    again = watch(successor, course[:600])
    assert not again
    assert watch(successor, course[600:]) == watch(before, course[600:])


def test_a_clock_that_is_set_back_hides_no_leak() -> None:
    run = list(steps([20 * GIB + 20 * MIB * tick for tick in range(900)]))
    late = [msgspec.structs.replace(sample, time_s=sample.time_s - 3600.0) for sample in run[60:]]
    assert {finding.kind for finding in _find([*run[:60], *late])} == {"leak"}


def test_the_floor_before_the_optimizer_has_its_state_is_no_measure_of_a_step() -> None:
    floors = [10 * GIB, *(30 * GIB + MIB * min(tick, 80) for tick in range(300))]
    assert not _find(steps(floors, lambda step: 45.0 * GIB))


@pytest.mark.parametrize("seed", range(4))
def test_a_buffer_that_is_full_and_turned_over_is_no_growth_that_comes_back(seed: int) -> None:
    source = random.Random(seed)
    slots = [source.lognormvariate(0.0, 0.8) for _ in range(6000)]
    held = [sum(slots[max(0, step - 900) : step]) for step in range(6000)]
    found = watch(LeakAnalyzer(), steps([20 * GIB + 20 * MIB * level for level in held]))
    assert found[0].is_open
    filled_s = 900 + 120
    assert all(finding.updated_s < filled_s or not finding.is_open for finding in found)
