"""Canned training processes: one, eight, two on a device, on simulated devices, on the processors."""

from collections.abc import Iterator

import msgspec

from tests.tui.canned import (
    NODE,
    NOON_S,
    fill_history,
    make_device,
    make_hub,
    make_past,
    make_process,
    make_sample,
)
from vramscope.engine.history import History
from vramscope.engine.model import (
    AllocatorReading,
    DeviceSample,
    LiveStack,
    ModelStateReading,
    RankCoordinates,
    RankSample,
    Sample,
    Segment,
    SegmentMap,
    StepReading,
)
from vramscope.engine.units import GIB, MIB
from vramscope.engine.viewer.snapshot import Snapshot

CONTEXT_BYTES = int(1.6 * GIB)


def make_rank(index: int, *, pid: int | None = None, world: int = 8, **changes: object) -> RankSample:
    """Return a rank of a job cut into two by tensors and four by pipeline stages."""
    rank = RankSample(
        pid=pid or 4000 + 10 * index,
        started_s=NOON_S - 900,
        job="gpt-30b",
        command=f"python train.py --rank {index}",
        device_uuid=f"GPU-{index:04d}",
        backend="cuda",
        coordinates=RankCoordinates(
            index, world, tp=index % 2, pp=index // 2, local_rank=index, source="Megatron"
        ),
        age_s=0.2,
        allocator=make_allocator(50.0 + index),
        step=make_step(1842, 50.0 + index),
        steps_within=1,
        model_state=ModelStateReading(12 * GIB, 6 * GIB, 18 * GIB),
        allocator_settings="max_split_size_mb:128",
    )
    return msgspec.structs.replace(rank, **changes)


def make_step(index: int, peak_gib: float = 50.0, *, duration_s: float = 1.04) -> StepReading:
    """Return a step that ended half a second before noon's first second."""
    return StepReading(index, NOON_S + 0.5, duration_s, int(0.72 * peak_gib * GIB), int(peak_gib * GIB), True)


def make_allocator(allocated_gib: float, cached_gib: float = 6.8, **changes: object) -> AllocatorReading:
    """Return an allocator that holds a little more than its tensors need."""
    allocated = int(allocated_gib * GIB)
    reading = AllocatorReading(
        allocated_bytes=allocated,
        allocated_max_bytes=allocated + GIB // 2,
        reserved_bytes=allocated + int(cached_gib * GIB),
        requested_bytes=allocated - 64 * MIB,
        active_bytes=allocated + 128 * MIB,
        inactive_split_bytes=int(0.4 * GIB),
        retries=0,
        ooms=0,
    )
    return msgspec.structs.replace(reading, **changes)


def add_up(ranks: list[RankSample]) -> AllocatorReading:
    """Return the sum of allocators, as a hub tells it of a device."""
    readings = [rank.allocator for rank in ranks if rank.allocator is not None]
    names = AllocatorReading.__struct_fields__
    return AllocatorReading(*(sum(getattr(reading, name) or 0 for reading in readings) for name in names))


