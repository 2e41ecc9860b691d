"""Device pressure: opens once per crossing, says no more than device memory can tell, and closes."""

from collections.abc import Iterable

import msgspec
import pytest

from vramscope.analyzers.pressure import PressureAnalyzer
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    Finding,
    MemoryReading,
    ProcessReading,
    RankSample,
    Sample,
)
from vramscope.engine.units import GIB, MIB

from .samples import TOTAL, device, sample, series

NEARLY_FULL = 77.0
SCARCE = 79.8
BETWEEN = 74.5
RELIEVED = 60.0


def run(samples: Iterable[Sample], analyzer: PressureAnalyzer | None = None) -> list[Finding]:
    analyzer = analyzer or PressureAnalyzer()
    return [finding for each in samples for finding in analyzer.observe(each)]


def standing(findings: Iterable[Finding]) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings}


def evidence(finding: Finding) -> dict[str, object]:
    return {each.name: each.value for each in finding.evidence}


def test_opens_after_ten_seconds_nearly_full() -> None:
    samples = series([RELIEVED] * 5 + [NEARLY_FULL] * 30, start_s=100)
    assert run(samples[:15]) == []
    (opened,) = run(samples)
    assert (opened.kind, opened.severity, opened.opened_s, opened.device) == ("pressure", "low", 115.0, "0")
    assert opened.is_open
    assert opened.title == "GPU 0 nearly full: 77.0 of 80.0 GiB used and 3.0 GiB free at its peak"
    assert evidence(opened)["nearly full since"] == 105.0
    assert "without allocator data, cache and need look the same" in opened.advice


@pytest.mark.parametrize(
    ("live", "reserved", "stranded", "advice"),
    [
        (40, 74, 0, "can still use 34.0 GiB of its cache"),
        (73, 74, 1, "is left to free: lower the micro-batch"),
        (20, 74, 52, "try PYTORCH_ALLOC_CONF=expandable_segments:True"),
        (10, 12, 1, "end other processes on the device"),
    ],
)
def test_the_advice_uses_what_a_probe_tells(live: int, reserved: int, stranded: int, advice: str) -> None:
    allocator = AllocatorReading(
        allocated_bytes=live * GIB, reserved_bytes=reserved * GIB, inactive_split_bytes=stranded * GIB
    )
    rank = RankSample(pid=7, started_s=1.0, device_uuid="GPU-0", allocator=allocator)
    samples = series([NEARLY_FULL] * 30)
    told = [msgspec.structs.replace(each, ranks=(rank,)) for each in samples]
    (opened,) = run(told)
    assert f"live tensors {live}.0 GiB" in opened.advice
    assert advice in opened.advice
    assert "without allocator data" not in opened.advice
    # A probe that attaches to a job later changes the advice of the finding that is open.
    before, after = run([*samples[:15], *told[15:]])
    assert "without allocator data" in before.advice
    assert (after.id, after.advice) == (before.id, opened.advice)


def test_healthy_job_below_the_threshold_is_left_alone() -> None:
    assert run(series([93 / 100 * 80] * 600)) == []


@pytest.mark.parametrize(("percent", "count"), [(95.0, 0), (75.0, 1)])
def test_a_device_that_jax_preallocates_whole_is_full_on_purpose(percent: float, count: int) -> None:
    process = ProcessReading(41, used_bytes=int(percent / 100 * 80 * GIB), preallocated_percent=percent)
    full = msgspec.structs.replace(device(NEARLY_FULL), processes=(process,))
    assert len(run([msgspec.structs.replace(each, devices=(full,)) for each in series([0.0] * 30)])) == count


def test_spike_of_a_tick_does_not_ring_but_is_kept_as_the_peak() -> None:
    assert run(series(([RELIEVED] * 8 + [79.9]) * 20)) == []
    spike = series([NEARLY_FULL] * 5 + [79.5] + [NEARLY_FULL] * 20)
    assert evidence(run(spike)[0])["peak device used"] == round(79.5 * GIB)


