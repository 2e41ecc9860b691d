"""Nodes for the tests of what is drawn: plain, busy and odd ones."""

from collections.abc import Sequence

from vramscope.engine.history import History
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    Finding,
    MemoryReading,
    ProcessReading,
    RankCoordinates,
    Sample,
)
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import Snapshot

START_S = 1_760_000_000.0


def memory(
    used_gib: float | None, total_gib: float | None = 80.0, *, swing_gib: float = 0.0
) -> MemoryReading:
    """Return a reading in GiB, with a swing around it within the tick."""
    used = None if used_gib is None else int(used_gib * GIB)
    return MemoryReading(
        total_bytes=None if total_gib is None else int(total_gib * GIB),
        used_bytes=used,
        used_min_bytes=None if used is None else used - int(swing_gib * GIB),
        used_max_bytes=None if used is None else used + int(swing_gib * GIB),
    )


def gpu(index: int, used_gib: float = 40.0, *, swing_gib: float = 0.0) -> DeviceSample:
    """Return a busy H100 of 80 GiB."""
    return DeviceSample(
        uuid=f"GPU-{index}",
        index=index,
        name="NVIDIA H100 80GB HBM3",
        age_s=0.1,
        memory=memory(used_gib, swing_gib=swing_gib),
        utilization_percent=98.0,
        temperature_c=64.0,
        power_w=612.0,
        processes=(ProcessReading(4000 + index, used_bytes=GIB),),
    )


def node(
    devices: Sequence[DeviceSample], *, ticks: int = 30, findings: tuple[Finding, ...] = ()
) -> tuple[Snapshot, History]:
    """Return a node whose devices stood still for some ticks of a second."""
    history = History()
    sample = Sample("node03", 0, START_S, 1.0)
    for tick in range(ticks):
        sample = Sample("node03", tick, START_S + tick, 1.0, tuple(devices))
        history.add(sample)
    return Snapshot("live", sample=sample, findings=findings), history


def forecast(uuid: str) -> Finding:
    """Return a forecast that a device runs out of memory."""
    return Finding(
        "f1", "oom", "node03", uuid, "0", "critical", "out of memory in 1 m 16 s", START_S, START_S
    )


def odd_devices() -> list[DeviceSample]:
    """Return one of every kind of device that needs care."""
    return [
        DeviceSample("mig", 0, "NVIDIA A100-SXM4-80GB", memory=memory(30)),
        DeviceSample(
            "mig-0", 0, "A100 MIG 3g.40gb", kind="mig", parent_uuid="mig", mig_index=0, memory=memory(20, 40)
        ),
        DeviceSample(
            "mig-1", 0, "A100 MIG 3g.40gb", kind="mig", parent_uuid="mig", mig_index=1, memory=memory(10, 40)
        ),
        DeviceSample(
            "gb10", 1, "NVIDIA GB10", kind="unified", memory=memory(60, 120), utilization_percent=3.0
        ),
        DeviceSample("old", 2, "GTX 1080", state="unsupported", reason="the driver does not tell its memory"),
        DeviceSample(
            "rank", 3, None, kind="trace", memory=memory(20, None), rank=RankCoordinates(3, 8, 1, 0), step=7
        ),
        DeviceSample(
            "lost", 4, "漢字 GPU", state="lost", age_s=41.0, reason="fell off the bus", memory=memory(5)
        ),
        DeviceSample(
            "hung",
            5,
            "H100\x1b[31m",
            state="stale",
            age_s=7.3,
            reason="a call has not returned",
            memory=memory(5),
        ),
        DeviceSample(
            "fat",
            11,
            "H100",
            memory=memory(4999, 5000),
            power_w=9999.0,
            allocator=AllocatorReading(GIB, GIB, 2 * GIB),
        ),
    ]
