"""Before the application: the first frame, keys that wait, and a terminal that is left as it was found."""

import re
import signal
import sys

import psutil
import pytest

from tests import REPOSITORY

from ..vramscope.cli.running import environment
from ..vramscope.cli.terminals import TerminalRun
from .emulator import Emulator

WIDTH, HEIGHT = 100, 30
PROGRAM = """
import signal, sys
import msgspec
from tests.tui.canned import FakeFeed, make_snapshot
from vramscope.engine.history import History
from vramscope.engine.settings import Settings
from vramscope.tui.frame.launch import run_app
from vramscope.tui.live.first_frame import FrameSize, draw_first_frame
from vramscope.tui.terminal.abilities import check_terminal
from vramscope.tui.terminal.opening import FirstFrame, Opening

how, width, height = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def measure():
    if how == "the driver hangs":
        signal.pause()
    snapshot = make_snapshot(2)
    abilities = check_terminal(Settings())
    size = FrameSize(width, height)
    drawing = draw_first_frame(snapshot, History(), size, abilities, remedy="command")
    return FirstFrame(msgspec.msgpack.encode(snapshot.sample), drawing)

opening = Opening()
try:
    opening.begin(measure)
    if how != "the driver hangs":
        opening._await_child(60)
    if how == "it is ended early":
        signal.pause()
    if how == "it is resized":
        sys.stdin.read(1)
    code = run_app(FakeFeed(), settings=Settings(), opening=opening)
finally:
    opening.end()
sys.exit(code)
"""
# What the application writes before it paints.
APPLICATION = b"\x1b[?1004h"


def _start(how: str, **variables: str) -> TerminalRun:
    variables = environment(TERM="xterm-256color", LANG="C.UTF-8", PYTHONPATH=str(REPOSITORY), **variables)
    return TerminalRun([sys.executable, "-c", PROGRAM, how, str(WIDTH), str(HEIGHT)], variables)


def test_the_application_paints_over_the_first_frame_without_a_gap() -> None:
    # A terminal that does not know its size.
    with _start("as ever", COLUMNS=str(WIDTH), LINES=str(HEIGHT)) as run:
        run.wait_for(b"quit", after=APPLICATION)
        drawn, painted = run.shown.split(APPLICATION)
        run.type(b"q")
        assert run.wait_for_end() == 0
        assert run.attributes == run.attributes_before
    screen = Emulator(WIDTH, HEIGHT)
    screen.feed(drawn.decode())
    row = next(y for y, text in enumerate(screen.text()) if "GiB" in text)
    first = screen.text()[row]
    assert "quit" not in "".join(screen.text())
    for part in painted.decode("utf-8", "ignore").split("\x1b"):
        screen.feed(f"\x1b{part}")
        assert screen.text()[row] == first
    assert b"\x1b[?1049h" not in painted  # some terminals clear the screen that is entered again


def test_a_key_pressed_at_once_is_obeyed_and_a_driver_that_hangs_is_left_behind() -> None:
    with _start("the driver hangs") as run:
        run.type(b"?")
        run.wait_for(b"vramscope: keys")
        assert psutil.Process(run.process.pid).children() == []
        run.process.send_signal(signal.SIGTERM)
        assert run.wait_for_end() == 128 + signal.SIGTERM
        assert run.attributes == run.attributes_before


def test_a_terminal_resized_meanwhile_is_drawn_at_its_new_size() -> None:
    with _start("it is resized") as run:
        run.resize(WIDTH, HEIGHT)
        run.wait_for(b"GiB")
        run.resize(70, 20)
        run.type(b" ")
        run.wait_for(b"quit", after=APPLICATION)
        painted = run.shown.split(APPLICATION)[1]
        rows = {int(row) for row in re.findall(rb"\x1b\[(\d+)(?:;\d+)?H", painted)}
        assert max(rows) == 20
        run.type(b"q")
        assert run.wait_for_end() == 0
        assert run.attributes == run.attributes_before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_before_the_application_leaves_the_terminal_as_it_was(number: signal.Signals) -> None:
    with _start("it is ended early") as run:
        run.wait_for(b"GiB")
        run.process.send_signal(number)
        assert run.wait_for_end() != 0
        left = run.shown.rpartition(b"GiB")[2]
        assert b"\x1b[?1049l" in left
        assert b"\x1b[?25h" in left
        assert run.attributes == run.attributes_before
