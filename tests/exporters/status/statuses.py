"""Status objects that exporters are fed with: made by hand, and made up by hypothesis."""

import math

from hypothesis import strategies as st

from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    Finding,
    HostSample,
    MemoryReading,
    NodeStatus,
    ProcessReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.exporters.status.document import describe_sample

GIB = 1 << 30


def make_device(index: int = 0, *, used_gib: float = 10.0, **fields: object) -> DeviceSample:
    """Return a healthy device of 80 GiB; `fields` replace what is said of it."""
    used_bytes = round(used_gib * GIB)
    known: dict[str, object] = {
        "uuid": f"GPU-{index}",
        "index": index,
        "name": "NVIDIA H100 80GB HBM3",
        "age_s": 0.1,
        "memory": MemoryReading(80 * GIB, used_bytes, 80 * GIB - used_bytes, used_bytes, used_bytes),
        "utilization_percent": 98.0,
        "temperature_c": 64.0,
        "power_w": 612.0,
    }
    return DeviceSample(**{**known, **fields})  # type: ignore[arg-type] # named by the caller


def make_status(
    *devices: DeviceSample,
    findings: tuple[Finding, ...] = (),
    notes: tuple[str, ...] = (),
    ranks: tuple[RankSample, ...] = (),
) -> NodeStatus:
    """Return the status of a node with these devices and ranks."""
    host = HostSample(
        total_bytes=1008 * GIB, used_bytes=412 * GIB, swap_total_bytes=0, swap_used_bytes=0, cpu_percent=12.4
    )
    sample = Sample(
        node="node03",
        seq=1,
        time_s=1_700_000_000.5,
        interval_s=0.1,
        devices=devices,
        host=host,
        ranks=ranks,
        notes=notes,
    )
    return describe_sample(sample, findings)


def make_finding(**fields: object) -> Finding:
    """Return an open finding about GPU 0."""
    known: dict[str, object] = {
        "id": "0123456789ab",
        "kind": "oom",
        "node": "node03",
        "device_uuid": "GPU-0",
        "device": "0",
        "severity": "critical",
        "title": "GPU 0 out of memory in 1 m 16 s",
        "opened_s": 1_699_999_900.0,
        "updated_s": 1_700_000_000.5,
        "advice": "Lower the batch size.",
    }
    return Finding(**{**known, **fields})  # type: ignore[arg-type] # named by the caller


_texts = st.text(max_size=12) | st.sampled_from(["\x1b[31m", "名前", "a\nb", "\udcff", "[bold]"])
_sizes = st.none() | st.integers(0, 1 << 50)
_figures = st.none() | st.floats(0, 1e6) | st.sampled_from([math.nan, math.inf])
_memories = st.builds(
    MemoryReading, _sizes, _sizes, _sizes, _sizes, _sizes, st.sampled_from(["device", "host"])
)
_processes = st.builds(
    ProcessReading,
    pid=st.integers(1, 1 << 22),
    user=st.none() | _texts,
    command=st.none() | _texts,
    used_bytes=_sizes,
    location=st.sampled_from(["here", "container", "outside", "gone"]),
    container=st.none() | _texts,
)
_devices = st.builds(
    DeviceSample,
    uuid=_texts,
    index=st.integers(0, 72),
    name=st.none() | _texts,
    kind=st.sampled_from(["gpu", "mig", "unified", "vgpu", "trace", "simulated", "cpu"]),
    mig_index=st.none() | st.integers(0, 6),
    state=st.sampled_from(["ok", "lost", "stale", "unsupported"]),
    reason=st.none() | _texts,
    age_s=st.none() | st.floats(0, 1e6),
    memory=_memories,
    utilization_percent=_figures,
    temperature_c=_figures,
    power_w=_figures,
    processes=st.lists(_processes, max_size=3).map(tuple),
)

_ranks = st.builds(
    RankSample,
    pid=st.integers(1, 1 << 22),
    device_uuid=st.none() | _texts,
    coordinates=st.none() | st.builds(RankCoordinates, st.integers(-1, 1 << 40)),
    state=st.sampled_from(["ok", "stale", "ended"]),
    reason=st.none() | _texts,
    age_s=st.none() | st.floats(0, 1e6),
    allocator=st.none() | st.builds(AllocatorReading, _sizes, _sizes, _sizes),
    step=st.none() | st.builds(StepReading, st.integers(0, 1 << 50), st.just(1.0)),
)

statuses = st.builds(
    lambda devices, notes, ranks: make_status(*devices, notes=tuple(notes), ranks=tuple(ranks)),
    st.lists(_devices, max_size=4),
    st.lists(_texts, max_size=2),
    st.lists(_ranks, max_size=3),
)
"""Anything that a sample may hold, hostile text and absent figures included."""
