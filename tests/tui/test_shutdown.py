"""Quitting in time: whatever hangs, and whether or not anybody reads the terminal."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..vramscope.cli.running import environment
from ..waiting import wait_until

PROGRAM = """
import sys, threading
from tests.tui.canned import FakeFeed, make_snapshot
from vramscope.engine.settings import Settings
from vramscope.tui.frame.launch import run_app

class HungFeed(FakeFeed):
    def stop(self):
        threading.Event().wait()

class BusyFeed(FakeFeed):
    def start(self, on_snapshot):
        super().start(on_snapshot)
        threading.Thread(target=self.run, daemon=True).start()
    def run(self):
        for seq in range(1, 1_000_000):
            self.hand_over(make_snapshot(8 + seq % 2, seq=seq))

feed = {"hung": HungFeed, "busy": BusyFeed}[sys.argv[1]](make_snapshot(2))
sys.exit(run_app(feed, settings=Settings()))
"""


class View:
    """The view on a pseudo-terminal that a test reads, or does not."""

    def __init__(self, feed: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, feed],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(TERM="xterm-256color", LANG="C.UTF-8"),
            start_new_session=True,
        )
        os.close(slave)
        self.output = b""

    def read(self) -> bytes:
        """Read what is there and return everything so far."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.output += os.read(self.master, 1 << 16)
            except OSError:  # the other end is closed
                break
        return self.output

    def has_ended(self) -> bool:
        self.read()
        return self.process.poll() is not None


@contextmanager
def view(feed: str) -> Iterator[View]:
    opened = View(feed)
    try:
        wait_until(lambda: b"node03" in opened.read(), 60.0, "the first picture")
        yield opened
    finally:
        opened.process.kill()
        opened.process.wait()
        os.close(opened.master)


def test_q_ends_the_view_although_the_feed_hangs() -> None:
    with view("hung") as opened:
        os.write(opened.master, b"q")
        wait_until(opened.has_ended, 60.0, "the view to end")
        assert opened.process.returncode == 0
        assert opened.read().rindex(b"\x1b[?1049l") > opened.output.rindex(b"node03")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_view_and_restores_the_terminal(number: signal.Signals) -> None:
    with view("hung") as opened:
        opened.process.send_signal(number)
        wait_until(opened.has_ended, 60.0, "the view to end")
        assert opened.process.returncode == 128 + number
        assert b"\x1b[?1049l" in opened.read()


def test_a_terminal_that_nobody_reads_costs_no_memory_and_can_be_ended() -> None:
    with view("busy") as opened:
        grown = [_resident_mib(opened.process.pid)]
        deadline_s = time.monotonic() + 1.5
        wait_until(lambda: time.monotonic() > deadline_s, 10)
        grown.append(_resident_mib(opened.process.pid))
        assert grown[1] - grown[0] < 20, grown
        opened.process.send_signal(signal.SIGTERM)
        wait_until(lambda: opened.process.poll() is not None, 60.0, "the view to end unread")
        assert opened.process.returncode == 128 + signal.SIGTERM


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
