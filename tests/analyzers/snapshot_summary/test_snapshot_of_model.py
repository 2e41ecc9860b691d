"""What a snapshot of the allocator model says equals what the model's own statistics say."""

import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from tests.engine.files.snapshots import MIB, frame
from vramscope.analyzers.allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
)
from vramscope.analyzers.snapshot_summary import DeviceSummary, summarize_snapshot, trace_levels
from vramscope.engine.files.memory_snapshot import MemorySnapshot, read_memory_snapshot

REMAINDER_BYTES = MIB
"""A block of the large pool keeps a remainder of up to this, which its trace entry does not have."""


class Job:
    """Allocates and frees at random; the line of a frame is the number of the allocation."""

    def __init__(self, seed: int, settings: str, capacity_mib: int = 600, ring: int = 100_000) -> None:
        self.chance = random.Random(seed)
        self.line = 0
        self.live: dict[int, int] = {}
        self.at_failure: list[tuple[int, int, int, set[int]]] = []
        self.allocator = CachingAllocator(
            PrivateDeviceMemory(capacity_mib * MIB), AllocatorSettings.parse(settings)
        )
        self.allocator.record_history(ring, self._frames)

    def _frames(self) -> list[dict[str, Any]]:
        return [frame("step", "/job/train.py", self.line)]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.live and self.chance.random() < 0.4:
                address = self.chance.choice(list(self.live))
                del self.live[address]
                self.allocator.free(address)
            else:
                self._allocate()

    def free_most(self) -> None:
        for address in list(self.live)[5:]:
            del self.live[address]
            self.allocator.free(address)

    def _allocate(self) -> None:
        self.line += 1
        largest = self.chance.choice([2_000, MIB, 8 * MIB, 40 * MIB])
        size = self.chance.randint(1, largest)
        try:
            self.live[self.allocator.malloc(size, self.chance.choice([0, 0, 0, 7]))] = self.line
        except AllocatorOutOfMemoryError:
            model = self.allocator
            lines = set(self.live.values())
            self.at_failure.append((size, model.allocated_bytes, model.reserved_bytes, lines))

    def read(self, folder: Path, protocol: int = 4) -> MemorySnapshot:
        path = folder / "snapshot.pickle"
        path.write_bytes(pickle.dumps(self.allocator.snapshot(), protocol=protocol))
        return read_memory_snapshot(path)


def summarize(snapshot: MemorySnapshot) -> DeviceSummary:
    (device,) = summarize_snapshot(snapshot, top=10_000).devices
    return device


@pytest.mark.parametrize("settings", ["", "expandable_segments:True", "max_split_size_mb:24"])
@pytest.mark.parametrize("seed", range(4))
def test_levels_are_the_statistics(tmp_path: Path, settings: str, seed: int) -> None:
    job = Job(seed, settings)
    job.run(400)
    levels = summarize(job.read(tmp_path)).levels
    stats = job.allocator.memory_stats()
    assert levels.reserved_bytes == stats["reserved_bytes.all.current"]
    assert levels.allocated_bytes == stats["allocated_bytes.all.current"]
    assert levels.active_bytes == stats["active_bytes.all.current"]
    assert levels.requested_bytes == stats["requested_bytes.all.current"]
    assert levels.live_blocks == stats["active.all.current"]
    if "expandable" not in settings:
        assert levels.stranded_bytes == stats["inactive_split_bytes.all.current"]


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
@pytest.mark.parametrize("seed", range(4))
def test_emptying_the_cache_gives_back_what_was_called_releasable(
    tmp_path: Path, settings: str, seed: int
) -> None:
    job = Job(seed, settings)
    job.run(400)
    job.free_most()
    levels = summarize(job.read(tmp_path)).levels
    assert levels.releasable_bytes > 0
    job.allocator.empty_cache()
    after = summarize(job.read(tmp_path)).levels
    assert after.reserved_bytes == levels.reserved_bytes - levels.releasable_bytes
    assert (after.releasable_bytes, after.stranded_bytes) == (0, levels.stranded_bytes)


@pytest.mark.parametrize("ring", [100_000, 150])
@pytest.mark.parametrize("seed", range(4))
def test_failures_tell_what_was_live(tmp_path: Path, seed: int, ring: int) -> None:
    job = Job(seed, "", capacity_mib=200, ring=ring)
    job.run(400)
    assert job.at_failure
    failures = summarize(job.read(tmp_path)).failures
    assert failures
    for failure, known in zip(failures, reversed(job.at_failure), strict=False):
        size, allocated_bytes, reserved_bytes, lines = known
        assert failure.size_bytes in (size, -(-size // 512) * 512)
        assert failure.reserved_bytes == reserved_bytes
        slack = REMAINDER_BYTES * len(lines)
        assert allocated_bytes - slack <= failure.allocated_bytes <= allocated_bytes
        assert {group.frames[0].line for group in failure.live} <= lines
        assert len(failure.live) == min(len(lines), 10)


def test_level_before_the_ring_is_found_backwards(tmp_path: Path) -> None:
    whole, cut = Job(3, ""), Job(3, "", ring=200)
    whole.run(500)
    cut.run(500)
    levels = trace_levels(whole.read(tmp_path), 0)
    newest = trace_levels(cut.read(tmp_path), 0)
    assert levels is not None
    assert newest is not None
    assert (len(newest), levels.start_reserved_bytes) == (200, 0)
    assert newest.start_reserved_bytes == levels.reserved_bytes[-201]
    assert newest.reserved_bytes.tolist() == levels.reserved_bytes[-200:].tolist()
    assert newest.allocated_bytes.tolist() == levels.allocated_bytes[-200:].tolist()
