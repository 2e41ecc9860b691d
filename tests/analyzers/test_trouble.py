"""Whatever comes, no analyzer raises, and a finding opens once, changes while it is open, and closes once."""

import math
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.analyzers.divergence import DivergenceAnalyzer
from vramscope.analyzers.fragmentation import FragmentationAnalyzer
from vramscope.analyzers.leak import LeakAnalyzer
from vramscope.analyzers.oom import OomAnalyzer
from vramscope.analyzers.out_of_memory import OutOfMemoryAnalyzer
from vramscope.analyzers.pressure import PressureAnalyzer
from vramscope.analyzers.usage import UsageAnalyzer
from vramscope.engine.model import (
    AllocatorReading,
    Analyzer,
    DeviceSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.units import GIB

from .restart import watch

MAKERS: list[Callable[[], Analyzer]] = [
    DivergenceAnalyzer,
    FragmentationAnalyzer,
    LeakAnalyzer,
    OomAnalyzer,
    OutOfMemoryAnalyzer,
    PressureAnalyzer,
    UsageAnalyzer,
]

sizes = st.one_of(st.none(), st.sampled_from([0, 1, GIB, 30 * GIB, 75 * GIB, 79 * GIB, 80 * GIB, 90 * GIB]))
counts = st.one_of(st.none(), st.integers(0, 5))
readings = st.one_of(
    st.none(), st.builds(AllocatorReading, sizes, sizes, sizes, sizes, sizes, sizes, counts, counts)
)
memories = st.builds(MemoryReading, sizes, sizes, sizes, sizes, sizes)
coordinates = st.one_of(
    st.none(), st.builds(RankCoordinates, st.integers(0, 3), pp=st.sampled_from([None, 0, 1]))
)
devices = st.builds(
    DeviceSample,
    uuid=st.sampled_from(["a", "b"]),
    index=st.just(0),
    kind=st.sampled_from(["gpu", "mig", "trace", "cpu"]),
    state=st.sampled_from(["ok", "ok", "ok", "lost", "stale", "unsupported", "ended"]),
    memory=memories,
    allocator=readings,
    utilization_percent=st.sampled_from([None, 0.0, 0.0, 50.0, math.nan]),
    rank=coordinates,
    step=counts,
)
ranks = st.builds(
    RankSample,
    pid=st.sampled_from([7, 8]),
    started_s=st.sampled_from([None, 1.0, 2.0]),
    job=st.sampled_from([None, "j"]),
    device_uuid=st.sampled_from([None, "a", "b", "c"]),
    coordinates=coordinates,
    state=st.sampled_from(["ok", "ok", "ok", "stale", "ended"]),
    allocator=readings,
    capacity_bytes=sizes,
    step=st.one_of(st.none(), st.builds(StepReading, st.integers(1, 9), st.floats(0, 9))),
    steps_within=st.integers(0, 3),
    floor_min_bytes=sizes,
    peak_max_bytes=sizes,
)


@st.composite
def runs(draw: st.DrawFn) -> list[Sample]:
    """Return stretches of like samples, with odd times here and there.

    A sample without a time reaches no analyzer: the host refuses it, which `trouble/` plays.
    """
    found, time_s = [], 0.0
    for seq in range(draw(st.integers(1, 8))):
        shape = Sample(
            node=draw(st.sampled_from(["n", "m"])),
            seq=seq,
            time_s=0.0,
            interval_s=draw(st.sampled_from([0.1, 1.0, 10.0])),
            devices=tuple(draw(st.lists(devices, max_size=2, unique_by=lambda device: device.uuid))),
            ranks=tuple(draw(st.lists(ranks, max_size=2, unique_by=lambda rank: rank.pid))),
        )
        step_s = draw(st.sampled_from([0.0, 1.0, 10.0, 60.0, -5.0]))
        for _ in range(draw(st.sampled_from([1, 3, 60, 250]))):
            time_s += step_s
            found.append(msgspec.structs.replace(shape, time_s=time_s))
    return found


@settings(max_examples=60, deadline=None)
@given(run=runs())
def test_no_run_raises_and_every_finding_has_one_life(run: list[Sample]) -> None:
    for make in MAKERS:
        ended: set[str] = set()
        opened: dict[str, float] = {}
        for finding in watch(make(), run):
            assert finding.id not in ended, "a closed finding does not come back"
            assert opened.setdefault(finding.id, finding.opened_s) == finding.opened_s
            assert finding.severity in ("low", "medium", "high", "critical")
            assert finding.title
            assert finding.method
            assert finding.advice
            if finding.closed_s is not None:
                assert finding.closed_s >= finding.opened_s
                ended.add(finding.id)


@pytest.mark.parametrize("make", MAKERS)
def test_one_sample_and_none_at_all(make: Callable[[], Analyzer]) -> None:
    device = DeviceSample("a", 0, memory=MemoryReading(80 * GIB, 70 * GIB), utilization_percent=0.0)
    assert watch(make(), []) == []
    assert watch(make(), [Sample("n", 1, 1.0, 1.0, (device,))]) == []
    assert watch(make(), [Sample("n", 1, 1.0, 1.0)]) == []
