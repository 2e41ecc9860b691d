"""The model against the naive reading of the same rules, on histories that hypothesis makes up."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from vramscope.analyzers.allocator_model import (
    AllocatorOutOfMemoryError,
    AllocatorSettings,
    CachingAllocator,
    PrivateDeviceMemory,
)

from .histories import CAPACITIES, PLAIN, POOLED, SETTINGS, STREAMED, TEXTS, Call, make_long_history
from .naive import NaiveAllocator, NaiveOutOfMemoryError

MIB = 1 << 20
OTHER_STREAM = 7


class Pair:
    """The model and the naive allocator, told the same."""

    def __init__(self, text: str, capacity: int) -> None:
        parsed = AllocatorSettings.parse(text)
        self.model = CachingAllocator(PrivateDeviceMemory(capacity), parsed)
        self.naive = NaiveAllocator(parsed, capacity)
        if parsed.memory_fraction < 1:
            self.naive.limit = int(parsed.memory_fraction * capacity)
        self.live: list[int] = []
        self.begun: set[tuple[int, int]] = set()
        self.ended: list[tuple[int, int]] = []
        self._calls: dict[str, Callable[[Call], None]] = {
            "malloc": self.malloc,
            "free": self.free,
            "record": self.record,
            "finish": self.finish,
            "empty": self.empty,
            "begin": self.begin,
            "end": self.end,
            "release": self.release,
            "read": self.compare,
        }

    def play(self, calls: list[Call]) -> None:
        for call in calls:
            self._calls[call.action](call)
            assert self.model.reserved_bytes == self.naive.reserved
        self.compare()

    def malloc(self, call: Call) -> None:
        try:
            expected = self.naive.malloc(call.size, call.stream)
        except NaiveOutOfMemoryError:
            with pytest.raises(AllocatorOutOfMemoryError):
                self.model.malloc(call.size, call.stream)
            return
        assert self.model.malloc(call.size, call.stream) == expected
        self.live.append(expected)

    def free(self, call: Call) -> None:
        if self.live:
            address = self.live.pop(call.which % len(self.live))
            self.naive.free(address)
            self.model.free(address)

    def record(self, call: Call) -> None:
        # Within a capture uses are forgotten at its end (see test_private_pools.py).
        if self.live and not self.begun:
            address = self.live[call.which % len(self.live)]
            self.naive.record_stream(address, OTHER_STREAM)
            self.model.record_stream(address, OTHER_STREAM)

    def finish(self, call: Call) -> None:
        if self.begun:
            return
        stream = OTHER_STREAM if call.which % 2 else None
        self.naive.finish(stream)
        self.model.synchronize(stream)

    def empty(self, call: Call) -> None:
        self.naive.empty_cache()
        self.model.empty_cache()

    def begin(self, call: Call) -> None:
        pool = (0, call.which + 1)
        if pool not in self.begun and pool not in self.naive.released:
            self.begun.add(pool)
            self.naive.begin_pool(pool)
            self.model.begin_pool(pool)

    def end(self, call: Call) -> None:
        pool = (0, call.which + 1)
        if pool in self.begun:
            self.begun.remove(pool)
            self.ended.append(pool)
            self.naive.end_pool(pool)
            self.model.end_pool(pool)
        if not self.begun:
            self.naive.process_events()
            self.model.process_events()

    def release(self, call: Call) -> None:
        if self.ended:
            pool = self.ended.pop(call.which % len(self.ended))
            self.naive.release_pool(pool)
            self.model.release_pool(pool)

    def compare(self, call: Call | None = None) -> None:
        stats = self.model.memory_stats()
        for (name, kind), expected in self.naive.stats.items():
            keys = (f"{name}.{kind}.{part}" for part in ("current", "peak", "allocated", "freed"))
            assert [stats[key] for key in keys] == expected, (name, kind)
        counts = self.naive.counts
        assert stats["num_alloc_retries"] == counts["retries"]
        assert stats["num_ooms"] == counts["ooms"]
        assert stats["num_sync_all_streams"] == counts["syncs"]
        assert stats["num_device_alloc"] == counts["device_alloc"]
        assert stats["num_device_free"] == counts["device_free"]
        assert [
            (block["address"], block["size"], block["state"], block["requested_size"])
            for segment in self.model.memory_snapshot()
            for block in segment["blocks"]
        ] == self.naive.describe()


THOROUGH = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@THOROUGH
@given(calls=PLAIN, capacity=CAPACITIES)
def test_the_common_case_is_what_the_rules_say(calls: list[Call], capacity: int) -> None:
    Pair("", capacity).play(calls)


@THOROUGH
@given(calls=PLAIN, text=SETTINGS, capacity=CAPACITIES)
def test_every_setting_is_what_the_rules_say(calls: list[Call], text: str, capacity: int) -> None:
    Pair(text, capacity).play(calls)


@THOROUGH
@given(calls=STREAMED, text=SETTINGS, capacity=CAPACITIES)
def test_blocks_used_by_other_streams_wait_as_the_rules_say(
    calls: list[Call], text: str, capacity: int
) -> None:
    Pair(text, capacity).play(calls)


@THOROUGH
@given(calls=POOLED, text=SETTINGS, capacity=CAPACITIES)
def test_private_pools_stay_apart_as_the_rules_say(calls: list[Call], text: str, capacity: int) -> None:
    Pair(text, capacity).play(calls)


@pytest.mark.parametrize("text", TEXTS)
def test_long_histories_on_a_full_card_end_the_same(text: str) -> None:
    for seed, capacity in ((1, 100), (2, 250), (3, 700), (4, 10_000)):
        Pair(text, capacity * MIB).play(make_long_history(seed, 400))
