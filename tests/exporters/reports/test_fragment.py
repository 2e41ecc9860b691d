"""The report on fragmentation: what an allocator tells, and nothing where none does."""

import json
from typing import Any

import msgspec
import pytest

from vramscope.analyzers.fragmentation import AllocationPattern, FragmentationAnalyzer
from vramscope.engine.model import AllocatorReading, RankSample, Sample, Segment, SegmentMap
from vramscope.exporters.json_lines import encode_report
from vramscope.exporters.reports.fragment import FragmentationFigures, build_fragment
from vramscope.exporters.reports.log import AllocationCounts, RunLog
from vramscope.exporters.reports.text import describe_report

from .logs import DRIVER, GIB, MIB, TOTAL, make_device, make_log, make_sample
from .shapes import check_shape


def build(log: RunLog, figures: list[FragmentationFigures]) -> dict[str, Any]:
    """Return the report as a reader of the file gets it."""
    report: dict[str, Any] = json.loads(encode_report(build_fragment(log, DRIVER, figures)))
    check_shape("fragment", report)
    return report


def make_job(stranded_gib: float, seconds: int = 60) -> list[Sample]:
    """Return a minute of a job that holds 40 GiB, of which so much is stranded."""
    samples = []
    for t in range(seconds):
        stranded = round(stranded_gib * GIB)
        allocator = AllocatorReading(
            allocated_bytes=20 * GIB,
            allocated_max_bytes=20 * GIB,
            reserved_bytes=40 * GIB,
            requested_bytes=19 * GIB,
            active_bytes=20 * GIB,
            inactive_split_bytes=stranded,
        )
        rank = RankSample(pid=7, started_s=1.0, device_uuid="GPU-0", allocator=allocator)
        samples.append(make_sample(t, make_device(41 * GIB, allocator=allocator), ranks=(rank,)))
    return samples


def measure(samples: list[Sample], *maps: SegmentMap) -> list[FragmentationFigures]:
    """Return what the analyzer says after some samples and maps."""
    analyzer = FragmentationAnalyzer()
    for sample in samples:
        analyzer.observe(sample)
    for segment_map in maps:
        analyzer.take_map(segment_map)
    return [FragmentationFigures(it, analyzer.trend(it.key)) for it in analyzer.readings()]


@pytest.mark.parametrize(
    ("stranded", "level", "priority"),
    [(2, "low", "low"), (18, "moderate", "medium"), (26, "high", "high"), (36, "severe", "urgent")],
)
def test_stranded_bytes_over_reserved_are_the_ratio(stranded: float, level: str, priority: str) -> None:
    samples = make_job(stranded)
    report = build(make_log(samples), measure(samples))
    device = report["devices"]["0"]
    metrics = device["current_metrics"]
    assert metrics["fragmentation_ratio"] == pytest.approx(stranded / 40)
    assert (metrics["fragmentation_level"], metrics["measure"]) == (level, "stranded")
    assert metrics["allocation_efficiency"] == 0.5
    assert metrics["defrag_benefit"] == pytest.approx(stranded * GIB / TOTAL)
    assert metrics["num_free_blocks"] is None
    assert device["recommendations"]["priority"] == priority
    assert device["pid"] == 7
    assert report["summary"]["fragmentation_distribution"][level] == 1
    assert report["summary"]["high_fragmentation_devices"] == ([0] if level in ("high", "severe") else [])


def test_what_cannot_be_separated_is_shown_together_in_the_text() -> None:
    allocator = AllocatorReading(
        allocated_bytes=20 * GIB, allocated_max_bytes=20 * GIB, reserved_bytes=40 * GIB
    )
    rank = RankSample(pid=7, started_s=1.0, device_uuid="GPU-0", allocator=allocator)
    samples = [make_sample(t, make_device(41 * GIB, allocator=allocator), ranks=(rank,)) for t in range(60)]
    report = build_fragment(make_log(samples), DRIVER, measure(samples))
    text = " ".join(describe_report(report, 80).split())
    assert (
        "stranded and cached bytes cannot be separated: both together are 50.0 % of what is reserved" in text
    )
    assert "unused_share" not in text


def test_a_segment_map_tells_of_blocks() -> None:
    segment = Segment(0, 64 * MIB, "large", 0, ((16 * MIB, 1), (8 * MIB, 0), (16 * MIB, 1), (24 * MIB, 0)))
    samples = make_job(2)
    metrics = build(make_log(samples), measure(samples, SegmentMap("node", 7, "GPU-0", 60.0, (segment,))))[
        "devices"
    ]["0"]["current_metrics"]
    assert metrics["num_free_blocks"] == 2
    assert metrics["largest_free_block_mb"] == 24.0
    assert metrics["fragmentation_ratio"] == pytest.approx(1 - 24 / 32)
    assert metrics["measure"] == "external"


