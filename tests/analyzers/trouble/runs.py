"""Runs that troubles come over: healthy ones, and one for each kind of finding that lasts."""

import random
from collections.abc import Callable

from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.units import GIB, MIB

from ..divergence.jobs import job_of
from ..leak.courses import sawtooth, series, steps, used

TICKS = 600
LEAK = 60 * MIB
"""What a leak keeps of each step."""


def _steady() -> list[Sample]:
    source = random.Random(3)
    lengths = [source.uniform(4, 12) * GIB for _ in range(TICKS)]
    return list(steps([20.0 * GIB] * TICKS, lengths.__getitem__))


def _leaking() -> list[Sample]:
    return list(steps([20.0 * GIB + LEAK * tick for tick in range(TICKS)]))


def _steady_series() -> list[Sample]:
    return list(series(sawtooth([20.0 * GIB] * TICKS)))


def _leaking_series() -> list[Sample]:
    return list(series(sawtooth([20.0 * GIB + LEAK * tick for tick in range(TICKS)])))


def _steady_device() -> list[Sample]:
    return list(used([40.0 * GIB] * TICKS))


def _idle() -> list[Sample]:
    memory = MemoryReading(total_bytes=80 * GIB, used_bytes=40 * GIB, free_bytes=40 * GIB)
    device = DeviceSample("GPU-0", 0, memory=memory, utilization_percent=0.0)
    return [Sample("n", tick, 10.0 * tick, 10.0, (device,)) for tick in range(450)]


def _stranded() -> list[Sample]:
    allocator = AllocatorReading(
        allocated_bytes=65 * GIB, reserved_bytes=78 * GIB, inactive_split_bytes=12 * GIB, retries=0
    )
    memory = MemoryReading(total_bytes=80 * GIB, used_bytes=78 * GIB, free_bytes=2 * GIB)
    device = DeviceSample("GPU-0", 0, memory=memory)
    found = []
    for tick in range(TICKS):
        step = StepReading(tick + 1, 2.0 * tick)
        rank = RankSample(7, 1.0, device_uuid="GPU-0", allocator=allocator, step=step)
        found.append(Sample("n", tick, 2.0 * tick, 2.0, (device,), ranks=(rank,)))
    return found


def _steady_job() -> list[Sample]:
    source = random.Random(9)
    return job_of(lambda rank, time_s: (20.0, 50.0 + source.random()), 1000, ranks=range(2))


def _diverging() -> list[Sample]:
    def level(rank: int, time_s: float) -> tuple[float, float]:
        # In stairs that become lower: no leak, which would be straight, but further and further away.
        grown = 16.0 * (1 - 2.0 ** -(time_s // 120 / 5)) if rank else 0.0
        return 20.0 + grown, 60.0 + grown

    return job_of(level, 1000, ranks=range(2))


HEALTHY: dict[str, Callable[[], list[Sample]]] = {
    "steps": _steady,
    "series": _steady_series,
    "device": _steady_device,
    "job": _steady_job,
}
FAULTY: dict[str, tuple[Callable[[], list[Sample]], set[str]]] = {
    "leak": (_leaking, {"leak", "oom"}),
    "leak in a series": (_leaking_series, {"leak", "oom"}),
    "idle": (_idle, {"idle_held"}),
    "stranded": (_stranded, {"fragmentation"}),
    "diverging": (_diverging, {"divergence"}),
}
"""Runs with the kinds of finding that each has to open, once each."""
