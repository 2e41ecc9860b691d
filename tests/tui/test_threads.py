"""A real thread feeds the view; nothing of it grows, and quitting does not wait for what hangs."""

import asyncio
import threading
import time
from collections.abc import Callable

import msgspec

from tests.tui.canned import FakeFeed, make_app, make_snapshot
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.app import SnapshotMailbox


class ThreadFeed(FakeFeed):
    """Hands snapshots over from a thread as fast as it can."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._thread = threading.Thread(target=self._run, name="feed")
        self.handed_over = 0

    def start(self, on_snapshot: Callable[[Snapshot], None]) -> None:
        self._on_snapshot = on_snapshot
        self._thread.start()

    def _run(self) -> None:
        for seq in range(1, self._count + 1):
            self.hand_over(make_snapshot(2, seq=seq))
            self.handed_over = seq

    def stop(self) -> None:
        super().stop()
        self._thread.join(10)


async def test_a_thread_that_outruns_the_screen_loses_frames_and_counts_them() -> None:
    feed = ThreadFeed(200)
    app = make_app(feed)
    async with app.run_test(size=(120, 32)) as pilot:
        deadline = time.monotonic() + 60
        while app.live.snapshot.sample is None or app.live.snapshot.sample.seq < 200:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        await pilot.pause()
        assert feed.handed_over == 200
        assert 0 <= app.live.frames_skipped < 200
    assert feed.is_stopped


def test_the_mailbox_holds_one_a_node_and_counts_the_rest() -> None:
    mailbox = SnapshotMailbox()
    assert mailbox.put(make_snapshot(1, seq=1))
    assert not mailbox.put(make_snapshot(1, seq=2))
    assert not mailbox.put(make_snapshot(1, seq=3))
    other = msgspec.structs.replace(make_snapshot(1, seq=2), node="node07")
    assert not mailbox.put(other)
    newest, beside = mailbox.take()
    assert newest.sample is not None
    assert newest.sample.seq == 3
    assert beside == other
    assert mailbox.replaced == 2
    assert mailbox.take() == ()
    assert mailbox.put(make_snapshot(1, seq=4))
