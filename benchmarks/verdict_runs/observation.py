"""From the steps of processes to samples: what a hub, or the reader of a series, would have seen of them."""

from collections.abc import Iterator, Sequence

import numpy as np

from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    HostSample,
    MemoryReading,
    RankSample,
    Sample,
    StepReading,
)

from .job import CONTEXT_BYTES, GIB
from .life import Life
from .shape import EPOCH_S, Shape
from .surroundings import Surroundings
from .ticks import Ticks, tick_life

NODE, UUID, FIRST_PID = "bench", "GPU-00000000-0000-0000-0000-000000000001", 4000
HOST_BYTES = 512 * GIB
CHUNK = 4096


def observe_lives(
    lives: Sequence[Life], shape: Shape, surroundings: Surroundings, duration_s: float, seed: int
) -> Iterator[Sample]:
    """Yield the samples of a run; between two processes the card is empty but for others.

    Args:
        lives: The processes, one after another.
        shape: How they are seen.
        surroundings: What is around them.
        duration_s: Seconds of the run.
        seed: Of the phase at which the first sample is taken, and of the scatter of the later ones.
    """
    rng = np.random.default_rng(seed)
    count = int(duration_s / shape.interval_s)
    offset = rng.uniform(0.02, 0.98) * shape.interval_s
    times = offset + shape.interval_s * (np.arange(count) + rng.uniform(-shape.jitter, shape.jitter, count))
    times = np.sort(times[(times > 0) & (times < duration_s)])
    if shape.gaps:
        times = times[rng.random(len(times)) >= shape.gaps]
    earlier = np.concatenate(([0.0], times[:-1]))
    makers = {"live": _make_live, "series": _make_series, "device": _make_device}
    seq = 0
    for number, life in enumerate(lives):
        start = np.searchsorted(times, life.start_s)
        end = np.searchsorted(times, life.end_s)
        before = int(np.searchsorted(times, lives[number - 1].end_s)) if number else 0
        for at in range(before, start):
            seq += 1
            yield _make_empty(life, shape, surroundings, float(times[at]), seq)
        for first in range(start, end, CHUNK):
            rows = slice(first, min(first + CHUNK, end))
            ticks = tick_life(life, surroundings, times[rows], earlier[rows], rng)
            for at in range(len(ticks.times_s)):
                seq += 1
                yield makers[shape.kind](life, shape, ticks, at, seq, FIRST_PID + number)


def _measure_memory(life: Life, ticks: Ticks, at: int) -> MemoryReading:
    used = min(CONTEXT_BYTES + ticks.reserved[at] + ticks.others[at], life.job.capacity_bytes)
    return MemoryReading(life.job.capacity_bytes, used, life.job.capacity_bytes - used, used, used)


def _make_live(life: Life, shape: Shape, ticks: Ticks, at: int, seq: int, pid: int) -> Sample:
    allocated, index, within = ticks.allocated[at], ticks.steps[at], ticks.within[at]
    highest, reserved, stranded = ticks.allocated_max[at], ticks.reserved[at], ticks.stranded[at]
    retries = ticks.retries[at]
    allocator = AllocatorReading(allocated, highest, reserved, allocated, allocated, stranded, retries, 0)
    rank = RankSample(
        pid,
        EPOCH_S + life.start_s,
        device_uuid=UUID,
        backend="cuda",
        age_s=0.1,
        allocator=allocator,
        resident_bytes=ticks.resident[at],
        step=_read_step(life, index) if index else None,
        steps_within=within,
        floor_min_bytes=ticks.floors[at] if within else None,
        peak_max_bytes=ticks.peaks[at] if within else None,
    )
    memory = _measure_memory(life, ticks, at)
    device = DeviceSample(UUID, 0, memory=memory, allocator=allocator, utilization_percent=93.0, step=index)
    host = _make_host(ticks.resident[at])
    return Sample(NODE, seq, shape.epoch_s + ticks.times_s[at], shape.interval_s, (device,), host, (rank,))


def _read_step(life: Life, index: int) -> StepReading:
    """Return the step of some number, from 1 on."""
    at = index - 1
    begin, end = float(life.ends_s[at - 1]) if at else life.start_s, float(life.ends_s[at])
    floor = min(int(life.before_bytes[at]), int(life.after_bytes[at]))
    return StepReading(index, EPOCH_S + end, end - begin, floor, int(life.peak_bytes[at]), is_peak_exact=True)


def _make_series(life: Life, shape: Shape, ticks: Ticks, at: int, seq: int, pid: int) -> Sample:
    allocator = AllocatorReading(allocated_bytes=ticks.allocated[at], reserved_bytes=ticks.reserved[at])
    step = ticks.steps[at] if shape.has_steps else None
    memory = _measure_memory(life, ticks, at)
    device = DeviceSample(UUID, 0, memory=memory, allocator=allocator, step=step)
    return Sample(NODE, seq, shape.epoch_s + ticks.times_s[at], shape.interval_s, (device,), clock="trace")


def _make_device(life: Life, shape: Shape, ticks: Ticks, at: int, seq: int, pid: int) -> Sample:
    device = DeviceSample(UUID, 0, memory=_measure_memory(life, ticks, at))
    return Sample(NODE, seq, shape.epoch_s + ticks.times_s[at], shape.interval_s, (device,), clock="trace")


def _make_empty(life: Life, shape: Shape, surroundings: Surroundings, time_s: float, seq: int) -> Sample:
    """Return a sample of a card on which the job is not."""
    used = int(surroundings.find_others(np.array([time_s]))[0])
    total = life.job.capacity_bytes
    allocator = AllocatorReading(0, reserved_bytes=0) if shape.kind == "series" else None
    device = DeviceSample(
        UUID, 0, memory=MemoryReading(total, used, total - used, used, used), allocator=allocator
    )
    time_s += shape.epoch_s
    is_live = shape.kind == "live"
    host = _make_host(0) if is_live else None
    return Sample(NODE, seq, time_s, shape.interval_s, (device,), host, clock="wall" if is_live else "trace")


def _make_host(resident: int) -> HostSample:
    used = 24 * GIB + resident
    return HostSample(HOST_BYTES, used, HOST_BYTES - used)
