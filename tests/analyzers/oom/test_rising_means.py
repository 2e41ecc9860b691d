"""Growth that single samples hide: lengths scatter, and nearly all of the limit is reserved already."""

import random
from collections.abc import Callable, Iterator

import pytest

from tests.analyzers.leak.courses import CAPACITY, watch
from vramscope.analyzers.leak import LeakAnalyzer
from vramscope.analyzers.oom import OomAnalyzer
from vramscope.engine.model import AllocatorReading, DeviceSample, Finding, MemoryReading, Sample
from vramscope.engine.units import GIB

ONSET_S = 600.0
END_S = 1700.0


def _samples(
    floor_at: Callable[[float], float],
    height_at: Callable[[float], float],
    reserved_gib: float,
    end_s: float,
    interval_s: float = 5.0,
) -> Iterator[Sample]:
    """Yield samples, each at a random height of a step of any length; values in GiB."""
    chance = random.Random(3)
    memory = MemoryReading(total_bytes=CAPACITY)
    for tick in range(int(end_s / interval_s)):
        time_s = interval_s * tick
        level = floor_at(time_s) + height_at(time_s) * chance.random() * chance.uniform(0.3, 1.0)
        reserved = min(CAPACITY, round(max(reserved_gib, level + 1) * GIB))
        allocator = AllocatorReading(round(level * GIB), reserved_bytes=reserved)
        yield Sample(
            "n", tick, time_s, interval_s, (DeviceSample("GPU-0", 0, memory=memory, allocator=allocator),)
        )


def _grown(time_s: float) -> float:
    """Return the share of the growth that has taken place."""
    return max(0.0, time_s - ONSET_S) / (END_S - ONSET_S)


def test_a_leak_under_lengths_that_scatter_is_forecast_minutes_before_the_error() -> None:
    found = watch(OomAnalyzer(), _samples(lambda at_s: 20 + 25 * _grown(at_s), lambda _: 30, 74.0, END_S))
    assert len({it.id for it in found}) == 1
    assert ONSET_S < found[0].opened_s < END_S - 300
    assert found[0].severity in ("low", "medium")
    assert found[-1].is_open


def test_a_leak_of_minutes_is_forecast_from_few_samples() -> None:
    end_s = ONSET_S + 800
    samples = _samples(lambda at_s: 20 + 44 * max(0.0, at_s - ONSET_S) / 800, lambda _: 16, 78.0, end_s, 15.0)
    found = watch(OomAnalyzer(), samples)
    assert ONSET_S < found[0].opened_s < end_s - 120


def test_steps_that_take_more_and_more_are_forecast_and_are_no_leak() -> None:
    def samples() -> Iterator[Sample]:
        return _samples(lambda _: 20, lambda at_s: 25 + 30 * _grown(at_s), 78.0, END_S)

    found = watch(OomAnalyzer(), samples())
    assert found[-1].is_open
    assert found[-1].opened_s < END_S - 60
    assert {it.severity for it in found} <= {"low", "medium"}
    assert not watch(LeakAnalyzer(), samples())


@pytest.mark.parametrize("rise_gib", [0.0, 4.0])
def test_little_or_no_growth_under_a_full_cache_is_no_error_ahead(rise_gib: float) -> None:
    samples = _samples(lambda at_s: 20 + rise_gib * min(1.0, at_s / 7200), lambda _: 30, 79.0, 7200.0)
    assert not watch(OomAnalyzer(), samples)


def test_the_same_growth_far_below_the_limit_is_not_said_by_the_mean_alone() -> None:
    samples = _samples(lambda at_s: 20 + 25 * _grown(at_s), lambda _: 30, 40.0, ONSET_S + 700)
    assert not watch(LeakAnalyzer(), samples)


def test_peaks_that_samples_seldom_meet_are_taken_as_higher_than_seen_and_stay_forecast() -> None:
    def height_at(time_s: float) -> float:
        return 25 + 35 * max(0.0, time_s - ONSET_S) / (end_s - ONSET_S)

    end_s = 4600.0
    left_s = 800.0
    analyzer = OomAnalyzer()
    found: list[Finding] = []
    times_s: list[float] = []
    for sample in _samples(lambda _: 20, height_at, 79.0, end_s):
        found += analyzer.observe(sample)
        if sample.time_s <= end_s - left_s:
            times_s += [
                told.time_s + told.oom_in_s for told in analyzer.assess() if told.oom_in_s is not None
            ]
    assert times_s[-1] == pytest.approx(end_s, abs=0.6 * left_s)
    assert len({it.id for it in found}) == 1
    assert found[-1].is_open


def test_holes_that_floors_grew_into_since_the_cache_was_given_back_are_not_lost() -> None:
    chance = random.Random(3)
    memory = MemoryReading(total_bytes=CAPACITY)
    analyzer = OomAnalyzer()
    capacities = []
    highest = 0
    for tick in range(1600):
        level = round((20 + tick / 50 + 15 * chance.random() * chance.uniform(0.4, 1.0)) * GIB)
        highest = max(highest, level)
        # At 78 GiB the cache is given back once; 72 GiB stay, next to live blocks.
        reserved = round((min(78.0, 60 + tick / 33) if tick < 700 else min(76.0, 72 + tick / 400)) * GIB)
        allocator = AllocatorReading(level, reserved_bytes=reserved)
        device = DeviceSample("GPU-0", 0, memory=memory, allocator=allocator)
        analyzer.observe(Sample("n", tick, float(tick), 1.0, (device,), clock="trace"))
        capacities += [told.capacity_bytes or 0 for told in analyzer.assess()]
    assert capacities[-1] > 0.9 * highest
