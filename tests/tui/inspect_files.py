"""Files that the tests of the inspect screen open: two devices with history, and plainer ones."""

import random
from pathlib import Path

from tests.analyzers.fragmentation.jobs import Job, vary
from tests.engine.files.snapshots import EMBED, LINEAR, MIB, Row, block, event, frame, free, segment, snapshot
from vramscope.engine.units import GIB

NOON_US = 1_760_011_200_000_000
"""9 October 2025, 12:00:00 UTC."""
LEAK = [
    frame("forward", "/usr/lib/python3/site-packages/torch/nn/modules/module.py", 1784),
    frame("forward", "/job/model.py", 66),
    frame("evaluate", "/job/train.py", 68),
    frame("train", "/job/train.py", 47),
    frame("<module>", "/job/train.py", 90),
]
BASE = 0x7F0000000000
DEVICE_STEP = 1 << 40


def make_segments(device: int, count: int = 24) -> list[Row]:
    """Return segments, a few of them expandable or small, between full and nearly empty."""
    numbers = random.Random(device)
    made = []
    for index in range(count):
        at = BASE + device * DEVICE_STEP + index * 256 * MIB
        if index % 6 == 5:
            made.append(
                segment([block(MIB, frames=EMBED), free(MIB)], at, device=device, segment_type="small")
            )
            continue
        blocks = [
            block(numbers.choice([4, 8, 12]) * MIB, frames=numbers.choice([LINEAR, EMBED, LEAK]))
            if numbers.random() < 0.75
            else free(numbers.choice([2, 6]) * MIB)
            for _ in range(10)
        ]
        made.append(segment(blocks, at, device=device))
    return made


def make_trace(device: int, rounds: int = 60) -> list[Row]:
    """Return a sawtooth that grows: a step a second, and at its end what was out of memory."""
    at, time_us = BASE + device * DEVICE_STEP + (1 << 36), NOON_US - rounds * 1_000_000
    events: list[Row] = []
    for number in range(rounds):
        step_us = time_us + number * 1_000_000
        events.append(event("alloc", at + number * 64 * MIB, 8 * MIB, step_us, frames=LEAK))
        for part in range(6):
            place = at + (1 << 38) + part * 128 * MIB
            events.append(event("alloc", place, 60 * MIB, step_us + (1 + part) * 100_000, frames=LINEAR))
        for part in range(6):
            place = at + (1 << 38) + part * 128 * MIB
            events.append(event("free_requested", place, 60 * MIB, step_us + 700_000 + part * 20_000))
            events.append(event("free_completed", place, 60 * MIB, step_us + 701_000 + part * 20_000))
    events.append(event("oom", 96 * MIB, 512 * MIB, NOON_US, frames=LEAK))
    return events


def rich_snapshot() -> Row:
    """Return two devices with history, the first of which ran out of memory."""
    segments = [*make_segments(0), *make_segments(1, 8)]
    return snapshot(segments, make_trace(0), make_trace(1, 5)[:-1])


def advised_snapshot() -> Row:
    """Return what a job of long and short rows leaves: with other settings it would have reserved less."""
    job = Job(4 * GIB, vary(1, 4000, 12000), keep=200)
    job.allocator.record_history(100_000)
    for _ in job.run(60):
        pass
    root: Row = job.allocator.snapshot()
    for events in root["device_traces"]:
        for at, each in enumerate(events):
            each["time_us"] = NOON_US + at * 1000
    return root


def bare_segments() -> list[Row]:
    """Return a bare list of segments as `torch.cuda.memory_snapshot` gives it, without any stack."""
    return [segment([block(6 * MIB), free(14 * MIB)])]


def save(folder: Path, root: object, name: str = "snapshot.pickle") -> Path:
    """Write a file and return its path."""
    from tests.engine.files.snapshots import write_snapshot

    return write_snapshot(folder, root, name=name)