def test_device_memory_alone_tells_nothing_and_the_report_says_why() -> None:
    samples = [make_sample(t, make_device(40 * GIB)) for t in range(30)]
    report = build(make_log(samples), measure(samples))
    device = report["devices"]["0"]
    assert device["current_metrics"]["fragmentation_ratio"] is None
    assert device["current_metrics"]["fragmentation_level"] is None
    assert "no allocator data" in device["current_metrics"]["reason"]
    assert device["trend_analysis"] == {}
    assert device["allocation_pattern"]["size_distribution"] == {}
    assert report["summary"]["fragmentation_distribution"]["unknown"] == 1
    assert report["summary"]["total_defrag_benefit"] is None


def test_a_pattern_is_told_in_the_original_classes() -> None:
    samples = make_job(2)
    (figures,) = measure(samples)
    sizes = {"small (<64MB)": 3, "medium (64MB-256MB)": 2, "large (256MB-1GB)": 1, "huge (>1GB)": 0}
    pattern = AllocationPattern(6, 100.0 * MIB, sizes)
    report = build(make_log(samples), [FragmentationFigures(figures.reading, figures.trend, pattern)])
    told = report["devices"]["0"]["allocation_pattern"]
    assert told["size_distribution"] == sizes
    assert told["average_allocation_size_mb"] == 100.0
    assert told["allocation_frequency"] is None


@pytest.mark.parametrize("stranded", [18, 26, 36])
def test_what_is_fragmented_has_recommendations_from_its_own_figures(stranded: float) -> None:
    samples = make_job(stranded)
    report = build(make_log(samples), measure(samples))
    advice = report["devices"]["0"]["recommendations"]
    assert f"{stranded:.1f} GiB is stranded" in advice["recommendations"][0]
    assert "expandable_segments:True" in advice["recommendations"][0]
    text = describe_report(build_fragment(make_log(samples), DRIVER, measure(samples)), 200)
    assert f"0: {advice['recommendations'][0]}" in " ".join(text.split())
    on = [
        msgspec.structs.replace(
            it, ranks=(msgspec.structs.replace(it.ranks[0], allocator_settings="expandable_segments:True"),)
        )
        for it in samples
    ]
    said = build(make_log(on), measure(on))["devices"]["0"]["recommendations"]["recommendations"][0]
    assert "expandable segments are on already" in said


def test_free_blocks_too_small_to_matter_are_not_urgent() -> None:
    segment = Segment(0, 64 * MIB, "large", 0, tuple((MIB, at % 2) for at in range(64)))
    samples = [
        make_sample(t, it.devices[0], ranks=(msgspec.structs.replace(it.ranks[0], allocator=small),))
        for t, it in enumerate(make_job(2))
        for small in [AllocatorReading(32 * MIB, 32 * MIB, 64 * MIB, 32 * MIB, 32 * MIB, 32 * MIB)]
    ]
    found = measure(samples, SegmentMap("node", 7, "GPU-0", 60.0, (segment,)))
    advice = build(make_log(samples), found)["devices"]["0"]["recommendations"]
    assert (advice["current_fragmentation_level"], advice["priority"]) == ("severe", "low")
    assert advice["recommendations"] == [
        "Only 32 MiB is free in pieces, under 1 % of the device: nothing to do"
    ]


def known_reading(sample: Sample) -> AllocatorReading:
    """Return what the only process of a sample tells."""
    reading = sample.ranks[0].allocator
    assert reading is not None
    return reading


def test_frequencies_are_the_counters_of_the_allocator_and_null_where_nobody_counts() -> None:
    bare = make_job(2)
    counted = []
    for t, it in enumerate(bare):
        told = msgspec.structs.replace(known_reading(it), allocations=1000 + 50 * t, frees=900 + 40 * t)
        counted.append(
            msgspec.structs.replace(it, ranks=(msgspec.structs.replace(it.ranks[0], allocator=told),))
        )
    names = ("allocation_frequency", "deallocation_frequency", "temporal_pattern")
    told = build(make_log(counted), measure(counted))["devices"]["0"]["allocation_pattern"]
    assert [told[name] for name in names] == [pytest.approx(50.0), pytest.approx(40.0), "steady"]
    unmeasured = build(make_log(bare), measure(bare))["devices"]["0"]["allocation_pattern"]
    assert [unmeasured[name] for name in names] == [None, None, None]


def test_a_process_that_begins_anew_and_bursts_are_counted_as_they_are() -> None:
    log = AllocationCounts(100)
    for t in range(80):
        count = 10 + (400 if t >= 40 else 0) + (0 if t < 60 else -400)
        allocator = AllocatorReading(allocations=count + t, frees=count)
        log.observe(float(t), (RankSample(pid=7, allocator=allocator),))
    assert log.pattern == "bursts"
    assert log.allocations_per_s == pytest.approx((400 + 78) / 79)
