"""Reports on the same samples say the same of their growth, in the words of the live view."""

import random
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from vramscope.analyzers.oom import OomAnalyzer
from vramscope.analyzers.trend_words import word_trend
from vramscope.engine.model import Sample
from vramscope.engine.units import format_age
from vramscope.exporters.reports.leak import LeakRule, build_leak
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.oom import Thresholds, build_oom
from vramscope.exporters.reports.profile import build_profile
from vramscope.exporters.reports.text import describe_report

from .logs import GIB, INPUT, MIB, make_device, make_sample

SECONDS = 700


def _log(samples: Iterable[Sample]) -> RunLog:
    log, analyzer = RunLog(), OomAnalyzer()
    for sample in samples:
        log.observe(sample)
        log.take(analyzer.observe(sample), analyzer.assess())
    return log


def _climb() -> RunLog:
    """Return the log of a card that fills at an even pace, 21 to 66 GiB."""
    return _log(make_sample(t, make_device(round((21 + 45 * t / SECONDS) * GIB))) for t in range(SECONDS))


def _saw(use: Callable[[int], dict[str, int]]) -> RunLog:
    """Return the log of steps of 20 to 30 GiB, met at random moments."""
    chance = random.Random(2)
    return _log(
        make_sample(t, make_device(**use(round((20 + 10 * chance.random()) * GIB)))) for t in range(SECONDS)
    )


def _build(log: RunLog) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    reports = (
        build_oom(log, INPUT, Thresholds()),
        build_leak(log, INPUT, LeakRule()),
        build_profile(log, INPUT),
    )
    oom, leak, profile = (msgspec.to_builtins(it)["devices"]["0"] for it in reports)
    return oom, leak, profile


def test_a_straight_climb_is_told_by_every_report_as_by_the_live_view() -> None:
    log = _climb()
    oom, leak, profile = _build(log)
    assert oom["device_trend"] == leak["device_trend"] == profile["device_trend"]
    (assessment,) = log.assessments_of("GPU-0")
    assert assessment.device_trend is not None
    assert oom["device_trend"]["text"] == word_trend(assessment.device_trend, SECONDS - 1)[0]
    assert oom["device_trend"]["word"] == "filling"
    assert oom["risk_assessment"]["growth_rate_mb_per_sec"] == pytest.approx(
        leak["gpu_memory"]["growth_rate_mb_per_min"] / 60
    )
    assert oom["risk_assessment"]["time_to_full_seconds"] == oom["device_trend"]["full_in_s"]
    for report in (
        build_oom(log, INPUT, Thresholds()),
        build_leak(log, INPUT, LeakRule()),
        build_profile(log, INPUT),
    ):
        said = " ".join(describe_report(report, 100).split())
        assert "used memory filling, +3.9 GiB/min for 1" in said


def test_a_time_that_is_left_has_the_same_seconds_in_the_table_and_in_the_sentence() -> None:
    def climb(slope_gib: float) -> RunLog:
        levels = (round((20 + slope_gib * t) * GIB) for t in range(300))
        return _log(
            make_sample(t, make_device(used=level + GIB, allocated=level, reserved=level))
            for t, level in enumerate(levels)
        )

    for slope_gib in (0.1, 0.12, 0.14, 0.16):
        log = climb(slope_gib)
        report = build_oom(log, INPUT, Thresholds())
        (finding,) = report.findings
        said = describe_report(report, 200)
        known = re.search(r"\((\d+)-(\d+) s, ", finding.title)
        assert known is not None, finding.title
        low, high = (format_age(int(seconds)) for seconds in known.groups())
        assert f"{low}–{high}\n" in said


@pytest.mark.parametrize(
    "use",
    [
        lambda level: {"used": level},
        lambda level: {"allocated": level, "reserved": 32 * GIB, "used": 33 * GIB},
    ],
    ids=["driver only", "allocator"],
)
def test_a_flat_sawtooth_grows_in_no_report(use: Callable[[int], dict[str, int]]) -> None:
    oom, leak, _ = _build(_saw(use))
    assert oom["risk_assessment"]["growth_rate_mb_per_sec"] == 0.0
    assert oom["memory_trends"]["growth_rate_mb_per_sec"] == 0.0
    assert leak["gpu_memory"]["growth_rate_mb_per_min"] == 0.0
    assert leak["leak_risk"] == "low"


def _step_samples(kept_per_s: int, longer_per_s: int) -> RunLog:
    """Return the log of steps of 10 GiB over 20, met at random moments: what is kept, or a step, grows."""
    chance = random.Random(3)
    samples = []
    for t in range(SECONDS):
        level = 20 * GIB + kept_per_s * t + round(chance.random() * (10 * GIB + longer_per_s * t))
        most = 30 * GIB + (kept_per_s + longer_per_s) * t
        samples.append(make_sample(t, make_device(most + GIB, allocated=level, reserved=most)))
    return _log(samples)


def test_a_leak_has_about_the_same_rate_in_every_report_and_the_forecast_counts_on_it() -> None:
    oom, leak, _ = _build(_step_samples(kept_per_s=60 * MIB, longer_per_s=0))
    # Live tensors of 100 snapshots, device used of 30, and the line through all floors since the onset.
    assert leak["gpu_memory"]["growth_rate_mb_per_min"] / 60 == pytest.approx(60, rel=0.1)
    assert oom["risk_assessment"]["growth_rate_mb_per_sec"] == pytest.approx(60, rel=0.1)
    assert oom["processes"][0]["growth_rate_mb_per_sec"] == pytest.approx(60, rel=0.1)
    assert (leak["leak_risk"], oom["risk_assessment"]["reason"]) == ("high", "its floor grows")


def test_a_fast_climb_that_is_first_seen_in_peaks_grows_in_the_leak_report_too() -> None:
    rate = GIB
    levels = [round(20 * GIB + rate * tick / 10) for tick in range(500)]
    oom, leak, _ = _build(
        _log(
            make_sample(tick / 10, make_device(level + GIB, allocated=level, reserved=level), interval_s=0.1)
            for tick, level in enumerate(levels)
        )
    )
    assert oom["risk_assessment"]["reason"].startswith("its peaks grow")
    assert leak["gpu_memory"]["growth_rate_mb_per_min"] == pytest.approx(60 * rate / MIB, rel=0.02)
    assert (leak["leak_risk"], leak["open_leaks"]) == ("high", 0)


def test_steps_that_take_more_and_more_are_no_leak_in_any_report() -> None:
    oom, leak, _ = _build(_step_samples(kept_per_s=0, longer_per_s=60 * MIB))
    assert (leak["leak_risk"], leak["open_leaks"]) == ("low", 0)
    assert leak["gpu_memory"]["growth_rate_mb_per_min"] == pytest.approx(0.0, abs=60.0)
    assert oom["risk_assessment"]["reason"].startswith("its peaks grow")
    assert "leak" not in oom["risk_assessment"]["recommendation"]
