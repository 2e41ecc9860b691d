"""The rules of others do on known shapes what their authors and the literature say of them."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.verdict_baselines import (
    RULES,
    Baseline,
    Watch,
    Window,
    find_median_slope,
    fit_line,
    measure_trend,
)
from benchmarks.verdict_runs.job import GIB, Floats
from vramscope.engine.model import AllocatorReading, DeviceSample, MemoryReading, Sample

MIB = 1 << 20
TIMES = np.arange(300.0)


def make_window(levels: Floats, peak: float | None = None, limit: float = 80 * GIB) -> Window:
    return Window(TIMES, levels, TIMES[::5], levels[::5], peak or float(levels.max()), limit)


def test_a_straight_line_is_fitted_exactly() -> None:
    slope, r_squared, t = fit_line(TIMES, 3.0 * TIMES + 7)
    assert slope == pytest.approx(3.0)
    assert r_squared == pytest.approx(1.0)
    assert t > 1e6


def test_the_line_agrees_with_polyfit_under_noise() -> None:
    levels = 2.0 * TIMES + np.random.default_rng(5).normal(0, 40, 300)
    slope, r_squared, _ = fit_line(TIMES, levels)
    assert slope == pytest.approx(np.polyfit(TIMES, levels, 1)[0])
    assert r_squared == pytest.approx(np.corrcoef(TIMES, levels)[0, 1] ** 2)


def test_the_median_slope_withstands_a_quarter_of_wild_values() -> None:
    levels = 2.0 * TIMES
    levels[::5] = 1e6
    slope, low = find_median_slope(TIMES, levels)
    assert slope == pytest.approx(2.0, rel=0.2)
    assert low <= slope


def test_a_trend_of_ties_alone_is_none() -> None:
    assert measure_trend(np.ones(60)) == 0.0
    assert measure_trend(np.arange(60.0)) > 5
    assert measure_trend(-np.arange(60.0)) < -5


@pytest.mark.parametrize("name", RULES)
def test_nobody_claims_anything_of_a_flat_level(name: str) -> None:
    trend = RULES[name](make_window(np.full(300, 20.0 * GIB)))
    assert trend.slope is None
    assert not trend.is_short


@pytest.mark.parametrize("name", [name for name in RULES if name != "90 % threshold"])
def test_a_bare_leak_of_five_megabytes_a_second_is_found_by_every_trend(name: str) -> None:
    slope = RULES[name](make_window(20.0 * GIB + 5e6 * TIMES)).slope
    assert slope == pytest.approx(5e6, rel=0.01)


def test_the_published_rule_misses_a_slow_leak_and_one_under_a_sawtooth() -> None:
    slow = make_window(20.0 * GIB + 0.5e6 * TIMES)
    sawtooth = make_window(20.0 * GIB + 5e6 * TIMES + (TIMES * 0.37 % 1.0) * 20 * GIB)
    assert RULES["gpulse"](slow).slope is None
    assert RULES["gpulse"](sawtooth).slope is None


def test_the_published_rule_calls_a_cache_that_fills_a_leak() -> None:
    cache = make_window(20.0 * GIB + 4 * GIB * (1 - np.exp(-TIMES / 400)))
    assert RULES["gpulse"](cache).slope is not None


def test_the_threshold_looks_at_the_recent_peak() -> None:
    assert RULES["90 % threshold"](make_window(np.full(300, 1.0 * GIB), peak=73.0 * GIB)).is_short
    assert not RULES["90 % threshold"](make_window(np.full(300, 1.0 * GIB), peak=71.0 * GIB)).is_short


def make_sample(time_s: float, allocated: int) -> Sample:
    memory = MemoryReading(80 * GIB, 60 * GIB, 20 * GIB)
    allocator = AllocatorReading(allocated, reserved_bytes=59 * GIB)
    device = DeviceSample("GPU-1", 0, memory=memory, allocator=allocator)
    return Sample("node", int(time_s) + 1, time_s, 1.0, (device,), clock="trace")


def play(name: str, level_at: Callable[[int], int], seconds: int) -> Baseline:
    watch, baseline = Watch(), Baseline(name)
    for second in range(seconds):
        window = watch.observe(make_sample(float(second), level_at(second)))
        if window is not None:
            baseline.judge(window)
    return baseline


def test_a_rule_waits_for_five_minutes_and_for_a_second_look() -> None:
    assert play("gpulse", lambda s: 20 * GIB + s * 5 * MIB, 285).claims == []
    baseline = play("gpulse", lambda s: 20 * GIB + s * 5 * MIB, 400)
    assert [claim.kind for claim in baseline.claims] == ["leak"]
    assert baseline.claims[0].opened_s == pytest.approx(290, abs=11)
    assert baseline.claims[0].closed_s is None


def test_a_finding_of_a_rule_closes_once_its_trend_is_over() -> None:
    baseline = play("gpulse", lambda s: 20 * GIB + min(s, 400) * 5 * MIB, 1200)
    assert len(baseline.claims) == 1
    assert baseline.claims[0].closed_s is not None


def test_a_rule_warns_of_an_error_within_the_hour_and_says_how_likely_it_is() -> None:
    rate, start = 20 * MIB, 20 * GIB
    baseline = play("Theil–Sen, floors", lambda s: start + s * rate, 600)
    assert {claim.kind for claim in baseline.claims} == {"leak", "oom"}
    room_s = (79 * GIB - start) / rate - 599
    forecast = baseline.forecast(599.0, room_s)
    assert forecast.oom_in_s == pytest.approx(room_s, rel=0.02)
    assert forecast.probability == pytest.approx(0.5, abs=0.03)
    assert (baseline.forecast(599.0, 10 * room_s).probability or 0) > 0.99
