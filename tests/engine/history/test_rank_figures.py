"""What the ring keeps of a training process comes back rounded up to 512 bytes, in bounded room."""

import math

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from vramscope.engine.history import History, HistoryBlock
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    HostSample,
    MemoryReading,
    RankSample,
    Sample,
    StepReading,
)

GIB = 1024**3
MIB = 1024**2
NOW_S = 1_700_000_000.0
MOST_BYTES = 2**41 - 1024
UNROUNDED = ("retries", "ooms", "index", "is_peak_exact")

figures = st.none() | st.integers(0, MOST_BYTES)
counts = st.none() | st.integers(0, 2**15 - 1)
allocators = st.builds(
    AllocatorReading, figures, figures, figures, figures, figures, figures, retries=counts, ooms=counts
)
steps = st.builds(
    StepReading,
    index=st.integers(0, 2**32 - 2),
    ended_s=st.floats(NOW_S - 1e6, NOW_S),
    duration_s=st.none() | st.floats(0, 1e5),
    floor_bytes=figures,
    peak_bytes=figures,
    is_peak_exact=st.booleans(),
)
ranks = st.builds(
    RankSample,
    pid=st.integers(1, 5),
    allocator=allocators,
    capacity_bytes=figures,
    resident_bytes=figures,
    step=st.none() | steps,
    steps_within=st.integers(0, 2**15 - 1),
    floor_min_bytes=figures,
    peak_max_bytes=figures,
)


def _sample(seq: int, *ranks: RankSample, devices: tuple[DeviceSample, ...] = ()) -> Sample:
    host = HostSample(total_bytes=512 * GIB, used_bytes=seq * MIB)
    return Sample("n", seq, NOW_S + seq, 1.0, devices=devices, host=host, ranks=ranks)


def _over_the_wire(history: History) -> History:
    block = msgspec.msgpack.decode(msgspec.msgpack.encode(history.block()), type=HistoryBlock)
    late = History()
    late.extend(block)
    return late


def _round_up(value: int | None) -> int | None:
    return None if value is None else math.ceil(value / 512) * 512


def _rounded(reading: msgspec.Struct) -> dict[str, object]:
    fields = msgspec.structs.asdict(reading)
    return {name: v if name in UNROUNDED else _round_up(v) for name, v in fields.items()}


@given(st.lists(st.lists(ranks, max_size=3, unique_by=lambda rank: rank.pid), min_size=1, max_size=6))
def test_every_kept_figure_comes_back_rounded_up_and_nothing_is_invented(
    ticks: list[list[RankSample]],
) -> None:
    history = History()
    for seq, told in enumerate(ticks):
        history.add(_sample(seq, *told))
    for source in (history, _over_the_wire(history)):
        for seq, (told, back) in enumerate(zip(ticks, source.samples(), strict=True)):
            assert {rank.pid for rank in back.ranks} == {rank.pid for rank in told}
            by_pid = {rank.pid: rank for rank in back.ranks}
            for rank in told:
                _compare(rank, by_pid[rank.pid], NOW_S + seq)


def _compare(told: RankSample, back: RankSample, time_s: float) -> None:
    assert told.allocator is not None
    assert back.allocator is not None
    assert msgspec.structs.asdict(back.allocator) == _rounded(told.allocator)
    for name in ("resident_bytes", "floor_min_bytes", "peak_max_bytes"):
        assert getattr(back, name) == _round_up(getattr(told, name))
    assert back.steps_within == told.steps_within
    assert (back.step is None) == (told.step is None)
    if told.step is None or back.step is None:
        return
    assert math.isclose(back.step.ended_s, told.step.ended_s, abs_tol=0.001)
    if told.step.duration_s is None or back.step.duration_s is None:
        assert told.step.duration_s is back.step.duration_s
    else:
        assert math.isclose(back.step.duration_s, told.step.duration_s, abs_tol=0.0001)
    kept = msgspec.structs.replace(told.step, ended_s=0, duration_s=None)
    found = msgspec.structs.replace(back.step, ended_s=0, duration_s=None)
    assert msgspec.structs.asdict(found) == _rounded(kept)


