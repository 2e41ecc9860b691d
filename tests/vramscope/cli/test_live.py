"""The live view from the front door: in a real terminal, started, quit, and its agent gone with it."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests import REPOSITORY
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.wire.endpoints import is_hub_alive

from ...engine.files.traces import rank_name, trace, write_trace
from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until
from .running import environment, no_library, run
from .test_stream import agent

DEADLINE_S = 60.0
FIRST_FRAME = """
import os, sys
from vramscope.cli.live import measure_first_frame
from vramscope.engine.settings import Settings
from vramscope.tui.terminal.abilities import TerminalAbilities

frame = measure_first_frame(Settings(), TerminalAbilities(), has_agent="agent" in sys.argv)
print("" if frame is None else frame.drawing, "textual" in sys.modules, flush=True)
os._exit(0)  # as the child of the view does
"""


class Terminal:
    """A pseudo-terminal of 120x32 in which vramscope runs."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 32, 120, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vramscope", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(**{"TERM": "xterm-256color", **variables}),
            start_new_session=True,
        )
        os.close(slave)
        self.output = b""

    def wait_for(self, text: str) -> None:
        """Read until the text was printed."""
        end_s = time.monotonic() + DEADLINE_S
        while text.encode() not in self.output:
            left_s = end_s - time.monotonic()
            assert left_s > 0, f"waited {DEADLINE_S:g} s for {text!r} in {self.output[-2000:]!r}"
            if select.select([self._master], [], [], left_s)[0]:
                self.output += os.read(self._master, 65536)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def wait_for_end(self) -> int:
        """Read to the end and return the exit code."""
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            if not select.select([self._master], [], [], 0.1)[0]:
                continue
            try:
                self.output += os.read(self._master, 65536)
            except OSError:  # the other end was closed: the process has ended
                break
        return self.process.wait(timeout=60)

    def close(self) -> None:
        """End what still runs."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextmanager
def terminal(*arguments: str, **variables: str) -> Iterator[Terminal]:
    opened = Terminal(*arguments, **variables)
    try:
        yield opened
    finally:
        opened.close()


def test_one_command_shows_the_devices_and_takes_its_agent_down_again(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(name="Card One")
    with terminal() as screen:
        screen.wait_for("Card One")
        wait_until(lambda: is_hub_alive(locate_runtime_folder()), what="the agent to start")
        screen.type("q")
        assert screen.wait_for_end() == 0
    wait_until(lambda: not is_hub_alive(locate_runtime_folder()), what="the agent to leave with its viewer")


def test_an_agent_that_was_there_before_stays(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(name="Card One")
    with agent() as process, terminal() as screen:
        screen.wait_for("Card One")
        screen.type("q")
        assert screen.wait_for_end() == 0
        assert process.poll() is None


def test_a_recorded_run_plays_in_the_same_screen(tmp_path: Path) -> None:
    rows = [(0.1 * number, 2000.0 + number, 1000.0 + number) for number in range(100)]
    write_trace(tmp_path, rank_name(0), trace(rows))
    with terminal("replay", str(tmp_path), "--speed", "5", "--capacity", "80GiB") as screen:
        screen.wait_for("recorded trace")
        screen.type("q")
        assert screen.wait_for_end() == 0


def test_a_replay_whose_viewer_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    rows = [(0.1 * number, 2000.0 + number, 1000.0 + number) for number in range(100)]
    write_trace(tmp_path / "run", rank_name(0), trace(rows))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with terminal("replay", str(tmp_path / "run"), TMPDIR=str(temporary)) as screen:
        screen.wait_for("recorded trace")
        children = psutil.Process(screen.process.pid).children()
        assert len(children) <= 1, "a replay is one process, and its helper where the kernel confines it"
        assert not is_hub_alive(locate_runtime_folder())
        screen.process.kill()
        screen.process.wait()
    wait_until(lambda: not any(it.is_running() for it in children), what="its helper to end")
    assert list(temporary.iterdir()) == []


def test_a_mistake_of_ours_in_the_live_view_is_one_line_and_a_report(
    tmp_path: Path, private_environment: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if '--leave-with-viewers' not in sys.orig_argv and 'worker' not in sys.orig_argv:\n"
        "    from vramscope.tui.app import VramscopeApp\n"
        "    def fail(self): raise ZeroDivisionError('our mistake')\n"
        "    VramscopeApp.on_mount = fail\n"
    )
    with terminal(PYTHONPATH=f"{tmp_path}:{REPOSITORY}") as screen:
        assert screen.wait_for_end() == 1
    left = screen.output.decode(errors="replace").rpartition("\x07")[2]
    told = left.split("\r\n")
    (line,) = [part for part in told if part.strip()]
    assert line.startswith("vramscope: internal error: ZeroDivisionError: our mistake; the report is in ")
    (report,) = (private_environment / "home/.local/state/vramscope/errors").iterdir()
    assert "Traceback" in report.read_text()


def test_a_trace_that_is_no_trace_is_told_with_its_file_and_exit_code_2(tmp_path: Path) -> None:
    path = write_trace(tmp_path, rank_name(0), {"0": {"samples": [{"timestamp_s": "soon"}]}})
    outcome = run("replay", str(tmp_path))
    assert outcome.code == 2
    assert outcome.stderr.startswith("vramscope: ")
    assert path.name in outcome.stderr
    assert len(outcome.stderr.splitlines()) == 1


def test_a_settings_file_that_is_named_counts_for_the_agent_too(
    pretend_driver: PretendDriver,
    pretend_environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_driver.add_device(name="Card One")
    (tmp_path / "vramscope.toml").write_text("broken\n")
    (tmp_path / "good.toml").write_text('theme = "light"\n')
    monkeypatch.chdir(tmp_path)
    with terminal("--config", "good.toml") as screen:
        screen.wait_for("Card One")
        screen.type("q")
        assert screen.wait_for_end() == 0


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_place_the_cursor_is_told_what_to_use(term: str) -> None:
    with terminal(TERM=term) as screen:
        assert screen.wait_for_end() == 2
    assert b"vramscope --once" in screen.output
    assert not is_hub_alive(locate_runtime_folder())


def test_without_a_gpu_a_key_replays_the_recording_that_is_shipped(tmp_path: Path) -> None:
    with terminal(**no_library(tmp_path)) as view:
        view.wait_for("replay a recording")
        view.type("r")
        view.wait_for("simulated GPU")
        view.wait_for("playing")
        view.type("q")
        assert view.wait_for_end() == 0


def _draw_first_frame(*arguments: str) -> str:
    variables = environment(COLUMNS="100", LINES="30")
    command = [sys.executable, "-c", FIRST_FRAME, *arguments]
    drawn = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout
    return re.sub(r"\x1b\[[\d;]*[mH]", "", drawn)


def test_the_first_frame_has_the_figures_of_the_driver_or_of_the_agent_that_runs(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    pretend_driver.add_device(used_bytes=30 << 30)
    own = _draw_first_frame()
    assert "30.0 /" in own
    assert "agent" not in own
    with agent():
        shared = _draw_first_frame("agent")
    assert "30.0 /" in shared
    assert "agent up" in shared
    assert own.endswith("False\n"), "without Textual, which takes longer to load"
    assert shared.endswith("False\n")


def test_without_a_device_nothing_is_drawn_before_the_view(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    assert _draw_first_frame() == " False\n"
