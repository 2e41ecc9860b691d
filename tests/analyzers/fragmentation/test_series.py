"""Where only allocated and reserved bytes are known: cache is no finding, flushes at the limit are."""

import math

import msgspec
import pytest

from vramscope.analyzers.fragmentation import FragmentationAnalyzer
from vramscope.engine.model import AllocatorReading, DeviceSample, MemoryReading, Sample
from vramscope.engine.units import GIB

from ..restart import last_words, restart, watch


def tick(time_s: float, allocated_gib: float, reserved_gib: float) -> Sample:
    reserved = round(reserved_gib * GIB)
    memory = MemoryReading(total_bytes=80 * GIB, used_bytes=reserved, free_bytes=80 * GIB - reserved)
    allocator = AllocatorReading(allocated_bytes=round(allocated_gib * GIB), reserved_bytes=reserved)
    device = DeviceSample("GPU-0", 0, memory=memory, allocator=allocator)
    return Sample("n", int(time_s), time_s, 1.0, (device,))


def wave(time_s: float) -> float:
    """Return the allocated GiB of a job with steps of 10 s, from 20 to 40."""
    return 30 + 10 * math.sin(time_s * math.tau / 10)


def test_a_full_card_of_which_half_is_cache_is_no_finding() -> None:
    run = [tick(float(at), wave(at), 79.0) for at in range(3600)]
    assert watch(FragmentationAnalyzer(), run) == []


def test_caches_emptied_by_the_program_between_steps_are_no_finding() -> None:
    run = [tick(float(at), wave(at), 30.0 if at % 100 == 57 else 79.0) for at in range(3600)]
    assert watch(FragmentationAnalyzer(), run) == []


def flushing(seconds: int) -> list[Sample]:
    """Return a job that flushes its cache every 60 s at the peak of a step, and 15 GiB stay unused."""
    return [tick(float(at), wave(at), min(79.0, 55.0 + (at - 2) % 60)) for at in range(seconds)]


def test_flushes_at_the_limit_that_leave_much_unused_are_told_with_what_that_rests_on() -> None:
    (opened,) = watch(FragmentationAnalyzer(), flushing(1200))
    assert opened.severity == "medium"
    assert opened.title.startswith("GPU 0 flushes its cache at the limit, and 15")
    assert opened.method.startswith("Reserved memory fell from the limit")


@pytest.mark.parametrize("at", [100, 200, 500])
def test_a_restarted_worker_finds_the_same_flushes(at: int) -> None:
    run = flushing(1200)
    assert last_words(restart(FragmentationAnalyzer, run, at)) == last_words(
        watch(FragmentationAnalyzer(), run)
    )


def test_flushes_that_are_seen_long_after_say_nothing() -> None:
    run = [msgspec.structs.replace(sample, interval_s=5.0) for sample in flushing(1200)[::5]]
    assert watch(FragmentationAnalyzer(), run) == []


def test_a_reading_says_what_cannot_be_told_apart() -> None:
    analyzer = FragmentationAnalyzer()
    watch(analyzer, [tick(float(at), wave(at), 50.0) for at in range(100)])
    (reading,) = analyzer.readings()
    assert (reading.ratio, reading.measure, reading.stranded_bytes, reading.cached_bytes) == (
        None,
        "unused",
        None,
        None,
    )
    assert reading.unused_share == pytest.approx(0.2, abs=0.02)
    assert reading.utilization == pytest.approx(0.8, abs=0.02)
    assert "it mixes cache and fragmentation" in reading.method
    trend = analyzer.trend(reading.key)
    assert trend is not None
    assert trend.measure == "unused"


def test_device_memory_alone_gives_no_reading_of_an_allocator() -> None:
    analyzer = FragmentationAnalyzer()
    device = DeviceSample("GPU-0", 0, memory=MemoryReading(total_bytes=80 * GIB, used_bytes=79 * GIB))
    assert watch(analyzer, [Sample("n", at, float(at), 1.0, (device,)) for at in range(500)]) == []
    assert analyzer.readings() == ()
