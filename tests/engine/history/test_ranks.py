"""Allocator data and training processes in the ring: drawn, handed on, and bounded."""

import msgspec

from vramscope.engine.history import Field, History, HistoryBlock
from vramscope.engine.history.block import MAX_RANKS
from vramscope.engine.history.history import FINE_TICKS, MAX_MODELLED
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    RankState,
    Sample,
)

GIB = 1024**3
MIB = 1024**2


def make_sample(seq: int, *devices: DeviceSample, ranks: tuple[RankSample, ...] = ()) -> Sample:
    """Return a sample, one second after the one before."""
    return Sample(node="n", seq=seq, time_s=1000.0 + seq, interval_s=1.0, devices=devices, ranks=ranks)


def make_device(seq: int, uuid: str = "GPU-a", *, kind: str = "gpu") -> DeviceSample:
    """Return a device on which three steps end every two seconds."""
    allocator = AllocatorReading(seq * MIB, 2 * seq * MIB, 3 * seq * MIB, retries=1)
    memory = MemoryReading(80 * GIB, 4 * seq * MIB, 70 * GIB, 4 * seq * MIB, 5 * seq * MIB)
    return DeviceSample(
        uuid=uuid,
        index=0,
        kind=kind,  # type: ignore[arg-type] # one of its literals
        memory=memory,
        allocator=allocator,
        utilization_percent=50.0,
        step=3 * seq // 2,
    )


def make_rank(pid: int, *, retries: int = 0, ooms: int = 0, state: RankState = "ok") -> RankSample:
    """Return a process on GPU-a."""
    return RankSample(
        pid=pid,
        started_s=5.0,
        job="j",
        device_uuid="GPU-a",
        backend="cuda",
        coordinates=RankCoordinates(pid),
        state=state,
        allocator=AllocatorReading(allocated_bytes=GIB, retries=retries, ooms=ooms),
        flight_record="/x/oom.json" if ooms else None,
        oom_size_bytes=GIB if ooms else None,
    )


def _over_the_wire(history: History) -> HistoryBlock:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(history.block()), type=HistoryBlock)


def test_allocated_reserved_and_steps_are_drawn_by_early_and_late_viewers() -> None:
    hub, late = History(), History()
    fields: tuple[Field, ...] = ("used", "allocated", "reserved", "step")
    for seq in range(4):
        hub.add(make_sample(seq, make_device(seq)))
        if seq == 1:
            for field in fields:
                hub.columns("GPU-a", field, 1001.0, 1.0, 4)  # views from here on
    late.extend(_over_the_wire(hub))
    for viewer in (hub, late):
        lasts = {field: viewer.columns("GPU-a", field, 1003.0, 1.0, 4).last for field in fields}
        assert lasts == {
            "used": [seq * 4 * MIB for seq in range(4)],
            "allocated": [seq * MIB for seq in range(4)],
            "reserved": [seq * 3 * MIB for seq in range(4)],
            "step": [0, 1, 3, 4],
        }
        assert viewer.columns("GPU-a", "allocated", 1003.0, 1.0, 1).maximum == [6 * MIB]


def test_samples_of_the_ring_hold_what_analyzers_decide_by() -> None:
    hub, worker = History(), History()
    states: tuple[RankState, ...] = ("ok", "stale", "ended")
    for seq, state in enumerate(states):
        hub.add(make_sample(seq, make_device(seq), ranks=(make_rank(7, retries=seq, ooms=seq, state=state),)))
    hub.add(make_sample(3, make_device(3)))
    worker.extend(_over_the_wire(hub))
    first, _, last, after = worker.samples()
    assert first.devices[0].allocator == AllocatorReading(0, 0, 0)
    assert first.ranks[0].allocator == make_rank(7).allocator
    assert last.ranks == (make_rank(7, retries=2, ooms=2, state="ended"),)
    assert after.ranks == ()