def test_most_within_the_tick_decides() -> None:
    memory = MemoryReading(total_bytes=TOTAL, used_bytes=40 * GIB, used_max_bytes=78 * GIB)
    busy = msgspec.structs.replace(device(), memory=memory)
    (opened,) = run(sample(busy, time_s=tick) for tick in range(20))
    assert evidence(opened)["peak device used"] == 78 * GIB


def test_ten_hertz_needs_ten_seconds_and_slow_ticks_need_three() -> None:
    assert run(series([NEARLY_FULL] * 99, step_s=0.1)) == []
    assert len(run(series([NEARLY_FULL] * 105, step_s=0.1))) == 1
    slow = [sample(device(NEARLY_FULL), time_s=60.0 * tick, interval_s=60.0) for tick in range(3)]
    assert run(slow[:2]) == []
    assert len(run(slow)) == 1


def test_severity_rises_when_little_is_free_and_never_above_medium() -> None:
    samples = series([NEARLY_FULL] * 20 + [SCARCE] * 20 + [80.0] * 20)
    findings = run(samples)
    assert {finding.severity for finding in findings} == {"low", "medium"}
    assert len(standing(findings)) == 1
    assert findings[-1].severity == "medium"
    assert "NCCL" in findings[-1].advice
    assert evidence(findings[-1])["least free"] == 0


def test_free_is_what_the_driver_says_when_the_most_was_used() -> None:
    memory = MemoryReading(
        total_bytes=TOTAL, used_bytes=77 * GIB, used_max_bytes=78 * GIB, free_bytes=2 * GIB + 400 * MIB
    )
    busy = msgspec.structs.replace(device(), memory=memory)
    (opened,) = run(sample(busy, time_s=tick) for tick in range(12))
    assert opened.title == "GPU 0 nearly full: 78.0 of 80.0 GiB used and 1.4 GiB free at its peak"
    assert evidence(opened)["least free"] == GIB + 400 * MIB
    reserved = msgspec.structs.replace(memory, used_bytes=78 * GIB, free_bytes=100 * MIB)
    scarce = msgspec.structs.replace(device(), memory=reserved)
    found = run(sample(scarce, time_s=tick) for tick in range(12))
    assert found[-1].severity == "medium"
    assert "100 MiB free" in found[-1].title


def test_little_that_is_free_is_nearly_full_however_much_the_driver_keeps() -> None:
    memory = MemoryReading(total_bytes=TOTAL, used_bytes=70 * GIB, free_bytes=200 * MIB)
    kept = msgspec.structs.replace(device(), memory=memory)
    (opened,) = run(sample(kept, time_s=tick) for tick in range(12))
    assert evidence(opened)["least free"] == 200 * MIB


def test_severity_falls_again_while_still_nearly_full() -> None:
    findings = run(series([SCARCE] * 20 + [NEARLY_FULL] * 20))
    assert [finding.severity for finding in findings] == ["medium", "low"]


def test_small_instance_counts_the_bytes_that_are_free() -> None:
    total = 4 * GIB
    tight = sample(device((total - 200 * MIB) / GIB, kind="mig", mig_index=0, total_bytes=total))
    samples = [msgspec.structs.replace(tight, time_s=float(tick)) for tick in range(20)]
    (opened,) = run(samples)
    assert opened.severity == "medium"
    assert opened.title.startswith("MIG 0:0 nearly full")


def test_closes_after_ten_seconds_relieved_and_says_when() -> None:
    samples = series([NEARLY_FULL] * 20 + [RELIEVED] * 20, start_s=1000)
    opened, closed = run(samples)
    assert closed.id == opened.id
    assert (closed.closed_s, closed.updated_s, closed.is_open) == (1030.0, 1030.0, False)
    assert "92 %" in str(evidence(closed)["closed because"])


def test_between_the_thresholds_nothing_changes() -> None:
    assert len(run(series([NEARLY_FULL] * 20 + [BETWEEN] * 200 + [NEARLY_FULL] * 50))) == 1
    assert run(series([BETWEEN] * 200)) == []


def test_second_crossing_opens_a_second_finding() -> None:
    findings = run(series(([NEARLY_FULL] * 15 + [RELIEVED] * 15) * 2))
    assert [finding.is_open for finding in findings] == [True, False, True, False]
    assert len(standing(findings)) == 2


