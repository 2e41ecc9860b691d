"""What a device used: newest, most and average, of the allocator where it tells and else of the device."""

import pytest

from vramscope.analyzers.usage import UsageAnalyzer, UsageSummary
from vramscope.engine.model import AllocatorReading, DeviceSample, MemoryReading, Sample
from vramscope.engine.units import GIB

from ..samples import device, sample


def summary_of(*samples: Sample) -> UsageSummary:
    analyzer = UsageAnalyzer()
    for each in samples:
        analyzer.observe(each)
    (summary,) = analyzer.summaries()
    return summary


def test_device_memory_alone_is_summed_up_as_device_used() -> None:
    summary = summary_of(*(sample(device(used), time_s=tick) for tick, used in enumerate([20, 60, 40])))
    assert summary.memory_source == "device"
    assert (summary.allocated_bytes, summary.peak_bytes, summary.peak_s) == (40 * GIB, 60 * GIB, 1.0)
    assert (summary.utilization_percent, summary.max_utilization_percent) == (50.0, 75.0)
    assert summary.average_utilization_percent == pytest.approx(50.0)
    assert (summary.headroom_bytes, summary.samples) == (20 * GIB, 3)
    assert (summary.first_s, summary.last_s) == (0.0, 2.0)
    assert summary.busy_percent is None
    assert summary.reserved_bytes is None


def test_the_allocators_figure_is_told_where_there_is_one_and_headroom_is_still_the_devices() -> None:
    reading = AllocatorReading(allocated_bytes=3 * GIB, allocated_max_bytes=9 * GIB, reserved_bytes=10 * GIB)
    memory = MemoryReading(total_bytes=80 * GIB, used_bytes=12 * GIB, used_max_bytes=13 * GIB)
    summary = summary_of(sample(DeviceSample("u", 0, allocator=reading, memory=memory)))
    assert summary.memory_source == "allocator"
    assert (summary.allocated_bytes, summary.peak_bytes) == (3 * GIB, 9 * GIB)
    assert (summary.peak_used_bytes, summary.headroom_bytes) == (13 * GIB, 67 * GIB)


def test_what_was_not_measured_is_none() -> None:
    summary = summary_of(sample(device(None, total_bytes=None)))
    unknown = ("allocated_bytes", "peak_bytes", "utilization_percent", "headroom_bytes", "memory_source")
    assert [getattr(summary, name) for name in unknown] == [None] * len(unknown)
    assert summary.samples == 1


def test_samples_in_which_the_device_is_not_well_are_not_counted() -> None:
    samples = [sample(device(40, state=state), time_s=tick) for tick, state in enumerate(["ok", "stale"])]  # type: ignore[arg-type]
    assert summary_of(*samples).samples == 1


def test_devices_of_two_nodes_are_told_apart() -> None:
    analyzer = UsageAnalyzer()
    analyzer.observe(sample(device(10)))
    analyzer.observe(Sample("m", 0, 0.0, 1.0, (device(30),)))
    assert [(one.node, one.used_bytes) for one in analyzer.summaries()] == [("n", 10 * GIB), ("m", 30 * GIB)]
