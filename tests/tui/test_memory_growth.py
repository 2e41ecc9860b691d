"""A view that stays open for hours holds no more in the end than at first: nothing closed or past is kept."""

import functools
import gc
import inspect
import random
import sys
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import pytest
from textual._styles_cache import StylesCache
from textual.screen import Screen
from textual.widget import Widget

from tests.conftest import leave_out_of_collections
from tests.tui.canned import NODE, FakeFeed, StillClock, make_app, make_finding, make_sample, make_snapshot
from tests.tui.canned_ranks import make_allocator, make_rank, make_step, make_trained
from vramscope.engine.history import History
from vramscope.engine.model import Finding
from vramscope.engine.viewer.conversation import Event, HubConversation
from vramscope.engine.viewer.picture import NodePicture
from vramscope.engine.wire.stores import MAX_CLOSED

SIZE = (120, 40)
DEVICES, TICK_S = 3, 20.0
TICKS_AN_HOUR = int(3600 / TICK_S)
DRAWN_EVERY = 15
"""Ticks from one picture to the next: a history grows by ticks, what is drawn by pictures."""
KEYS = (
    "2",
    "full_stop",
    "escape",
    "3",
    "escape",
    "question_mark",
    "escape",
    "s",
    "escape",
    "i",
    "escape",
    "1",
)
"""Those of an hour, one a picture."""
MOST_GROWTH_BLOCKS = 6_000
"""Blocks of memory, of 60 bytes on average: a screen of any kind that is left behind takes more."""


if TYPE_CHECKING:
    Cache = functools._lru_cache_wrapper[object]


class Load:
    """A node on which everything changes: memory, processes, jobs, steps, findings."""

    def __init__(self, clock: StillClock) -> None:
        self._clock, self._chance = clock, random.Random(17)
        self._seq = 0
        self._pids = [4000 + 10 * index for index in range(DEVICES)]
        self._findings: dict[int, Finding] = {}

    def advance(self) -> list[Event]:
        """Return what a hub publishes for the next tick."""
        chance = self._chance
        self._seq += 1
        self._clock.now_s += TICK_S
        events: list[Event] = []
        ranks = []
        for index in range(DEVICES):
            if chance.random() < 0.05:
                self._pids[index] = 5000 + self._seq * DEVICES + index
            pid = self._pids[index]
            allocator = make_allocator(chance.uniform(10, 60), chance.uniform(1, 5))
            step = make_step(self._seq, chance.uniform(10, 60))
            job = f"job {pid}"
            ranks.append(
                make_rank(index, pid=pid, started_s=float(pid), job=job, allocator=allocator, step=step)
            )
            if chance.random() < 0.3:
                events.append(self._change_finding(index))
        devices = tuple(make_trained(index, [rank], step=self._seq) for index, rank in enumerate(ranks))
        sample = make_sample(devices, self._seq)
        more = {"time_s": self._clock.now_s, "interval_s": TICK_S, "ranks": tuple(ranks)}
        return [*events, msgspec.structs.replace(sample, **more)]

    def _change_finding(self, index: int) -> Finding:
        """Open a finding on a device, or close the one that is open."""
        found = self._findings.pop(index, None)
        if found is not None:
            return msgspec.structs.replace(found, closed_s=self._clock.now_s)
        found = make_finding(index, opened_s=self._clock.now_s)
        self._findings[index] = msgspec.structs.replace(found, title=f"GPU {index} is full at {self._seq}")
        return self._findings[index]


class PictureFeed(FakeFeed):
    """Hands over what a viewer's picture of a hub shows."""

    def __init__(self, clock: StillClock) -> None:
        super().__init__()
        conversation = HubConversation(lambda _: None, clock)
        history = History(fine_ticks=TICKS_AN_HOUR, coarse_ticks=60)  # full after an hour
        self.picture = NodePicture(conversation, clock, history=history, node=NODE)
        self.history = self.picture.history

    def publish(self, events: list[Event], *, is_drawn: bool) -> None:
        """Take what a hub published, and hand over the picture where it is to be drawn."""
        self.picture.apply(events)
        if is_drawn:
            assert self._on_snapshot is not None
            self._on_snapshot(self.picture.newest)


def _count(kind: type) -> int:
    return sum(issubclass(type(found), kind) for found in gc.get_objects())


def _list_caches() -> "list[Cache]":
    """Return the caches of functions of ours and of what draws that remember more than one result."""
    return [
        found
        for found in gc.get_objects()
        if type(found) is functools._lru_cache_wrapper
        and found.__module__.startswith(("vramscope.", "textual.", "rich."))
        and inspect.signature(found).parameters
    ]


def _empty_caches(known: "list[Cache]") -> dict[str, int]:
    """Empty the bounded caches, which fill for hours; return the sizes of the unbounded."""
    unbounded = {}
    for cache in [*known, *_list_caches()]:
        if cache.cache_info().maxsize is None:
            unbounded[f"{cache.__module__}.{cache.__qualname__}"] = cache.cache_info().currsize
        else:
            cache.cache_clear()
    gc.collect()
    return unbounded


@pytest.fixture
def caches_before() -> "Iterator[list[Cache]]":
    """Return the caches that exist; all that exists is left out of the collections and counts of the test.

    The heap of the worker holds all tests: to walk it takes five times as long as the test.
    """
    gc.unfreeze()
    found = _list_caches()
    leave_out_of_collections()
    yield found
    leave_out_of_collections()


async def test_hours_of_changing_samples_and_of_screens_leave_nothing_behind(
    caches_before: "list[Cache]",
) -> None:
    clock = StillClock()
    feed, load = PictureFeed(clock), Load(clock)
    app = make_app(feed, clock=clock)
    blocks, widgets, caches = [], [], []
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(4):
            for tick in range(TICKS_AN_HOUR):
                feed.publish(load.advance(), is_drawn=tick % DRAWN_EVERY == 0)
                if tick % DRAWN_EVERY == 0:
                    await pilot.press(KEYS[tick // DRAWN_EVERY])
            await pilot.pause()
            app.clear_notifications()
            await pilot.pause()
            gc.collect()
            widgets.append((_count(Screen), _count(Widget), _count(StylesCache)))
            caches.append(_empty_caches(caches_before))
            blocks.append(sys.getallocatedblocks())
        closed = [finding for finding in feed.picture.newest.findings if not finding.is_open]
    assert widgets[3] <= widgets[1], f"screens, widgets and their caches by the hour: {widgets}"
    assert caches[3] == caches[1], "a cache without bound must have seen all its keys within two hours"
    assert len(closed) == MAX_CLOSED
    assert blocks[3] - blocks[1] < MOST_GROWTH_BLOCKS, f"blocks by the hour: {blocks}"


@pytest.mark.parametrize("key", ["2", "3", "question_mark", "s", "ctrl+p", "i"])
async def test_a_screen_that_is_closed_is_freed_by_the_next_collection(key: str) -> None:
    app = make_app(FakeFeed(make_snapshot()))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press(key)
        await pilot.pause()
        assert app.screen is not app.live
        screen = weakref.ref(app.screen)
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is app.live
        assert app.is_collection_due, "Python's own collector comes to old objects after hours"
        app.collect()
        assert screen() is None
        assert not app.is_collection_due