def test_peak_is_published_when_it_rose_by_a_whole_step() -> None:
    findings = run(series([76.5] * 20 + [76.9] * 20 + [77.4] * 20))
    assert [evidence(finding)["peak device used"] for finding in findings] == [
        round(76.5 * GIB),
        round(77.4 * GIB),
    ]


def test_what_is_free_is_published_when_it_halves() -> None:
    findings = run(series([79.8] * 20 + [79.85] * 20 + [79.95] * 20 + [80.0] * 40))
    assert [evidence(finding)["least free"] for finding in findings] == [
        80 * GIB - round(79.8 * GIB),
        80 * GIB - round(79.95 * GIB),
        0,
    ]


def test_each_device_stands_alone_and_parent_and_instance_too() -> None:
    devices = [
        (device(NEARLY_FULL), device(9.9, kind="mig", mig_index=1, total_bytes=10 * GIB), device(index=2))
    ] * 20
    opened = run(sample(*each, time_s=tick) for tick, each in enumerate(devices))
    assert [finding.device for finding in opened] == ["0", "0:1"]


@pytest.mark.parametrize("odd", [device(None), device(79.9, total_bytes=None), device(1.0, total_bytes=0)])
def test_without_a_figure_or_a_capacity_nothing_is_said(odd: DeviceSample) -> None:
    assert run(sample(odd, time_s=tick) for tick in range(60)) == []


def test_stale_figures_neither_open_nor_close() -> None:
    stale = [sample(device(NEARLY_FULL, state="stale"), time_s=tick) for tick in range(60)]
    assert run(stale) == []
    analyzer = PressureAnalyzer()
    assert len(run(series([NEARLY_FULL] * 20), analyzer)) == 1
    later = [sample(device(RELIEVED, state="stale"), time_s=20 + tick) for tick in range(60)]
    assert run(later, analyzer) == []
    (closed,) = run(series([RELIEVED] * 15, start_s=80), analyzer)
    assert closed.closed_s == 90.0


@pytest.mark.parametrize(
    ("devices", "because"),
    [
        ((device(NEARLY_FULL, state="lost"),), "the device was lost"),
        ((), "the device is no longer listed"),
    ],
)
def test_device_that_goes_closes_its_finding(devices: tuple[DeviceSample, ...], because: str) -> None:
    analyzer = PressureAnalyzer()
    run(series([NEARLY_FULL] * 20), analyzer)
    gone = [sample(*devices, time_s=20 + tick) for tick in range(20)]
    assert run(gone[:9], analyzer) == []
    (closed,) = run(gone[9:], analyzer)
    assert evidence(closed)["closed because"] == because
    assert run(series([NEARLY_FULL] * 5, start_s=40), analyzer) == []


def test_device_that_is_gone_for_a_moment_keeps_its_finding() -> None:
    gone = [sample(time_s=20 + tick) for tick in range(5)]
    findings = run([*series([NEARLY_FULL] * 20), *gone, *series([NEARLY_FULL] * 40, start_s=25)])
    assert len(findings) == 1


def test_gap_starts_the_dwell_anew() -> None:
    halves = series([NEARLY_FULL] * 8) + series([NEARLY_FULL] * 8, start_s=60)
    assert run(halves) == []
    assert len(run([*halves, *series([NEARLY_FULL] * 4, start_s=68)])) == 1


def test_duplicate_and_late_samples_change_nothing() -> None:
    samples = series([RELIEVED] * 5 + [NEARLY_FULL] * 30 + [RELIEVED] * 20)
    doubled = [each for one in samples for each in (one, one)]
    late = [each for tick, one in enumerate(samples) for each in (one, *samples[max(0, tick - 2) : tick])]
    assert run(doubled) == run(samples) == run(late)


def test_clock_that_was_set_back_does_not_silence_the_analyzer() -> None:
    analyzer = PressureAnalyzer()
    (opened,) = run(series([NEARLY_FULL] * 20, start_s=10_000), analyzer)
    (closed,) = run(series([RELIEVED] * 20, start_s=100), analyzer)
    assert closed.id == opened.id
    assert closed.closed_s is not None
    assert closed.closed_s >= closed.opened_s