def test_reserved_alone_is_an_allocator_reading_too() -> None:
    history = History()
    device = msgspec.structs.replace(make_device(1), allocator=AllocatorReading(reserved_bytes=GIB))
    history.add(make_sample(1, device))
    assert next(history.samples()).devices[0].allocator == AllocatorReading(reserved_bytes=GIB)


def test_counters_beyond_their_columns_do_not_end_the_hub() -> None:
    history = History()
    history.add(make_sample(1, ranks=(make_rank(7, retries=2**60, ooms=2**60),)))
    (rank,) = next(history.samples()).ranks
    assert rank.allocator is not None
    assert (rank.allocator.retries, rank.allocator.ooms) == (2**31 - 1, 2**15 - 1)


def test_short_processes_push_out_the_oldest_and_no_memory_grows() -> None:
    history = History()
    for seq in range(3 * MAX_RANKS):
        history.add(make_sample(seq, ranks=(make_rank(1), make_rank(1000 + seq))))
    block = history.block()
    assert len(block.ranks) == MAX_RANKS
    assert len(block.fine) == MAX_RANKS
    assert {1, 1000 + 3 * MAX_RANKS - 1} <= {header.pid for header in block.ranks.values()}


def test_many_ranks_at_once_are_all_kept() -> None:
    history = History()
    for seq in range(3):
        history.add(make_sample(seq, ranks=tuple(make_rank(n) for n in range(2 * MAX_RANKS))))
    assert [len(sample.ranks) for sample in history.samples()] == 3 * [2 * MAX_RANKS]


def test_simulated_cards_of_past_runs_are_forgotten_and_real_devices_are_not() -> None:
    history = History()
    for seq in range(3 * MAX_MODELLED):
        card = make_device(seq, f"sim-{seq}-0", kind="simulated")
        history.columns(card.uuid, "used", 1000.0, 60.0, 3)
        history.add(make_sample(120 * seq, make_device(seq), card))
    block = history.block()
    assert len(block.devices) == MAX_MODELLED + 1
    assert set(block.fine) == set(block.coarse) | {card.uuid} == set(block.devices)
    assert history.peak("sim-0-0") is None
    assert history.peak("GPU-a") is not None


def test_processes_that_come_and_go_take_memory_for_as_long_as_they_ran() -> None:
    """A column of an hour for each of the last 64 would take 15 MiB of every agent and viewer."""
    history = History()
    card = make_device(0)
    for seq in range(2 * FINE_TICKS):
        history.add(make_sample(seq, card, ranks=(make_rank(1000 + seq // 60),)))
    blocks = [
        block
        for columns in history._fine._columns.values()
        for column in columns.values()
        for block in column._blocks.values()
    ]
    assert len(history._ranks) == MAX_RANKS
    assert sum(len(block) * block.itemsize for block in blocks) < 2 * MIB


def test_a_viewer_that_draws_devices_keeps_no_figures_of_processes() -> None:
    hub = History()
    for seq in range(20):
        hub.add(make_sample(seq, make_device(seq), ranks=(make_rank(1), make_rank(2))))

    viewer = History(keeps_ranks=False)
    viewer.extend(_over_the_wire(hub))
    for seq in range(20, 30):
        viewer.add(make_sample(seq, make_device(seq), ranks=(make_rank(1), make_rank(3))))

    assert [sample.ranks for sample in viewer.samples()] == [()] * 30
    assert set(viewer.block().fine) == {"GPU-a"}
    drawn = viewer.columns("GPU-a", "used", 1029.0, 1.0, 30).last
    assert drawn == [4.0 * seq * MIB for seq in range(30)]


def test_a_viewer_that_missed_ticks_adds_them_without_processes() -> None:
    hub, viewer = History(), History(keeps_ranks=False)
    for seq in range(10):
        sample = make_sample(seq, make_device(seq), ranks=(make_rank(1),))
        hub.add(sample)
        if seq < 5:
            viewer.add(sample)

    viewer.extend(_over_the_wire(hub))

    assert viewer.last_seq == 9
    assert set(viewer.block().fine) == {"GPU-a"}
