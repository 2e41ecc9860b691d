"""Jobs of several ranks as their probes tell of them: floors and peaks of each, sample by sample."""

from collections.abc import Callable, Sequence

from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.units import GIB

CARD = 80 * GIB
Level = Callable[[int, float], tuple[float, float]]
"""Floor and peak in GiB of a rank at a time in seconds."""


def job_of(
    level: Level,
    seconds: float,
    *,
    ranks: Sequence[int] = range(8),
    stages: int | None = 1,
    tick_s: float = 2.0,
    start_s: float = 0.0,
    job: str | None = "j",
) -> list[Sample]:
    """Return the samples of a job of which every rank ends a step in each tick.

    Args:
        level: What each rank holds.
        seconds: How long it runs.
        ranks: Which ranks are there.
        stages: Pipeline stages, dealt in turn; None where nobody tells them.
        tick_s: Seconds from sample to sample.
        start_s: Time of the first sample.
        job: Name of the job.
    """
    count = int(seconds / tick_s)
    return [
        sample_of(level, start_s + tick_s * at, ranks=ranks, stages=stages, tick_s=tick_s, job=job)
        for at in range(count)
    ]


def sample_of(
    level: Level, time_s: float, *, ranks: Sequence[int], stages: int | None, tick_s: float, job: str | None
) -> Sample:
    """Return one sample of a job."""
    devices, told = [], []
    for number in ranks:
        floor, peak = (round(gib * GIB) for gib in level(number, time_s))
        reserved = peak + GIB
        memory = MemoryReading(total_bytes=CARD, used_bytes=reserved, free_bytes=CARD - reserved)
        devices.append(DeviceSample(f"GPU-{number}", number, memory=memory))
        stage = None if stages is None else number % stages
        told.append(
            RankSample(
                pid=100 + number,
                started_s=1.0,
                job=job,
                device_uuid=f"GPU-{number}",
                coordinates=RankCoordinates(number, len(ranks), pp=stage),
                allocator=AllocatorReading(allocated_bytes=floor, reserved_bytes=reserved),
                step=StepReading(int(time_s / tick_s), time_s, tick_s, floor, peak),
                steps_within=1,
                floor_min_bytes=floor,
                peak_max_bytes=peak,
            )
        )
    return Sample("n", int(time_s / tick_s), time_s, tick_s, tuple(devices), ranks=tuple(told))
