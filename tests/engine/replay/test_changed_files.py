"""A recording that is cut, overwritten or replaced while it is played: the replay says so, or goes on."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.replay.recordings import fresh_analyzers, record
from tests.waiting import wait_until
from vramscope.engine.replay.feed import ReplayFeed
from vramscope.engine.replay.player import ReplayCommand, ReplayOptions
from vramscope.engine.replay.tapes import RecordingTape
from vramscope.engine.viewer.snapshot import Snapshot


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return record(tmp_path_factory.mktemp("recorded") / "a.vscope").read_bytes()


def play_while(path: Path, change: Callable[[Path], object]) -> Snapshot:
    """Play a recording, change the file after the first picture, step on, and return the last picture."""
    pictures: list[Snapshot] = []
    feed = ReplayFeed(
        lambda: [RecordingTape(path)],
        make_analyzers=fresh_analyzers,
        options=ReplayOptions(is_paused=True),
    )
    feed.start(pictures.append)
    try:
        wait_until(lambda: bool(pictures), what="the first picture")
        change(path)
        known = len(pictures)
        feed.command(ReplayCommand("step", 150))
        wait_until(lambda: len(pictures) > known, what="a picture after the change")
        wait_until(
            lambda: pictures[-1].reason is not None or _has_stepped(pictures), what="the end or the step"
        )
    finally:
        feed.stop()
    wait_until(lambda: not feed._thread.is_alive(), what="the thread to end")
    return pictures[-1]


def _has_stepped(pictures: list[Snapshot]) -> bool:
    """Tell whether everything is worked out at a later moment than that of the first picture."""
    first, last = pictures[0].replay, pictures[-1].replay
    if first is None or last is None or last.is_catching_up:
        return False
    return last.position_s >= first.position_s + 100


@pytest.mark.parametrize("left_bytes", [0, 4096, 8192, 20_000])
def test_a_recording_that_is_cut_while_it_is_played_ends_the_replay_in_words(
    left_bytes: int, recorded: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    path = tmp_path / "a.vscope"
    path.write_bytes(recorded)
    last = play_while(path, lambda it: os.truncate(it, left_bytes))
    assert last.reason is not None
    assert "a.vscope: damaged and unreadable" in last.reason
    assert not raised


def test_a_recording_that_is_overwritten_while_it_is_played_ends_the_replay_in_words(
    recorded: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "a.vscope"
    path.write_bytes(recorded)
    last = play_while(path, lambda it: it.write_bytes(b"something else\n"))
    assert last.reason is not None
    assert "a.vscope: not a recording, or damaged" in last.reason


def test_a_recording_that_is_replaced_or_deleted_is_played_on(recorded: bytes, tmp_path: Path) -> None:
    path, other = tmp_path / "a.vscope", tmp_path / "b"
    path.write_bytes(recorded)
    other.write_bytes(b"something else\n")
    assert play_while(path, lambda _: other.rename(path)).reason is None
    path.write_bytes(recorded)
    assert play_while(path, Path.unlink).reason is None
