"""The thread that plays runs one after the other: a run that takes long to read is left for a newer one."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.analyzers.planning.sweep.original import trace_text
from tests.engine.replay.recordings import fresh_analyzers
from tests.waiting import wait_until
from vramscope.engine.replay.feed import Playlist, PlaylistEntry, PlaylistFeed
from vramscope.engine.replay.player import ReplayCommand, ReplayOptions
from vramscope.engine.replay.tapes import TraceTape
from vramscope.engine.viewer.snapshot import Snapshot


class _Slow:
    """Three runs, of which the one in the middle is read for as long as nothing else is asked for."""

    def __init__(self, folder: Path) -> None:
        self.is_reading = threading.Event()
        self.said: list[str] = []
        path = folder / "memory_trace_rank0_wd1_tp1_pp1_l1_bs1.json"
        path.write_text(trace_text(1000.0))
        entries = [PlaylistEntry(name=name, state="ok", path=path) for name in ("first", "slow", "last")]
        playlist = Playlist(entries, self._open)
        opened = playlist.open(0, 1)
        assert opened is not None
        options = ReplayOptions(is_paused=True)
        self.feed = PlaylistFeed(playlist, opened, make_analyzers=fresh_analyzers, options=options)

    def _open(self, entry: PlaylistEntry, on_read: Callable[[float], None]) -> Sequence[TraceTape]:
        assert entry.path is not None
        while entry.name == "slow":
            self.is_reading.set()
            on_read(0.5)
            threading.Event().wait(0.005)
        return [TraceTape(entry.path)]

    def hear(self, snapshot: Snapshot) -> None:
        if snapshot.replay is not None and snapshot.replay.word is not None:
            self.said.append(snapshot.replay.word.text)

    def turn(self, places: int) -> None:
        self.feed.command(ReplayCommand("turn", places))

    def turn_while_reading(self, *places: int) -> None:
        """Ask for a run, and for others while it is read."""
        self.is_reading.clear()
        self.turn(places[0])
        wait_until(self.is_reading.is_set, what="the slow run to be read")
        for each in places[1:]:
            self.turn(each)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[_Slow]:
    made = _Slow(tmp_path)
    made.feed.start(made.hear)
    yield made
    made.feed.stop()


def test_what_is_read_is_left_for_what_is_asked_later(slow: _Slow) -> None:
    slow.turn_while_reading(1, 1)
    wait_until(lambda: slow.feed.index == 2, what="the last run")
    slow.turn_while_reading(-1, 1)
    slow.turn(1)
    wait_until(lambda: slow.said and slow.said[-1] == "Nothing to play after this one.", what="the refusal")
    assert slow.feed.index == 2
    slow.turn_while_reading(-1, -1)
    wait_until(lambda: slow.feed.index == 0, what="the first run")


def test_it_is_said_that_a_run_takes_long_to_read_and_quitting_does_not_wait(slow: _Slow) -> None:
    slow.turn_while_reading(1)
    wait_until(lambda: "Reading slow…" in slow.said, what="the word")
    slow.feed.stop()
    wait_until(lambda: not slow.feed._thread.is_alive(), what="the thread to end")
    assert slow.feed.index == 0
