"""Courses of memory, as a series samples them and as a probe tells of their steps."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from vramscope.engine.model import (
    AllocatorReading,
    Analyzer,
    DeviceSample,
    Finding,
    HostSample,
    MemoryReading,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.units import GIB

CAPACITY = 80 * GIB
PID, STARTED_S = 4711, 5.0


def series(allocated: Iterable[float], *, interval_s: float = 1.0, start_s: float = 0.0) -> Iterator[Sample]:
    """Yield samples of one device whose allocator holds so many bytes, one a tick."""
    memory = MemoryReading(total_bytes=CAPACITY)
    for tick, level in enumerate(allocated):
        device = DeviceSample(
            "GPU-0", 0, memory=memory, allocator=AllocatorReading(allocated_bytes=round(level))
        )
        yield Sample("n", tick, start_s + tick * interval_s, interval_s, (device,))


def used(levels: Iterable[float]) -> Iterator[Sample]:
    """Yield samples of one device of which device used alone is known, one a second."""
    for tick, level in enumerate(levels):
        memory = MemoryReading(total_bytes=CAPACITY, used_bytes=round(level))
        yield Sample("n", tick, float(tick), 1.0, (DeviceSample("GPU-0", 0, memory=memory),))


def steps(
    floors: Sequence[float],
    activations: Callable[[int], float] = lambda step: 10.0 * GIB,
    *,
    started_s: float = STARTED_S,
    start_s: float = 0.0,
    resident: Callable[[int], float] = lambda step: 4.0 * GIB,
) -> Iterator[Sample]:
    """Yield samples of one rank that ends a step each second, with those floors and activations on top."""
    reserved = 0
    for tick, level in enumerate(floors):
        time_s = start_s + tick
        floor, peak = round(level), round(level + activations(tick))
        reserved = max(reserved, peak)
        rank = RankSample(
            PID,
            started_s,
            device_uuid="GPU-0",
            backend="cuda",
            allocator=AllocatorReading(allocated_bytes=floor, reserved_bytes=reserved),
            resident_bytes=round(resident(tick)),
            step=StepReading(tick + 1, time_s, 1.0, floor, peak, True),
            steps_within=1,
            floor_min_bytes=floor,
            peak_max_bytes=peak,
        )
        memory = MemoryReading(total_bytes=CAPACITY, used_bytes=reserved, free_bytes=CAPACITY - reserved)
        device = DeviceSample("GPU-0", 0, memory=memory)
        host = HostSample(total_bytes=512 * GIB, available_bytes=400 * GIB)
        yield Sample("n", tick, time_s, 1.0, (device,), host, (rank,))


def sawtooth(floors: Iterable[float], height: float = 10.0 * GIB, seed: int = 7) -> Iterator[float]:
    """Yield what is met at a random moment of steps with those floors."""
    source = random.Random(seed)
    for floor in floors:
        yield floor + height * max(0.0, 1 - 2 * source.random())


def watch(analyzer: Analyzer, samples: Iterable[Sample]) -> list[Finding]:
    """Return everything that an analyzer published."""
    return [finding for sample in samples for finding in analyzer.observe(sample)]
