"""What holds after any history: nothing is lost, nothing overlaps, neighbours that are free are one."""

from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings

from vramscope.analyzers.allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
)

from .histories import CAPACITIES, POOLED, SETTINGS, STREAMED, Call

THOROUGH = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Player:
    """Plays a history, and keeps its own account of what is live."""

    def __init__(self, text: str, capacity: int) -> None:
        self.capacity = capacity
        card = PrivateDeviceMemory(capacity)
        self.card = card
        self.allocator = CachingAllocator(card, AllocatorSettings.parse(text))
        self.live: dict[int, int] = {}
        self.is_capturing = False
        self.peak = 0

    def play(self, call: Call) -> None:
        allocator, live = self.allocator, self.live
        if call.action == "malloc":
            try:
                address = allocator.malloc(call.size, call.stream)
            except AllocatorOutOfMemoryError:
                return
            assert address not in live
            live[address] = call.size
        elif call.action == "free" and live:
            address = list(live)[call.which % len(live)]
            del live[address]
            allocator.free(address)
        elif call.action == "record" and live:
            allocator.record_stream(list(live)[call.which % len(live)], 7)
        elif call.action == "finish":
            allocator.synchronize()
        elif call.action == "empty":
            allocator.empty_cache()
        elif call.action == "begin" and not self.is_capturing:
            allocator.begin_pool((0, 1))
            self.is_capturing = True
        elif call.action == "end" and self.is_capturing:
            allocator.end_pool((0, 1))
            self.is_capturing = False

    def check(self) -> None:
        allocator = self.allocator
        stats, segments = allocator.memory_stats(), allocator.memory_snapshot()
        for segment in segments:
            _check_segment(segment)
        blocks = [block for segment in segments for block in segment["blocks"]]
        in_use = {b["address"]: b["requested_size"] for b in blocks if b["state"] == "active_allocated"}
        assert in_use == self.live
        assert allocator.allocated_bytes == sum(segment["allocated_size"] for segment in segments)
        assert allocator.active_bytes == sum(segment["active_size"] for segment in segments)
        assert allocator.reserved_bytes == sum(segment["total_size"] for segment in segments)
        assert allocator.reserved_bytes == self.capacity - self.card.free_bytes() <= self.capacity
        for key, value in stats.items():
            name, dot, part = key.rpartition(".")
            if dot and part == "current":
                assert 0 <= value == stats[f"{name}.allocated"] - stats[f"{name}.freed"], name
                assert value <= stats[f"{name}.peak"], name
        assert self.peak <= stats["allocated_bytes.all.peak"]
        self.peak = stats["allocated_bytes.all.peak"]


def _check_segment(segment: dict[str, Any]) -> None:
    blocks = segment["blocks"]
    assert blocks[0]["address"] == segment["address"]
    assert sum(block["size"] for block in blocks) == segment["total_size"]
    for one, following in pairwise(blocks):
        assert one["address"] + one["size"] == following["address"]
        assert {one["state"], following["state"]} != {"inactive"}
    for block in blocks:
        assert block["size"] % 512 == 0
        assert block["size"] >= block["requested_size"]


@THOROUGH
@given(calls=STREAMED, text=SETTINGS, capacity=CAPACITIES)
def test_the_books_are_in_order_after_every_call(calls: list[Call], text: str, capacity: int) -> None:
    player = Player(text, capacity)
    for call in calls:
        player.play(call)
        player.check()


@THOROUGH
@given(calls=POOLED, text=SETTINGS, capacity=CAPACITIES)
def test_the_books_are_in_order_with_private_pools(calls: list[Call], text: str, capacity: int) -> None:
    player = Player(text, capacity)
    for call in calls:
        player.play(call)
    player.check()


@THOROUGH
@given(calls=STREAMED, text=SETTINGS, capacity=CAPACITIES)
def test_all_goes_back_when_all_is_freed(calls: list[Call], text: str, capacity: int) -> None:
    player = Player(text, capacity)
    for call in calls:
        player.play(call)
    for address in player.live:
        player.allocator.free(address)
    player.allocator.empty_cache()
    assert player.allocator.reserved_bytes == player.allocator.active_bytes == 0
    assert player.card.free_bytes() == capacity


@THOROUGH
@given(calls=STREAMED, text=SETTINGS, capacity=CAPACITIES)
def test_looking_changes_nothing(calls: list[Call], text: str, capacity: int) -> None:
    watched, unwatched = Player(text, capacity), Player(text, capacity)
    for call in calls:
        for player in (watched, unwatched):
            player.play(call)
        watched.check()
    assert watched.allocator.memory_stats() == unwatched.allocator.memory_stats()
    assert watched.allocator.memory_snapshot() == unwatched.allocator.memory_snapshot()


@THOROUGH
@given(calls=POOLED, text=SETTINGS, capacity=CAPACITIES)
def test_recording_changes_nothing(calls: list[Call], text: str, capacity: int) -> None:
    """Recording takes the path of all rules, which must come to what the short one does."""
    plain, recorded = Player(text, capacity), Player(text, capacity)
    recorded.allocator.record_history(20, None)
    for call in calls:
        for player in (plain, recorded):
            player.play(call)
    assert plain.allocator.memory_stats() == recorded.allocator.memory_stats()
    assert plain.allocator.memory_snapshot() == recorded.allocator.memory_snapshot()
