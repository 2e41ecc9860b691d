"""Whom a verdict is about, and how much memory it can really get."""

from vramscope.analyzers.findings.subjects import Subject, subjects_of
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    RankSample,
    Sample,
    StepReading,
)

MEMORY = MemoryReading(total_bytes=1000, used_bytes=700, free_bytes=250)


def sample_of(*ranks: RankSample, state: str = "ok") -> Sample:
    devices = (
        DeviceSample("a", 0, memory=MEMORY, state=state),  # type: ignore[arg-type]
        DeviceSample("b", 1, memory=MEMORY),
    )
    return Sample("node", 1, 10.0, 1.0, devices=devices, ranks=ranks)


def rank_of(**facts: object) -> RankSample:
    facts = {
        "allocator": AllocatorReading(allocated_bytes=300, reserved_bytes=400),
        "device_uuid": "a",
    } | facts
    return RankSample(pid=7, started_s=5.0, **facts)  # type: ignore[arg-type]


def test_a_process_stands_for_its_device_and_other_devices_for_themselves() -> None:
    rank = rank_of(step=StepReading(index=3, ended_s=9.0))
    first, second = subjects_of(sample_of(rank))
    assert (first.key, first.name, first.step) == (("node", "a", 7, 5.0), "process 7", 3)
    assert (second.key, second.name, second.step) == (("node", "b", None, None), "GPU 1", None)


def test_a_process_that_is_stale_is_not_judged_and_does_not_leave_its_device_to_the_driver() -> None:
    assert [subject.name for subject in subjects_of(sample_of(rank_of(state="stale")))] == ["GPU 1"]
    assert [subject.name for subject in subjects_of(sample_of(rank_of(state="ended")))] == ["GPU 0", "GPU 1"]
    assert [subject.name for subject in subjects_of(sample_of(state="stale"))] == ["GPU 1"]


def test_the_limit_is_what_the_allocator_has_and_what_is_free() -> None:
    (free, _) = subjects_of(sample_of(rank_of()))
    (capped, _) = subjects_of(sample_of(rank_of(capacity_bytes=500)))
    (blind, _) = subjects_of(sample_of(rank_of(allocator=AllocatorReading(allocated_bytes=300))))
    assert (free.limit_bytes, capped.limit_bytes, blind.limit_bytes) == (650, 500, 1000)
    assert Subject(sample_of(), None, rank_of()).limit_bytes is None