def test_clock_set_back_in_the_middle_of_a_dwell_starts_it_anew() -> None:
    analyzer = PressureAnalyzer()
    assert run(series([NEARLY_FULL] * 5, start_s=10_000), analyzer) == []
    (opened,) = run(series([NEARLY_FULL] * 20, start_s=100), analyzer)
    assert opened.opened_s == 110.0


def test_changed_capacity_is_published_and_measured_against() -> None:
    halved = [sample(device(39.0, total_bytes=40 * GIB), time_s=20 + tick) for tick in range(5)]
    opened, changed = run([*series([NEARLY_FULL] * 20), *halved])
    assert changed.id == opened.id
    assert evidence(changed)["capacity"] == 40 * GIB
    assert evidence(changed)["peak device used"] == 39 * GIB


def test_shared_host_memory_is_named_as_such() -> None:
    (opened,) = run(sample(device(NEARLY_FULL, kind="unified"), time_s=tick) for tick in range(20))
    assert "host" in opened.advice
    assert "Host memory" in opened.method


def test_restored_finding_is_not_opened_twice_and_closes() -> None:
    samples = series([NEARLY_FULL] * 40 + [RELIEVED] * 20)
    (opened,) = run(samples[:30])
    analyzer = PressureAnalyzer()
    analyzer.restore([opened])
    (closed,) = run(samples[20:], analyzer)
    assert closed == run(samples)[-1]


def test_restore_ignores_what_is_closed_or_of_another_kind() -> None:
    opened, closed = run(series([NEARLY_FULL] * 20 + [RELIEVED] * 20))
    analyzer = PressureAnalyzer()
    analyzer.restore([closed, msgspec.structs.replace(opened, kind="leak")])
    assert run(series([RELIEVED] * 30, start_s=100), analyzer) == []


def test_ring_older_than_a_restored_finding_does_not_close_it() -> None:
    samples = series([RELIEVED] * 40 + [NEARLY_FULL] * 40)
    opened = run(samples)
    analyzer = PressureAnalyzer()
    analyzer.restore(opened)
    assert run(samples, analyzer) == []


def test_restored_severity_is_kept_and_not_published_again() -> None:
    samples = series([SCARCE] * 60)
    opened = run(samples[:20])
    assert [finding.severity for finding in opened] == ["medium"]
    analyzer = PressureAnalyzer()
    analyzer.restore(opened)
    assert run(samples[20:], analyzer) == []


def test_a_successor_that_is_fed_the_ring_keeps_the_peak_that_the_finding_has() -> None:
    samples = series([SCARCE] * 15 + [BETWEEN] * 25)
    *_, calmed = run(samples[:30])
    assert calmed.severity == "low"
    analyzer = PressureAnalyzer()
    analyzer.restore([calmed])
    assert run(samples, analyzer) == []


def test_memory_stays_bounded_while_devices_come_and_go() -> None:
    analyzer = PressureAnalyzer()
    for tick in range(500):
        analyzer.observe(sample(device(NEARLY_FULL, index=tick), time_s=tick))
    assert len(analyzer._tracks) == 1


def test_a_device_without_free_memory_is_never_low() -> None:
    findings = run(series([NEARLY_FULL] * 15 + [80.0] * 20))
    assert [(it.severity, evidence(it)["least free"]) for it in findings] == [
        ("low", 3 * GIB),
        ("medium", 0),
    ]
    (spiked, *_) = run(series([NEARLY_FULL] * 5 + [80.0] + [NEARLY_FULL] * 20))
    assert (spiked.severity, evidence(spiked)["least free"]) == ("medium", 0)


def test_a_finding_that_is_low_again_speaks_of_what_is_free_since() -> None:
    *_, calmed = run(series([80.0] * 20 + [NEARLY_FULL] * 20))
    assert (calmed.severity, evidence(calmed)["least free"]) == ("low", 3 * GIB)
    assert "3.0 GiB free" in calmed.title
