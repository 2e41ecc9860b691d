"""What a trace says of the card that it was recorded on, and why cached memory was given back."""

from collections.abc import Callable
from typing import Any

import pytest

from vramscope.analyzers.allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
)
from vramscope.analyzers.snapshot_summary import trace_levels
from vramscope.analyzers.snapshot_summary.recorded_trace import CardEvidence, find_card
from vramscope.engine.files.memory_snapshot import convert_tree
from vramscope.engine.units import GIB, MIB

CARD_BYTES = 200 * MIB


class Recorded:
    """A process that records what its allocator does; each request may have its own stack."""

    def __init__(
        self, settings: str = "", *, has_stacks: bool = False, card: PrivateDeviceMemory | None = None
    ) -> None:
        self.settings = AllocatorSettings.parse(settings)
        self.allocator = CachingAllocator(card or PrivateDeviceMemory(CARD_BYTES), self.settings)
        self._line = 0
        self.allocator.record_history(10_000, self._stack if has_stacks else None)

    def _stack(self) -> list[dict[str, Any]]:
        self._line += 1
        return [{"filename": "/job/train.py", "line": self._line, "name": "step"}]

    def use(self, *sizes_mib: int) -> None:
        """Allocate and free one block after the other."""
        for size_mib in sizes_mib:
            self.allocator.free(self.allocator.malloc(size_mib * MIB))

    def find(self) -> CardEvidence:
        snapshot = convert_tree(self.allocator.snapshot())
        levels = trace_levels(snapshot, 0)
        assert levels is not None
        return find_card(snapshot.traces[0], levels, 0, own=self.settings)


def test_a_card_with_room_says_nothing() -> None:
    job = Recorded()
    job.use(30, 60)
    assert job.find() == CardEvidence()


@pytest.mark.parametrize("has_stacks", [False, True])
def test_a_request_that_found_no_room_bounds_the_card(has_stacks: bool) -> None:
    job = Recorded(has_stacks=has_stacks)
    job.use(30, 60, 90, 120)
    # 180 MiB were reserved, and 120 more did not fit.
    assert job.find() == CardEvidence(298 * MIB, "full", 1)
    job.allocator.malloc(120 * MIB)
    job.use(70)
    job.allocator.malloc(12 * MIB, stream=1)
    # Now 190 MiB, and 12 more did not fit.
    assert job.find() == CardEvidence(200 * MIB, "full", 2)


def test_the_room_at_an_error_says_it_exactly() -> None:
    job = Recorded()
    job.use(30, 60)
    with pytest.raises(AllocatorOutOfMemoryError):
        job.allocator.malloc(300 * MIB)
    assert job.find() == CardEvidence(CARD_BYTES, "oom", 1)


def test_an_error_in_spite_of_room_is_the_limit_of_the_process() -> None:
    job = Recorded("per_process_memory_fraction:0.4")
    with pytest.raises(AllocatorOutOfMemoryError):
        job.allocator.malloc(100 * MIB)
    assert job.find() == CardEvidence(98 * MIB, "full", 0)


def empty_between(job: Recorded) -> None:
    """More is reserved later than what is left of the cache and the request together."""
    job.use(30)
    job.allocator.empty_cache()
    job.use(60, 90)


def empty_at_the_end(job: Recorded) -> None:
    job.use(30, 60)
    job.allocator.empty_cache()


def empty_before_a_request_that_the_cache_would_have_served(job: Recorded) -> None:
    job.use(90)
    job.allocator.empty_cache()
    job.use(60)


@pytest.mark.parametrize(
    "work", [empty_between, empty_at_the_end, empty_before_a_request_that_the_cache_would_have_served]
)
@pytest.mark.parametrize("has_stacks", [False, True])
def test_a_cache_that_the_program_emptied_says_nothing_of_the_card(
    work: Callable[[Recorded], None], has_stacks: bool
) -> None:
    job = Recorded(has_stacks=has_stacks)
    work(job)
    found = job.find()
    assert (found.capacity_bytes, found.full, len(found.emptied_rows)) == (None, 0, 1)


def test_stacks_tell_both_apart_in_one_trace() -> None:
    job = Recorded(has_stacks=True)
    job.use(30, 60)
    job.allocator.empty_cache()
    # By its sizes alone this request, too, might have found no room: 90 MiB were reserved, and 140 more came.
    job.use(140)
    job.use(150)
    found = job.find()
    assert (found.capacity_bytes, found.full, len(found.emptied_rows)) == (288 * MIB, 1, 1)


def test_without_stacks_a_program_that_empties_its_cache_leaves_the_card_unknown() -> None:
    job = Recorded()
    job.use(90, 60)
    job.allocator.empty_cache()
    job.use(60, 100, 120)
    found = job.find()
    assert (found.capacity_bytes, found.full, len(found.emptied_rows)) == (None, 0, 2)


def test_what_others_took_meanwhile_does_not_make_the_card_less_than_was_reserved() -> None:
    card = PrivateDeviceMemory(CARD_BYTES)
    job = Recorded(card=card)
    job.use(60, 80)
    other = CachingAllocator(card, AllocatorSettings())
    job.allocator.empty_cache()
    other.malloc(150 * MIB)
    with pytest.raises(AllocatorOutOfMemoryError):
        job.allocator.malloc(80 * MIB)
    assert job.find().capacity_bytes == 140 * MIB


def test_blocks_that_go_early_bound_the_share_of_the_card() -> None:
    job = Recorded(
        "garbage_collection_threshold:0.5,per_process_memory_fraction:0.9", card=PrivateDeviceMemory(GIB)
    )
    job.use(100, 200, 300, 310)
    found = job.find()
    # Half of 921 MiB was passed at 600 MiB, where the last request came.
    assert (found.capacity_bytes, found.source, found.full) == (1198 * MIB, "full", 1)


def test_pages_bound_the_card_from_below() -> None:
    job = Recorded("expandable_segments:True")
    keep = job.allocator.malloc(100 * MIB)
    job.allocator.free(job.allocator.malloc(60 * MIB, stream=1))
    job.allocator.free(keep)
    job.allocator.malloc(150 * MIB)
    found = job.find()
    assert (found.capacity_bytes, found.source, found.full) == (160 * MIB, "full", 1)


def test_an_error_for_want_of_a_whole_page_says_the_card_exactly() -> None:
    job = Recorded("expandable_segments:True", card=PrivateDeviceMemory(192 * MIB))
    job.allocator.malloc(180 * MIB)
    # 12 MiB are free, and a page has 20.
    with pytest.raises(AllocatorOutOfMemoryError):
        job.allocator.malloc(11 * MIB)
    assert job.find() == CardEvidence(192 * MIB, "oom", 0)
