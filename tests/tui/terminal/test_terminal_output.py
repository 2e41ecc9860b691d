"""Output to a terminal that reads slowly, not at all, or is gone."""

import os
import select
import threading

import pytest

from vramscope.tui.terminal.driver import BLOCKED_BYTES, MAX_PENDING_BYTES, TerminalOutput

from ...waiting import wait_until


class Pipe:
    """A pipe in the place of a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.reader, self.writer = os.pipe()
        self.drained, self.gone = threading.Event(), threading.Event()
        self.output = TerminalOutput(self.writer, encoding, self.drained.set, self.gone.set)

    def read_some(self) -> bytes:
        """Read what is there, without waiting."""
        is_ready = select.select([self.reader], [], [], 0)[0]
        return os.read(self.reader, 1 << 16) if is_ready else b""

    def send(self, text: str) -> None:
        self.output.write(text)
        self.output.flush()


def test_what_is_written_arrives() -> None:
    pipe = Pipe()
    pipe.send("used 61.2 ▲")
    assert os.read(pipe.reader, 100).decode() == "used 61.2 ▲"


def test_what_the_terminal_takes_is_written_at_once() -> None:
    pipe = Pipe()
    pipe.send("used 61.2")
    assert pipe.read_some() == b"used 61.2"


def test_a_terminal_that_may_not_be_opened_again_gets_its_output_from_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        pipe = Pipe()
    pipe.send("used 61.2")
    assert os.read(pipe.reader, 100) == b"used 61.2"


def test_output_to_a_slow_terminal_keeps_its_order() -> None:
    pipe = Pipe()
    frames = [f"{number:07d}" * 1_000 for number in range(100)]
    received = b""
    for frame in frames:
        pipe.send(frame)
        received += pipe.read_some()
    while len(received) < len("".join(frames)):
        received += os.read(pipe.reader, 1 << 16)
    assert received == "".join(frames).encode()


def test_what_the_terminal_lacks_is_replaced_and_never_raises() -> None:
    pipe = Pipe("ascii")
    pipe.send("64 °C ▲")
    assert os.read(pipe.reader, 100) == b"64 ?C ?"


def test_a_terminal_that_does_not_read_costs_bounded_memory_and_is_told_when_it_reads_again() -> None:
    pipe = Pipe()
    frame = "x" * 10_000
    for _ in range(1_000):
        pipe.send(frame)
    assert pipe.output.is_blocked
    assert BLOCKED_BYTES < len(pipe.output._pending) <= MAX_PENDING_BYTES
    assert not pipe.drained.is_set()
    wait_until(lambda: pipe.read_some() or pipe.drained.is_set(), what="the first bytes")
    wait_until(lambda: not pipe.read_some() and pipe.drained.is_set(), what="everything to be written")
    assert not pipe.output.is_blocked
    pipe.send("again")
    received = b""
    while not received.endswith(b"again"):
        received += os.read(pipe.reader, 1 << 16)


def test_a_terminal_that_is_gone_is_noticed_once_and_takes_no_more() -> None:
    pipe = Pipe()
    os.close(pipe.reader)
    pipe.send("anybody there?")
    assert pipe.gone.wait(60)
    pipe.send("x" * 1000)
    assert len(pipe.output._pending) == 0
    pipe.output.close()


def test_closing_does_not_wait_for_a_terminal_that_does_not_read() -> None:
    pipe = Pipe()
    pipe.send("x" * 500_000)
    wait_until(lambda: pipe.output.is_blocked)
    closing = threading.Thread(target=pipe.output.close)
    closing.start()
    closing.join(5)
    assert not closing.is_alive()
    os.close(pipe.reader)
