"""Reading keys: nothing is lost, a lone escape is a key, and an idle terminal costs nothing."""

import os
import pty
import threading
import tty
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from textual.events import Key
from textual.message import Message

from tests.waiting import wait_until
from vramscope.tui.terminal.driver import WakingEvent, read_input


class Reader:
    """A terminal that is read on a thread, as the driver does it."""

    def __init__(self) -> None:
        self.outside, self.inside = pty.openpty()
        tty.setraw(self.inside)
        self.exit_event = WakingEvent()
        self.messages: list[Message] = []
        self.thread = threading.Thread(
            target=read_input, args=(self.inside, self.exit_event, self.messages.append)
        )
        self.thread.start()

    @property
    def keys(self) -> list[str]:
        return [message.key for message in self.messages if isinstance(message, Key)]

    def wake_ups(self) -> int:
        status = Path(f"/proc/self/task/{self.thread.native_id}/status").read_text()
        return int(status.partition("voluntary_ctxt_switches:")[2].split()[0])

    def has_read_since(self, wake_ups: int) -> bool:
        return self.wake_ups() > wake_ups

    def close(self) -> None:
        self.exit_event.set()
        self.thread.join(5.0)
        os.close(self.outside)
        os.close(self.inside)


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.close()


def test_keys_arrive_in_order_whatever_pieces_they_come_in(reader: Reader) -> None:
    for piece in (b"ab", b"\x1b[A", "é".encode()[:1], "é".encode()[1:]):
        wake_ups = reader.wake_ups()
        os.write(reader.outside, piece)
        wait_until(partial(reader.has_read_since, wake_ups), what="the piece to be read by itself")
    wait_until(lambda: len(reader.keys) == 4, what="four keys")
    assert reader.keys[:3] == ["a", "b", "up"]
    assert [m.character for m in reader.messages if isinstance(m, Key)][3] == "é"


def test_a_lone_escape_is_the_escape_key(reader: Reader) -> None:
    os.write(reader.outside, b"\x1b")
    wait_until(lambda: reader.keys == ["escape"], what="the escape key")


def test_an_idle_terminal_wakes_nobody(reader: Reader) -> None:
    os.write(reader.outside, b"a")
    wait_until(lambda: reader.keys == ["a"], what="the key")
    seen = -1

    def is_settled() -> bool:
        nonlocal seen
        before, seen = seen, reader.wake_ups()
        threading.Event().wait(0.35)
        return reader.wake_ups() == seen == before

    wait_until(is_settled, what="a thread that sleeps for longer than three ticks")


def test_the_exit_event_ends_the_reading_at_once(reader: Reader) -> None:
    reader.exit_event.set()
    reader.thread.join(60.0)
    assert not reader.thread.is_alive()


def test_the_event_can_be_used_again_after_it_was_cleared() -> None:
    event = WakingEvent()
    event.set()
    event.clear()
    event.clear()
    assert not event.is_set()
    with pytest.raises(BlockingIOError):
        os.eventfd_read(event.descriptor)
