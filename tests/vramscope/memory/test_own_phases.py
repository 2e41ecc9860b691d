"""Parts of the program's own loop, on a stand-in of an allocator: exact peaks, and lower bounds."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import vramscope
from vramscope.engine.probe.backends import Reading
from vramscope.memory.profiler import MOST_NAMES, OwnPhases


class Allocator:
    """Counts as PyTorch does: bytes now, and the most since the start."""

    def __init__(self) -> None:
        self.now = self.peak = 0
        self.module = SimpleNamespace(reset_peak_memory_stats=lambda _: pytest.fail("nobody asked for it"))

    def add(self, more: int) -> None:
        self.now += more
        self.peak = max(self.peak, self.now)

    def find_held(self) -> dict[int, int]:
        return {0: self.now} if self.now else {}

    def read(self, ordinal: int) -> Reading:
        return Reading(allocated_bytes=self.now, reserved_bytes=self.now, peak_bytes=self.peak)


@pytest.fixture
def allocator() -> Allocator:
    return Allocator()


@pytest.fixture
def phases(allocator: Allocator) -> Iterator[OwnPhases]:
    reader: Any = allocator
    made = OwnPhases(lambda: reader, resets_peaks=False)
    made.start()
    yield made
    made.stop()


def test_a_peak_is_exact_where_it_is_a_record_and_else_a_lower_bound(
    phases: OwnPhases, allocator: Allocator
) -> None:
    allocator.add(10)
    with vramscope.phase("first"):
        allocator.add(90)
        allocator.add(-80)
    with vramscope.phase("second"):
        allocator.add(50)
        allocator.add(-40)
    first, second = phases.usages
    assert (first.peak_allocated_bytes, first.is_peak_exact) == (100, True)
    assert (second.peak_allocated_bytes, second.is_peak_exact) == (30, False)
    assert (second.newest.before.allocated_bytes, second.newest.after.allocated_bytes) == (20, 30)


def test_a_part_that_raises_or_repeats_counts_and_names_are_bounded(
    phases: OwnPhases, allocator: Allocator
) -> None:
    allocator.add(10)
    for _ in range(2):
        with pytest.raises(ValueError), vramscope.phase("fails"):  # noqa: PT011 - of the program
            raise ValueError
    assert [(it.newest.phase, it.calls) for it in phases.usages] == [("fails", 2)]
    for number in range(MOST_NAMES + 5):
        with vramscope.phase(f"made up {number}"):
            pass
    assert len(phases.usages) == MOST_NAMES


def test_an_allocator_that_fails_never_reaches_the_program(allocator: Allocator) -> None:
    def fail() -> None:
        raise RuntimeError("the driver is gone")

    phases = OwnPhases(fail, resets_peaks=False)
    phases.start()
    with vramscope.phase("forward"):
        allocator.add(1)
    phases.stop()
    assert phases.usages == ()
