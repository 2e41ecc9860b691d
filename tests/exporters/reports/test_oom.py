"""The report on the risk: a forecast where there is one, the thresholds elsewhere, and which it is."""

import json
from typing import Any

import pytest

from vramscope.engine.model import RankSample
from vramscope.exporters.json_lines import encode_report
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.oom import Thresholds, build_oom

from .logs import DRIVER, GIB, MIB, make_assessment, make_device, make_finding, make_log, make_sample
from .shapes import check_shape

STEADY, WINDOW = 40, 30


def build(log: RunLog, thresholds: Thresholds | None = None) -> dict[str, Any]:
    """Return the report as a reader of the file gets it."""
    report: dict[str, Any] = json.loads(encode_report(build_oom(log, DRIVER, thresholds or Thresholds())))
    check_shape("oom", report)
    return report


def risk_of(log: RunLog, thresholds: Thresholds | None = None) -> dict[str, Any]:
    """Return the risk of device 0."""
    risk: dict[str, Any] = build(log, thresholds)["devices"]["0"]["risk_assessment"]
    return risk


def steady(used_gib: float, growth_mib_per_s: float = 0.0) -> RunLog:
    """Return a log of forty seconds that ends at a use of a device."""
    used = [used_gib * GIB - (STEADY - 1 - t) * growth_mib_per_s * MIB for t in range(STEADY)]
    return make_log(make_sample(t, make_device(round(used[t]))) for t in range(STEADY))


@pytest.mark.parametrize(
    ("used_gib", "growth", "level", "confidence"),
    [
        (76.0, 0.0, "critical", 0.9),
        (68.0, 0.0, "medium", 0.6),
        (72.0, 200.0, "high", 0.8),
        (40.0, 11.0, "medium", 0.5),
        (40.0, 9.0, "low", 0.3),
    ],
)
def test_device_memory_alone_is_judged_by_its_usage(
    used_gib: float, growth: float, level: str, confidence: float
) -> None:
    risk = risk_of(steady(used_gib, growth))
    assert (risk["risk_level"], risk["confidence"]) == (level, confidence)
    assert (risk["basis"], risk["forecast"]) == ("threshold", "unknown")
    assert risk["predicted_oom_time_seconds"] is None
    assert risk["growth_rate_mb_per_sec"] == pytest.approx(growth, abs=0.01)


@pytest.mark.parametrize(("used_gib", "growth"), [(79.0, 0.0), (72.0, 200.0)])
def test_a_full_device_whose_allocator_is_unknown_is_to_be_looked_into_and_not_emptied(
    used_gib: float, growth: float
) -> None:
    (said,) = build(steady(used_gib, growth))["recommendations"]
    assert "`vramscope run` (or `vramscope attach PID`)" in said
    assert "free memory" not in said
    assert "batch" not in said


def test_a_device_that_is_full_of_tensors_needs_less_of_them() -> None:
    full = make_device(79 * GIB, allocated=76 * GIB, reserved=78 * GIB)
    log = make_log(make_sample(t, full) for t in range(STEADY))
    said = risk_of(log, Thresholds(85.0, 95.0, is_given=True))["recommendation"]
    assert said == "The device is almost full: free memory, or reduce the batch size"


def test_growth_of_device_memory_says_when_it_is_full_and_not_when_a_job_fails() -> None:
    risk = risk_of(steady(72.0, 200.0))
    assert risk["time_to_full_seconds"] == pytest.approx(8 * 1024 / 200, rel=0.01)
    assert risk["predicted_oom_time_seconds"] is None


def test_thresholds_are_the_flags() -> None:
    assert risk_of(steady(40.0), Thresholds(50.0, 60.0))["risk_level"] == "medium"
    assert risk_of(steady(40.0), Thresholds(40.0, 50.0))["risk_level"] == "critical"


def test_few_samples_make_the_rule_less_sure() -> None:
    log = make_log(make_sample(t, make_device(76 * GIB)) for t in range(3))
    assert risk_of(log)["confidence"] == pytest.approx(0.9 * 3 / WINDOW)


def test_a_forecast_decides_whatever_the_usage_is() -> None:
    log = steady(76.0)
    log.take(
        [make_finding("oom", "medium")],
        [
            make_assessment(
                "medium",
                confidence=0.93,
                probability=0.4,
                horizon_s=300.0,
                oom_in_s=420.0,
                oom_in_low_s=300.0,
                oom_in_high_s=600.0,
                growth_bytes_per_s=3.0 * MIB,
            )
        ],
    )
    report = build(log)
    risk = report["devices"]["0"]["risk_assessment"]
    assert (risk["risk_level"], risk["basis"], risk["forecast"]) == ("medium", "forecast", "medium")
    assert (risk["confidence"], risk["probability"], risk["growth_rate_mb_per_sec"]) == (0.93, 0.4, 3.0)
    times = [risk[f"predicted_oom_time{end}_seconds"] for end in ("_low", "", "_high")]
    # Forecast at 5 s; the newest sample is of 39 s.
    assert times == [266.0, 386.0, 566.0]
    assert risk["recommendation"] == "act on oom"
    assert report["recommendations"] == ["act on oom"]


