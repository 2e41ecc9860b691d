"""Samples for recordings: a plausible node that changes every second, and arbitrary ones."""

import random
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from vramscope.engine.model import (
    AllocatorReading,
    Assessment,
    DeviceSample,
    Evidence,
    Finding,
    HostSample,
    MemoryReading,
    ProcessReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)
from vramscope.engine.recording import RecordingIdentity, RecordingWriter

GIB = 1 << 30
MIB = 1 << 20
START_S = 1_700_000_000.0
IDENTITY = RecordingIdentity("node", START_S, "test", interval_s=1.0)


def make_sample(tick: int, devices: int = 2, *, node: str = "node", time_s: float | None = None) -> Sample:
    """Return the sample of one tick, the same whenever it is asked for."""
    chance = random.Random(f"{node} {tick}")
    return Sample(
        node,
        tick,
        START_S + tick + round(chance.random() / 500, 6) if time_s is None else time_s,
        1.0,
        tuple(_make_device(index, chance) for index in range(devices)),
        host=HostSample(64 * GIB, chance.randrange(64 * GIB), cpu_percent=round(100 * chance.random(), 1)),
        ranks=(_make_rank(tick, chance),) if devices else (),
    )


def make_finding(number: int, *, closed_s: float | None = None) -> Finding:
    """Return a finding with evidence of every type."""
    evidence = (Evidence("used", number, "bytes"), Evidence("share", 0.5), Evidence("line", "a.py:3"))
    return Finding(
        f"id{number}", "leak", "node", "GPU-0", "0", "high", "It grows.", START_S, START_S, closed_s, evidence
    )


def make_assessment(tick: int) -> Assessment:
    """Return an assessment that differs from tick to tick."""
    return Assessment("node", "GPU-0", "0", START_S + tick, "low", "it has room", pid=7, horizon_s=tick / 7)


def write(path: Path, samples: "Iterator[Sample] | list[Sample]") -> None:
    """Record samples, whole."""
    with RecordingWriter(path, IDENTITY) as writer:
        for sample in samples:
            writer.append(sample)


def _make_device(index: int, chance: random.Random) -> DeviceSample:
    used = 40 * GIB + chance.randrange(6 * GIB)
    memory = MemoryReading(80 * GIB, used, 80 * GIB - used, used - 5 * MIB, used + 9 * MIB)
    processes = tuple(ProcessReading(100 + index, "user", "train.py", used // 2) for _ in range(index % 3))
    return DeviceSample(
        f"GPU-{index}",
        index,
        "Pretend GPU",
        age_s=round(chance.random() / 10, 3),
        memory=memory,
        temperature_c=float(chance.randrange(50, 60)),
        processes=processes if index else None,
    )


def _make_rank(tick: int, chance: random.Random) -> RankSample:
    allocated = 512 * chance.randrange(1 << 25)
    return RankSample(
        7,
        START_S,
        "job",
        device_uuid="GPU-0",
        coordinates=RankCoordinates(0, 8),
        allocator=AllocatorReading(allocated, allocated + 512, 40 * GIB),
        step=StepReading(tick, START_S + tick - chance.random(), chance.random(), allocated),
        phase="forward" if tick % 2 else "backward",
        steps_within=1,
    )


def arbitrary(kind: Any) -> st.SearchStrategy[Any]:
    """Return any value of a type: structs field by field, few equal strings, awkward numbers."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _arbitrary_struct(kind)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(arbitrary, inner))
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        return st.lists(arbitrary(inner[0]), max_size=3).map(tuple)
    return {
        type(None): st.none(),
        bool: st.booleans(),
        int: st.integers(-(1 << 63), (1 << 64) - 1) | st.integers(0, 3).map(lambda it: it * 512),
        float: st.floats() | st.integers(-9, 9).map(lambda it: it / 1000) | st.just(-0.0),
        str: st.sampled_from(["", "GPU-0", "GPU-1", "\0", "ü"]),
    }[kind]


def _arbitrary_struct(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: arbitrary(hints[name]) for name in kind.__struct_fields__})


finite = st.floats(allow_nan=False, allow_infinity=False)
arbitrary_samples = st.lists(
    st.builds(lambda sample, at_s: msgspec.structs.replace(sample, time_s=at_s), arbitrary(Sample), finite),
    min_size=1,
    max_size=6,
)
