"""The report on leaks: each once, growth in the original's units, and a threshold that hides nothing."""

import json
from typing import Any

import msgspec
import pytest

from vramscope.analyzers.findings.evidence import GROWN, RATE, SOURCE
from vramscope.analyzers.findings.lifecycle import close_finding
from vramscope.engine.model import Evidence, Finding, RankSample
from vramscope.engine.model.finding import PROCESS_ENDED
from vramscope.exporters.json_lines import encode_report
from vramscope.exporters.reports.leak import LeakRule, TrackedSource, Tracking, build_leak
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.reports.text import describe_report

from .logs import DRIVER, GIB, MIB, make_device, make_finding, make_log, make_sample
from .shapes import check_shape

TWO_MIB_PER_S = 2 * MIB


def build(log: RunLog, rule: LeakRule | None = None, tracking: Tracking | None = None) -> dict[str, Any]:
    """Return the report as a reader of the file gets it."""
    report: dict[str, Any] = json.loads(encode_report(build_leak(log, DRIVER, rule or LeakRule(), tracking)))
    check_shape("leak", report)
    return report


def growing(seconds: int = 121) -> RunLog:
    """Return a log in which device 0 grows by 2 MiB a second, its process on the host by 1."""
    samples = []
    for t in range(seconds):
        rank = RankSample(pid=1, device_uuid="GPU-0", resident_bytes=GIB + t * MIB)
        device = make_device(10 * GIB + t * TWO_MIB_PER_S)
        samples.append(make_sample(t, device, make_device(GIB, index=1), ranks=(rank,)))
    return make_log(samples)


def make_leak(rate: float, *, opened_s: float = 50.0, source: str | None = None) -> Finding:
    """Return the finding of a leak of a rate in bytes a second."""
    evidence = [RATE(rate), GROWN(300 * MIB)]
    evidence += [] if source is None else [SOURCE(source)]
    return make_finding("leak", "low", opened_s=opened_s, evidence=tuple(evidence))


def test_growth_is_told_in_mib_and_minutes_for_device_and_host() -> None:
    device = build(growing())["devices"]["0"]
    assert device["gpu_memory"] == {
        "start_mb": 10240.0,
        "end_mb": 10480.0,
        "growth_rate_mb_per_min": pytest.approx(120.0),
        "total_growth_mb": 240.0,
    }
    assert device["python_memory"]["growth_rate_mb_per_min"] == pytest.approx(60.0)
    assert (device["duration_minutes"], device["data_points"]) == (2.0, 121)


def test_host_memory_that_nobody_tells_is_null() -> None:
    log = make_log(make_sample(t, make_device(GIB)) for t in range(20))
    assert set(build(log)["devices"]["0"]["python_memory"].values()) == {None}


@pytest.mark.parametrize(("threshold", "risk"), [(10.0, "high"), (119.0, "high"), (121.0, "low")])
def test_the_threshold_sets_the_plain_risk(threshold: float, risk: str) -> None:
    devices = build(growing(), LeakRule(threshold_mib_per_min=threshold))["devices"]
    assert devices["0"]["leak_risk"] == risk
    assert devices["1"]["leak_risk"] == "low"


def test_growth_that_is_no_leak_yet_is_said_with_its_rate_and_what_is_not_known() -> None:
    report = build(growing())
    device, host = report["recommendations"]
    assert device.startswith(
        "The used memory of device 0 grows by 120 MiB a minute, from 10.0 GiB to 10.2 GiB in 2 m 00 s; at "
        "this rate the device is full in "
    )
    assert "cannot distinguish a leak from a filling cache" in device
    assert host.startswith("The host memory of the processes on device 0 grows by 60 MiB a minute")
    text = " ".join(describe_report(build_leak(growing(), DRIVER, LeakRule()), 200).split())
    assert device in text
    assert "device over 10 MiB/min from" in text
    assert "0 yes 10,240.0 MiB" in text
    assert build(growing(), LeakRule(threshold_mib_per_min=1e6))["recommendations"] == []
    early = build(growing(20))["recommendations"]
    assert [it.rpartition(". ")[2] for it in early] == [
        "The job may still be starting: watch for some minutes"
    ]


def test_a_leak_that_was_found_is_not_said_twice() -> None:
    log = growing()
    log.take([make_leak(TWO_MIB_PER_S)])
    said = build(log)["recommendations"]
    assert said[0] == "act on leak"
    assert not any("used memory" in it for it in said)


@pytest.mark.parametrize(("because", "said"), [("growth has ended", []), (PROCESS_ENDED, ["act on leak"])])
def test_a_leak_that_ended_is_not_to_be_looked_for_unless_its_process_ended(
    because: str, said: list[str]
) -> None:
    log = growing()
    log.take([close_finding(make_leak(TWO_MIB_PER_S), 110.0, because)])
    assert build(log, LeakRule(threshold_mib_per_min=1e6))["recommendations"] == said


