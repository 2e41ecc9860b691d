"""The gap, named: parts add up to what is used, and what cannot be told apart says so."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.analyzers.gap import explain_gap, find_activations
from vramscope.engine.model import (
    AllocatorReading,
    DeviceKind,
    DeviceSample,
    MemoryReading,
    ModelStateReading,
    ProcessReading,
    RankSample,
    StepReading,
)
from vramscope.engine.units import GIB

PID, OTHER = 4711, 815
WHOLE = AllocatorReading(
    allocated_bytes=30 * GIB,
    reserved_bytes=50 * GIB,
    requested_bytes=29 * GIB,
    active_bytes=32 * GIB,
    inactive_split_bytes=5 * GIB,
)


def make_rank(reading: AllocatorReading | None = WHOLE, pid: int = PID, **more: object) -> RankSample:
    """Return a process on GPU-0."""
    rank = RankSample(pid=pid, device_uuid="GPU-0", allocator=reading)
    return msgspec.structs.replace(rank, **more)


def make_device(
    *processes: tuple[int, int | None],
    used: int | None = 60 * GIB,
    kind: DeviceKind = "gpu",
    has_list: bool = True,
) -> DeviceSample:
    """Return a device of 80 GiB with these processes."""
    free = None if used is None else 79 * GIB - used
    listed = tuple(ProcessReading(pid=pid, used_bytes=held) for pid, held in processes)
    return DeviceSample(
        uuid="GPU-0",
        index=0,
        kind=kind,
        memory=MemoryReading(80 * GIB, used, free),
        processes=listed if has_list else None,
    )


def named(device: DeviceSample, *ranks: RankSample) -> dict[str, float]:
    """Return the parts by name, in GiB."""
    return {part.name: part.size_bytes / GIB for part in explain_gap(device, ranks).parts}


def test_every_part_has_its_name_where_all_is_known() -> None:
    device = make_device((PID, 52 * GIB), (OTHER, 7 * GIB))
    gap = explain_gap(device, [make_rank()])
    assert named(device, make_rank()) == {
        "live tensors": 30,
        "awaiting free": 2,
        "stranded": 5,
        "cached": 13,
        "context and libraries": 2,
        "other processes": 7,
        "unattributed": 1,
    }
    assert (gap.used_bytes, gap.is_consistent) == (60 * GIB, True)
    assert gap.internal_bytes == GIB
    assert gap.capacity_bytes == (50 + 19) * GIB
    assert gap.size_of("stranded") == 5 * GIB


@pytest.mark.parametrize("has_list", [False, True])
def test_without_process_figures_context_and_others_are_one(has_list: bool) -> None:
    device = make_device((PID, None), has_list=has_list)
    assert named(device, make_rank())["context and libraries, other processes and unattributed"] == 10
    assert explain_gap(device, [make_rank()]).size_of("context") is None


def test_another_process_that_does_not_tell_is_one_with_what_nobody_holds() -> None:
    parts = named(make_device((PID, 52 * GIB), (OTHER, None)), make_rank())
    assert (parts["context and libraries"], parts["other processes and unattributed"]) == (2, 8)


def test_an_allocator_that_tells_less_is_split_less() -> None:
    plain = AllocatorReading(allocated_bytes=30 * GIB, reserved_bytes=50 * GIB)
    device = make_device((PID, 52 * GIB))
    assert named(device, make_rank(plain))["awaiting free, stranded and cached"] == 20
    expandable = msgspec.structs.replace(WHOLE, inactive_split_bytes=None)
    assert named(device, make_rank(expandable))["stranded and cached"] == 18
    only_reserved = AllocatorReading(reserved_bytes=50 * GIB)
    assert named(device, make_rank(only_reserved)) == {
        "live tensors, awaiting free, stranded and cached": 50,
        "context and libraries": 2,
        "other processes": 0,
        "unattributed": 8,
    }
    only_allocated = AllocatorReading(allocated_bytes=30 * GIB)
    first, rest = explain_gap(device, [make_rank(only_allocated)]).parts
    assert (first.size_bytes, rest.size_bytes) == (30 * GIB, 30 * GIB)
    assert rest.kinds[0] == "awaiting_free"
    assert rest.kinds[-1] == "unattributed"
    (everything,) = explain_gap(device, [make_rank(None)]).parts
    assert everything.size_bytes == 60 * GIB


def test_without_ranks_there_are_processes_and_the_rest() -> None:
    assert named(make_device((OTHER, 7 * GIB))) == {"other processes": 7, "unattributed": 53}
    elsewhere = msgspec.structs.replace(make_rank(), device_uuid="GPU-1")
    ended = msgspec.structs.replace(make_rank(), state="ended")
    assert named(make_device((OTHER, 7 * GIB)), elsewhere, ended) == {
        "other processes": 7,
        "unattributed": 53,
    }


def test_a_simulated_card_is_told_whole() -> None:
    device = make_device(used=52 * GIB, kind="simulated")
    parts = named(device, make_rank(is_simulated=True, context_bytes=2 * GIB))
    assert (parts["context and libraries"], parts["other processes"], parts["unattributed"]) == (2, 0, 0)


def test_host_memory_has_programs_beside_it() -> None:
    reading = AllocatorReading(allocated_bytes=10 * GIB)
    device = make_device(kind="cpu")
    assert named(device, make_rank(reading, resident_bytes=14 * GIB)) == {
        "live tensors": 10,
        "the rest of the processes": 4,
        "other programs": 46,
    }
    assert named(device, make_rank(None, resident_bytes=14 * GIB)) == {
        "live tensors and the rest of the processes": 14,
        "other programs": 46,
    }


def test_readings_of_two_moments_are_cut_and_said_not_to_fit() -> None:
    device = make_device((PID, 52 * GIB), used=40 * GIB)
    gap = explain_gap(device, [make_rank()])
    assert not gap.is_consistent
    assert sum(part.size_bytes for part in gap.parts) == 40 * GIB


def test_what_is_not_measured_is_not_named() -> None:
    gap = explain_gap(make_device(used=None), [make_rank()])
    assert (gap.used_bytes, gap.parts, gap.capacity_bytes) == (None, (), None)


def test_capacity_is_the_limit_of_the_process_where_that_is_less() -> None:
    device = make_device((PID, 52 * GIB))
    assert explain_gap(device, [make_rank(capacity_bytes=55 * GIB)]).capacity_bytes == 55 * GIB
    assert explain_gap(device, [make_rank(capacity_bytes=99 * GIB)]).capacity_bytes == 69 * GIB
    two = [make_rank(capacity_bytes=40 * GIB), make_rank(pid=OTHER)]
    assert explain_gap(device, two).capacity_bytes == 119 * GIB


def test_activations_are_the_rest_of_the_peak() -> None:
    state = ModelStateReading(4 * GIB, 4 * GIB, 8 * GIB)
    step = StepReading(7, 1.0, peak_bytes=30 * GIB, is_peak_exact=True)
    rank = make_rank(step=step, model_state=state)
    assert find_activations(rank) == (14 * GIB, True)
    private = make_rank(step=step, model_state=ModelStateReading(4 * GIB, 4 * GIB, 8 * GIB, 10 * GIB))
    assert find_activations(private) == (4 * GIB, True)
    assert find_activations(make_rank()) is None
    assert find_activations(make_rank(step=step, model_state=ModelStateReading(4 * GIB))) is None
    tiny = make_rank(step=StepReading(7, 1.0, peak_bytes=GIB), model_state=state)
    assert find_activations(tiny) is None


def test_activations_of_a_sampled_peak_are_the_least_that_they_can_have_been() -> None:
    state = ModelStateReading(4 * GIB, 4 * GIB, 8 * GIB)
    rank = make_rank(step=StepReading(7, 1.0, peak_bytes=30 * GIB), model_state=state)
    assert find_activations(rank) == (14 * GIB, False)


figures = st.one_of(st.none(), st.integers(0, 100))
readings = st.one_of(
    st.none(),
    st.builds(
        AllocatorReading,
        allocated_bytes=figures,
        reserved_bytes=figures,
        requested_bytes=figures,
        active_bytes=figures,
        inactive_split_bytes=figures,
    ),
)
kinds: st.SearchStrategy[DeviceKind] = st.sampled_from(["gpu", "mig", "simulated", "cpu", "unified"])


@given(
    st.integers(0, 200),
    kinds,
    st.lists(st.tuples(readings, figures, figures), max_size=4),
    st.one_of(st.none(), st.lists(st.tuples(st.integers(0, 6), figures), max_size=6)),
)
def test_parts_add_up_to_what_is_used_and_none_is_negative(
    used: int,
    kind: DeviceKind,
    rows: list[tuple[AllocatorReading | None, int | None, int | None]],
    processes: list[tuple[int, int | None]] | None,
) -> None:
    ranks = [
        make_rank(reading, pid=pid, resident_bytes=resident, context_bytes=context)
        for pid, (reading, resident, context) in enumerate(rows)
    ]
    device = make_device(*(processes or ()), used=used, kind=kind, has_list=processes is not None)
    gap = explain_gap(device, ranks)
    assert sum(part.size_bytes for part in gap.parts) == used
    assert all(part.size_bytes >= 0 for part in gap.parts)
    told = [kind for part in gap.parts for kind in part.kinds]
    assert len(told) == len(set(told))
    assert gap.internal_bytes is None or gap.internal_bytes >= 0