def test_thresholds_that_were_given_outweigh_a_calm_forecast() -> None:
    log = steady(76.0)
    log.take([], [make_assessment("low", probability=0.01)])
    assert risk_of(log)["risk_level"] == "low"
    risk = risk_of(log, Thresholds(75.0, 95.0, is_given=True))
    assert (risk["risk_level"], risk["basis"], risk["forecast"]) == ("critical", "threshold", "low")
    assert risk["probability"] == 0.01
    assert "the forecast is low" in risk["reason"]
    below = risk_of(log, Thresholds(96.0, 98.0, is_given=True))
    assert (below["risk_level"], below["basis"]) == ("low", "forecast")


def test_the_process_that_stands_worst_speaks_for_its_device() -> None:
    samples = [make_sample(t, make_device(GIB)) for t in range(STEADY - 1)]
    ranks = tuple(RankSample(pid=pid, device_uuid="GPU-0") for pid in (1, 2))
    gone = RankSample(pid=3, device_uuid="GPU-0", state="ended")
    log = make_log([*samples, make_sample(STEADY, make_device(GIB), ranks=(*ranks, gone))])
    log.take(
        [],
        [
            make_assessment("low", pid=1, rank=0),
            make_assessment("high", pid=2, rank=1),
            make_assessment("critical", pid=3, rank=2),
        ],
    )
    device = build(log)["devices"]["0"]
    assert device["risk_assessment"]["risk_level"] == "high"
    assert [(it["pid"], it["risk_level"]) for it in device["processes"]] == [(1, "low"), (2, "high")]


def test_a_forecast_that_does_not_know_yet_leaves_the_word_to_the_thresholds() -> None:
    log = steady(76.0)
    log.take([], [make_assessment("unknown", reason="too few steps")])
    risk = risk_of(log)
    assert (risk["risk_level"], risk["basis"], risk["reason"]) == ("critical", "threshold", "too few steps")


def test_a_device_that_tells_nothing_is_unknown_and_counted_so() -> None:
    report = build(make_log([make_sample(0, make_device())]))
    assert report["devices"]["0"]["risk_assessment"]["risk_level"] == "unknown"
    assert report["devices"]["0"]["memory_trends"] == {}
    assert report["risk_summary"]["risk_distribution"]["unknown"] == 1


def test_the_summary_counts_devices_by_risk() -> None:
    samples = [
        make_sample(t, make_device(78 * GIB), make_device(GIB, index=1), make_device(GIB, index=2))
        for t in range(STEADY)
    ]
    summary = build(make_log(samples))["risk_summary"]
    assert summary["risk_distribution"] == {"low": 2, "medium": 0, "high": 0, "critical": 1, "unknown": 0}
    assert summary["high_risk_devices"] == [0]
    assert summary["monitoring_duration_hours"] == pytest.approx(39 / 3600)


def test_trends_span_the_newest_ten_minutes() -> None:
    log = make_log(make_sample(t, make_device((t // 100 + 1) * GIB)) for t in range(0, 1000, 10))
    trend = build(log)["devices"]["0"]["memory_trends"]
    assert (trend["start_time"], trend["end_time"], trend["data_points"]) == (390.0, 990.0, 61)
    assert (trend["min_memory"], trend["max_memory"]) == (4 * GIB, 10 * GIB)


def test_only_findings_about_running_out_are_told() -> None:
    log = steady(10.0)
    log.take([make_finding("leak"), make_finding("retries", opened_s=6.0), make_finding("oom", opened_s=7.0)])
    assert [it["kind"] for it in build(log)["findings"]] == ["retries", "oom"]


def test_what_every_step_allocates_is_no_growth_of_the_device() -> None:
    log = make_log(make_sample(t, make_device(allocated=(20 + t) * GIB)) for t in range(STEADY))
    assert risk_of(log, Thresholds(90.0, 95.0))["risk_level"] == "low"
    hasty = make_log(
        make_sample(t / 10, make_device((20 + t) * GIB), interval_s=0.1) for t in range(STEADY // 2)
    )
    assert risk_of(hasty)["risk_level"] == "low"


def test_a_finding_that_says_more_than_the_forecast_decides_as_in_the_live_view() -> None:
    log = steady(40.0)
    fragmented = make_finding("fragmentation", "high", opened_s=20.0)
    log.take([fragmented], [make_assessment("low", reason="steady below the limit", confidence=0.7)])
    risk = risk_of(log)
    assert (risk["risk_level"], risk["forecast"], risk["basis"]) == ("high", "high", "finding")
    assert (risk["reason"], risk["recommendation"]) == (fragmented.title, fragmented.advice)
    assert risk["confidence"] is None


def test_growth_of_a_device_is_that_of_all_its_processes_and_none_of_their_peaks() -> None:
    log = steady(40.0)
    ranks = tuple(RankSample(pid=pid, device_uuid="GPU-0", state="ok") for pid in (7, 8, 9))
    log.observe(make_sample(STEADY, make_device(40 * GIB, allocated=30 * GIB), ranks=ranks))
    words = [make_assessment("low", pid=pid, growth_bytes_per_s=pid * float(MIB)) for pid in (7, 8)]
    peaks = make_assessment("medium", pid=9, growth_bytes_per_s=50.0 * MIB, is_growth_of_peaks=True)
    log.take((), [*words, peaks])
    risk = risk_of(log)
    assert risk["growth_rate_mb_per_sec"] == pytest.approx(15.0)
    assert risk["peak_growth_rate_mb_per_sec"] == pytest.approx(50.0)