def test_the_threshold_never_hides_a_leak() -> None:
    log = growing()
    log.take([make_leak(TWO_MIB_PER_S)])
    report = build(log, LeakRule(threshold_mib_per_min=1e6))
    assert report["devices"]["0"]["leak_risk"] == "low"
    assert [it["kind"] for it in report["findings"]] == ["leak"]
    assert report["monitoring_summary"]["total_leaks_detected"] == 1


@pytest.mark.parametrize("seconds", [9, 40])
def test_before_ten_snapshots_and_most_of_a_minute_there_is_no_risk_to_tell(seconds: int) -> None:
    assert build(growing(seconds))["devices"]["0"]["leak_risk"] is None


def test_a_leak_that_is_published_again_counts_once() -> None:
    log = growing()
    for updated_s in (51.0, 60.0, 70.0):
        log.take([msgspec.structs.replace(make_leak(TWO_MIB_PER_S), updated_s=updated_s)])
    log.take([make_leak(TWO_MIB_PER_S, opened_s=90.0)])
    report = build(log)
    assert report["monitoring_summary"]["total_leaks_detected"] == 2
    assert report["monitoring_summary"]["leaks_by_device"] == {"0": 2}
    assert report["monitoring_summary"]["total_leaked_memory_mb"] == 600.0
    assert report["monitoring_summary"]["leak_rate_per_hour"] == pytest.approx(60.0)
    assert len(report["leak_events"]) == 2


@pytest.mark.parametrize(("rate_mib_min", "severity"), [(15, "medium"), (25, "high"), (55, "critical")])
def test_the_original_severity_is_the_rate_over_the_threshold(rate_mib_min: float, severity: str) -> None:
    log = growing()
    log.take([make_leak(rate_mib_min * MIB / 60)])
    report = build(log)
    (event,) = report["leak_events"]
    assert (event["severity"], event["device_id"]) == (severity, 0)
    assert event["leak_rate_mb_per_min"] == pytest.approx(rate_mib_min)
    assert event["leaked_memory_mb"] == 300.0
    assert report["findings"][0]["severity"] == "low"


def test_the_line_that_keeps_memory_is_a_potential_source() -> None:
    log = growing()
    log.take([make_leak(TWO_MIB_PER_S, source="evaluate() at train.py:212")])
    (event,) = build(log)["leak_events"]
    assert event["potential_sources"] == ["evaluate() at train.py:212"]


def test_what_tracking_found_stands_beside_the_leak_and_in_the_advice() -> None:
    found = TrackedSource(
        place="step() at train.py:9",
        file="train.py",
        line=9,
        function="step",
        grown_bytes=GIB,
        blocks=8,
        share=0.9,
    )
    log = growing()
    log.take([make_leak(TWO_MIB_PER_S)])
    report = build(log, tracking=Tracking(requested=True, active=True, sources=(found,)))
    assert report["leak_events"][0]["potential_sources"] == ["step() at train.py:9"]
    assert report["tracking"]["sources"][0]["line"] == 9
    evidence = report["findings"][0]["evidence"]
    assert evidence["source"] == {"value": "step() at train.py:9", "unit": ""}
    assert evidence["kept while watched"] == {"value": GIB, "unit": "bytes"}
    assert any("train.py:9" in advice for advice in report["recommendations"])


def test_times_without_dates_have_no_timestamp() -> None:
    log = make_log(
        msgspec.structs.replace(make_sample(t, make_device(GIB)), clock="trace") for t in range(20)
    )
    log.take([make_leak(TWO_MIB_PER_S, opened_s=7.0)])
    (event,) = build(log)["leak_events"]
    assert (event["timestamp"], event["time_s"]) == (None, 7.0)


def test_a_job_that_allocates_and_frees_in_each_step_is_no_risk() -> None:
    samples = [make_sample(t, make_device(allocated=(20 + t % 17) * GIB)) for t in range(160)]
    device = build(make_log(samples))["devices"]["0"]
    assert device["gpu_memory"]["total_growth_mb"] == 6 * 1024.0
    assert (device["gpu_memory"]["growth_rate_mb_per_min"], device["leak_risk"]) == (0.0, "low")


def test_what_one_process_keeps_is_no_source_of_the_leak_of_another() -> None:
    found = TrackedSource(
        pid=7, place="a.py:1", file="a.py", line=1, function="f", grown_bytes=GIB, blocks=8, share=0.9
    )
    log = growing()
    leak = make_leak(TWO_MIB_PER_S)
    log.take([msgspec.structs.replace(leak, evidence=(*leak.evidence, Evidence("process", 8)))])
    report = build(log, tracking=Tracking(requested=True, active=True, sources=(found,)))
    assert report["leak_events"][0]["potential_sources"] == []
    assert "source" not in report["findings"][0]["evidence"]
