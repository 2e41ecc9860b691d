"""Samples as of a node of eight devices on which a job trains, made from the number of the second."""

import math
from typing import Final, Literal

from vramscope.engine.model import (
    AllocatorReading,
    Assessment,
    DeviceSample,
    HostSample,
    MemoryReading,
    ModelStateReading,
    ProcessReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)

DEVICES_A_NODE = 8
MARKER_DEVICE = 0
"""Device of each node whose height on the screen is another at every sample."""
MARKER_SHARES: Final = (0.2, 0.36, 0.52)
GIB = 1024**3
TOTAL_BYTES = 80 * GIB
AT_RISK = 50
"""One rank of so many is about to run out of memory; these move groups on the screen."""
SAYS_EVERY = 5
"""Samples from one word of the worker to the next, where nothing is at risk."""

Kind = Literal["drifts", "jumps"]
"""How memory changes: slowly, or by up to 30 % of the capacity every second, on each device."""


def make_sample(name: str, number: int, seq: int, time_s: float, kind: Kind) -> Sample:
    """Return one node at one second, as full as one of a job that runs.

    Args:
        name: Of the node.
        number: Of the node among all.
        seq: Of the sample.
        time_s: Wall clock of the sample.
        kind: How memory changes.
    """
    devices = tuple(_make_device(number, index, seq, kind) for index in range(DEVICES_A_NODE))
    ranks = tuple(_make_rank(number, index, seq, time_s, device) for index, device in enumerate(devices))
    host = HostSample(2048 * GIB, (300 + seq % 50) * GIB, 1700 * GIB, 0, 0, 10.0 + seq % 7)
    return Sample(name, seq, time_s, 1.0, devices, host, ranks)


def make_assessments(sample: Sample, number: int) -> tuple[Assessment, ...]:
    """Return what the worker of a node says of its ranks."""
    return tuple(
        _assess(sample, number * DEVICES_A_NODE + index, rank, sample.devices[index])
        for index, rank in enumerate(sample.ranks)
    )


def is_at_risk(number: int) -> bool:
    """Return whether a rank of a node is about to run out of memory."""
    return any(_is_at_risk(number * DEVICES_A_NODE + index) for index in range(DEVICES_A_NODE))


def _is_at_risk(rank: int) -> bool:
    return rank % AT_RISK == AT_RISK - 1  # odd, so that it is never a marker


def _share(rank: int, index: int, seq: int, kind: Kind) -> float:
    if index == MARKER_DEVICE:
        return MARKER_SHARES[seq % len(MARKER_SHARES)]
    return 0.75 + 0.15 * math.sin(rank * 1.7 + seq * (2.1 if kind == "jumps" else 1 / (3 + rank % 11)))


def _make_device(number: int, index: int, seq: int, kind: Kind) -> DeviceSample:
    rank = number * DEVICES_A_NODE + index
    used = int(_share(rank, index, seq, kind) * TOTAL_BYTES)
    memory = MemoryReading(TOTAL_BYTES, used, TOTAL_BYTES - used, used - GIB, used + GIB // 2)
    return DeviceSample(
        f"GPU-{rank:08x}-6f5a-4d0e-9c35-7d2f3a1b{rank:04x}",
        index,
        "NVIDIA H100 80GB HBM3",
        age_s=0.08,
        memory=memory,
        allocator=_make_allocator(used),
        utilization_percent=90.0 + (seq + rank) % 10,
        temperature_c=58.0 + (seq // 7 + rank) % 10,
        power_w=640.0 + (seq * 7 + rank) % 50,
        processes=(_make_process(rank, used - GIB), _make_process(rank + 20_000, GIB // 2)),
        rank=_place(rank, index),
        step=1000 + seq // 2,
    )


def _make_process(rank: int, used: int) -> ProcessReading:
    command = f"python train.py --config configs/gpt-485b.yaml --rank {rank}"
    return ProcessReading(4000 + rank, "alice", command, used, started_s=1.7e9 + rank)


def _make_allocator(used: int) -> AllocatorReading:
    allocated = int(used * 0.82)
    requested = int(allocated * 0.98)
    return AllocatorReading(allocated, allocated + GIB, used - GIB, requested, allocated, GIB, 0, 0)


def _place(rank: int, index: int) -> RankCoordinates:
    return RankCoordinates(
        rank, 8192, tp=index, pp=rank // DEVICES_A_NODE % 16, dp=rank // 128, local_rank=index
    )


def _make_rank(number: int, index: int, seq: int, time_s: float, device: DeviceSample) -> RankSample:
    rank = number * DEVICES_A_NODE + index
    peak = (device.memory.used_bytes or 0) - 2 * GIB
    return RankSample(
        4000 + rank,
        1.7e9 + rank,
        job="gpt-485b",
        command=f"python train.py --config configs/gpt-485b.yaml --rank {rank}",
        device_uuid=device.uuid,
        backend="cuda",
        coordinates=device.rank,
        age_s=0.05,
        allocator=device.allocator,
        pinned_bytes=3 * GIB,
        resident_bytes=9 * GIB,
        step=StepReading(1000 + seq // 2, time_s - 0.3, 1.9, peak // 2, peak, is_peak_exact=True),
        steps_within=seq % 2,
        floor_min_bytes=peak // 2,
        peak_max_bytes=peak,
        model_state=ModelStateReading(9 * GIB, 9 * GIB, 18 * GIB),
        allocator_settings="expandable_segments:True",
    )


def _assess(sample: Sample, number: int, rank: RankSample, device: DeviceSample) -> Assessment:
    is_near = _is_at_risk(number)
    left_s = 3600.0 - sample.seq % 3000
    return Assessment(
        sample.node,
        device.uuid,
        device.label,
        sample.time_s,
        "high" if is_near else "low",
        "the floor rises" if is_near else "headroom of 9 GiB",
        pid=rank.pid,
        started_s=rank.started_s,
        rank=number,
        confidence=0.8,
        horizon_s=1800.0,
        probability=0.6 if is_near else 0.01,
        oom_in_s=left_s if is_near else None,
        oom_in_low_s=0.7 * left_s if is_near else None,
        oom_in_high_s=1.6 * left_s if is_near else None,
        capacity_bytes=78 * GIB,
        floor_bytes=rank.floor_min_bytes,
        peak_bytes=rank.peak_max_bytes,
        growth_bytes_per_s=1.0e6 if is_near else 0.0,
        watched_s=float(sample.seq),
        watched_steps=sample.seq // 2,
    )