def test_a_limit_below_the_device_is_remembered_with_the_process() -> None:
    history = History()
    rank = RankSample(pid=1, allocator=AllocatorReading(GIB), capacity_bytes=20 * GIB + 7)
    history.add(_sample(0, rank))
    (back,) = _over_the_wire(history).samples()
    assert back.ranks[0].capacity_bytes == 20 * GIB + 7


def test_figures_beyond_the_columns_are_clamped_and_do_not_end_the_hub() -> None:
    history = History()
    step = StepReading(2**50, NOW_S + 60, duration_s=1e9, floor_bytes=2**60)
    rank = RankSample(pid=1, allocator=AllocatorReading(2**60), step=step, steps_within=2**20)
    history.add(_sample(0, rank))
    (back,) = next(history.samples()).ranks
    assert back.allocator is not None
    assert back.step is not None
    assert (back.allocator.allocated_bytes, back.step.floor_bytes) == (MOST_BYTES, MOST_BYTES)
    assert back.steps_within == 2**15 - 1
    assert (back.step.index, back.step.ended_s) == (2**32 - 2, NOW_S)


@settings(max_examples=30)
@given(st.lists(st.none() | st.integers(0, 2**60), min_size=1, max_size=12))
def test_device_figures_come_back_exact_whatever_their_size(useds: list[int | None]) -> None:
    history = History(fine_ticks=8)
    for seq, used in enumerate(useds):
        memory = MemoryReading(80 * GIB, used, None, used, used)
        history.add(_sample(seq, devices=(DeviceSample("GPU-a", 0, memory=memory),)))
    for source in (history, _over_the_wire(history)):
        assert [sample.devices[0].memory.used_bytes for sample in source.samples()] == useds[-8:]


def test_eight_devices_with_a_rank_each_fit_in_four_mebibytes() -> None:
    minutes = 600
    history = History(fine_ticks=3600, coarse_ticks=minutes)
    step_s = 60.0 * (minutes + 2) / 3600
    for seq in range(3600):
        sample = _sample(
            seq,
            *(_make_full_rank(n, seq) for n in range(8)),
            devices=tuple(_make_full_device(n, seq) for n in range(8)),
        )
        history.add(msgspec.structs.replace(sample, time_s=NOW_S + seq * step_s))
    block = history.block()
    fine, coarse = (
        sum(len(column) for columns in ring.values() for column in columns.values())
        for ring in (block.fine, block.coarse)
    )
    fine += sum(len(column) for column in block.fine_ticks.values())
    coarse += sum(len(column) for column in block.coarse_ticks.values())
    assert len(block.ranks) == 8
    assert all(len(block.fine[f"rank:{n}:None"]) == 19 for n in range(8))
    assert fine + coarse * 7 * 24 * 60 / minutes <= 4 * MIB


def _make_full_rank(pid: int, seq: int) -> RankSample:
    figure = GIB + seq * MIB + 100
    return RankSample(
        pid=pid,
        device_uuid=f"GPU-{pid}",
        allocator=AllocatorReading(figure, figure, figure, figure, figure, figure, 1, 0),
        resident_bytes=figure,
        step=StepReading(seq, NOW_S, 0.5, figure, figure),
        steps_within=2,
        floor_min_bytes=figure,
        peak_max_bytes=figure,
    )


def _make_full_device(index: int, seq: int) -> DeviceSample:
    figure = 2 * GIB + seq * MIB
    return DeviceSample(
        f"GPU-{index}",
        index,
        memory=MemoryReading(80 * GIB, figure, 80 * GIB - figure, figure, figure),
        allocator=AllocatorReading(figure, figure, figure),
        utilization_percent=50.0,
        step=seq,
    )