def make_trained(index: int, ranks: list[RankSample], **changes: object) -> DeviceSample:
    """Return a device on which ranks train: it uses what they reserve, their contexts and a little more."""
    allocator = add_up(ranks)
    used = (allocator.reserved_bytes or 0) + len(ranks) * CONTEXT_BYTES + int(0.7 * GIB)
    device = make_device(index, used / GIB, processes=0)
    held = (allocator.reserved_bytes or 0) // max(1, len(ranks)) + CONTEXT_BYTES
    processes = tuple(make_process(rank.pid, held // MIB, command="python train.py") for rank in ranks)
    shared = {"allocator": allocator, "processes": processes, "step": 1842, **changes}
    return msgspec.structs.replace(device, **shared)


def make_job(count: int) -> tuple[list[DeviceSample], list[RankSample]]:
    """Return as many devices as ranks, one of each."""
    ranks = [make_rank(index, world=count) for index in range(count)]
    return [make_trained(index, [rank]) for index, rank in enumerate(ranks)], ranks


def make_crowd() -> tuple[list[DeviceSample], list[RankSample]]:
    """Return one device that two ranks share."""
    ranks = [
        make_rank(index, world=2, device_uuid="GPU-0000", allocator=make_allocator(20.0 + index, 3.0))
        for index in range(2)
    ]
    return [make_trained(0, ranks)], ranks


def make_simulated(count: int = 2, *, job: str = "tiny") -> tuple[list[DeviceSample], list[RankSample]]:
    """Return modelled cards of 24 GiB with a rank each; nothing but memory is known of them."""
    devices, ranks = [], []
    for index in range(count):
        allocator = make_allocator(11.0 + index, 1.5)
        reserved = allocator.reserved_bytes or 0
        rank = make_rank(
            index,
            world=count,
            job=job,
            is_simulated=True,
            device_uuid=f"sim-{job}-{index}",
            allocator=allocator,
            context_bytes=512 * MIB,
            coordinates=RankCoordinates(index, count, dp=index, local_rank=index, source="environment"),
            step=make_step(212, 12.0 + index, duration_s=0.31),
            model_state=ModelStateReading(2 * GIB, 2 * GIB, 4 * GIB),
        )
        used = reserved + 512 * MIB
        device = make_device(index, used / GIB, processes=0)
        memory = msgspec.structs.replace(device.memory, total_bytes=24 * GIB, free_bytes=24 * GIB - used)
        processes = (make_process(rank.pid, used // MIB, command="python train.py"),)
        devices.append(
            DeviceSample(
                uuid=rank.device_uuid or "",
                index=index,
                name="Modelled 24 GiB",
                kind="simulated",
                age_s=0.2,
                memory=memory,
                allocator=allocator,
                processes=processes,
                step=212,
            )
        )
        ranks.append(rank)
    return devices, ranks


def make_on_processors() -> tuple[list[DeviceSample], list[RankSample]]:
    """Return the host as a device, with a rank that trains on its processors and has no allocator."""
    rank = make_rank(
        0,
        world=1,
        backend="cpu",
        device_uuid="cpu",
        allocator=None,
        job=None,
        coordinates=None,
        model_state=ModelStateReading(800 * MIB, 800 * MIB, 1600 * MIB),
        step=StepReading(17, NOON_S + 0.4, 2.2),
        resident_bytes=5 * GIB,
    )
    reading = make_device(0, 5.0).memory
    memory = msgspec.structs.replace(reading, total_bytes=64 * GIB, source="host")
    processes = (make_process(rank.pid, 5 * 1024, command="python train.py"),)
    device = DeviceSample("cpu", 0, None, kind="cpu", age_s=0.2, memory=memory, processes=processes)
    return [device], [rank]


def with_ranks(
    devices: list[DeviceSample], ranks: list[RankSample], seq: int = 1, **changes: object
) -> Snapshot:
    """Return a snapshot of devices on which ranks train."""
    sample = msgspec.structs.replace(make_sample(tuple(devices), seq), ranks=tuple(ranks))
    fields: dict[str, object] = {"connection": "live", "sample": sample, "hub": make_hub(), **changes}
    return Snapshot(**fields)  # type: ignore[arg-type]  # a test's own field names


def make_steps(devices: list[DeviceSample], ranks: list[RankSample], ticks: int = 300) -> list[Sample]:
    """Return what came before: allocators that breathe with every step of half a minute."""
    past = []
    for seq in range(-ticks, 1):
        swung = [
            _swing(device, 0.62 + 0.38 * ((seq + 7 * device.index) % 30) / 30, seq // 30)
            for device in devices
        ]
        at = [_step_back(rank, seq // 30) for rank in ranks]
        past.append(msgspec.structs.replace(make_sample(tuple(swung), seq), ranks=tuple(at)))
    return past


def _step_back(rank: RankSample, steps: int) -> RankSample:
    """Return a rank so many steps further; each a little longer than the one before."""
    if rank.step is None:
        return rank
    step = msgspec.structs.replace(
        rank.step,
        index=rank.step.index + steps,
        duration_s=(rank.step.duration_s or 1.0) + 0.01 * (steps % 7),
    )
    return msgspec.structs.replace(rank, step=step)


def _swing(device: DeviceSample, share: float, steps: int) -> DeviceSample:
    """Return a device whose allocator has given back a part of its tensors but keeps their memory."""
    if device.step is not None:
        device = msgspec.structs.replace(device, step=device.step + steps)
    allocator = device.allocator
    if allocator is None:
        return device
    allocated = int((allocator.allocated_bytes or 0) * share)
    swung = msgspec.structs.replace(
        allocator,
        allocated_bytes=allocated,
        allocated_max_bytes=min(allocated + GIB, allocator.reserved_bytes or allocated),
    )
    return msgspec.structs.replace(device, allocator=swung)


def make_segments(pid: int, device_uuid: str, *, with_stacks: bool = False) -> SegmentMap:
    """Return the segments of a process: full ones, some that are stranded, small ones, a private pool."""
    segments = [
        Segment(0x7F00_0000_0000 + (number << 30), size * MIB, "large", 0, tuple(blocks))
        for number, (size, blocks) in enumerate(_large_blocks())
    ]
    small = [((MIB // 2, 1), (MIB // 2, number % 3), (MIB, 1)) for number in range(40)]
    segments += [
        Segment(0x7E00_0000_0000 + (number << 21), 2 * MIB, "small", 0, blocks)
        for number, blocks in enumerate(small)
    ]
    segments.append(
        Segment(
            0x7D00_0000_0000, 4096 * MIB, "large", 0, ((3000 * MIB, 1), (1096 * MIB, 0)), is_expandable=True
        )
    )
    segments.append(
        Segment(0x7C00_0000_0000, 64 * MIB, "large", 0, ((32 * MIB, 1), (32 * MIB, 0)), is_private=True)
    )
    stacks = (
        LiveStack(
            12 * GIB, 384, (("/opt/torch/nn/linear.py", 120, "forward"), ("train.py", 212, "evaluate"))
        ),
        LiveStack(3 * GIB, 12, (("model.py", 88, "attend"), ("train.py", 40, "step"))),
    )
    return SegmentMap(
        NODE, pid, device_uuid, NOON_S - 2.0, tuple(segments), live_stacks=stacks if with_stacks else ()
    )


def _large_blocks() -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield size in MiB and blocks of large segments: every fifth is half empty, every ninth all free."""
    for number in range(60):
        size = (20, 512, 1024, 146, 2048)[number % 5]
        if number % 9 == 8:
            yield size, [(size * MIB, 0)]
        elif number % 5 == 2:
            yield size, [(size * MIB // 4, 1), (size * MIB // 2, 0), (size * MIB // 4, 1)]
        else:
            yield size, [(size * MIB, 1)]


def past_of(snapshot: Snapshot, ticks: int = 300) -> list[Sample]:
    """Return what came before a snapshot."""
    assert snapshot.sample is not None
    assert snapshot.sample.node == NODE
    if not snapshot.sample.ranks:
        return make_past(len(snapshot.sample.devices), ticks)
    return make_steps(list(snapshot.sample.devices), list(snapshot.sample.ranks), ticks)


def history_of(snapshot: Snapshot, ticks: int = 300) -> History:
    """Return a history of its own of what came before a snapshot."""
    return fill_history(snapshot, lambda: past_of(snapshot, ticks), ticks)
