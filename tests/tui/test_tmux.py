"""The real program in a real tmux: keys, sizes, poor terminals, and a pane that is killed."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..components import require
from ..engine.files.traces import rank_name, trace, write_trace
from ..pretend_nvml.driver import PretendDriver
from ..waiting import wait_until
from .panes import PROGRAM, Pane, pane

SECONDS = 120


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Return a recorded run of two ranks, two minutes long."""
    for rank in range(2):
        rows = [(0.5 * tick, 40_000.0 + 100 * (tick % 50), 30_000.0) for tick in range(2 * SECONDS)]
        write_trace(tmp_path / "run", rank_name(rank, "_wd2_tp2_pp1_l40_bs1"), trace(rows))
    return tmp_path / "run"


def quit_of(opened: Pane) -> str:
    opened.press("q")
    return opened.wait_for("exit code")


def test_a_recording_is_shown_and_driven_by_keys(run_folder: Path) -> None:
    with pane(f"{PROGRAM} replay {run_folder}") as opened:
        shown = opened.wait_for("recorded trace", "2 ranks", "rank 1", "q quit")
        assert "Traceback" not in shown
        opened.press("?")
        opened.wait_for("vramscope: keys", "Pause or play; at the end")
        opened.leave("vramscope: keys")
        opened.press("space")
        opened.wait_for("paused 1")
        opened.press("T")
        opened.wait_for("Theme: light")
        opened.press("C-p")
        opened.wait_for("Search for commands", "replay: pause")
        opened.leave("replay: pause")
        opened.press("Enter")
        opened.resize(40, 10)
        wait_until(lambda: opened.look().splitlines()[0].startswith(" ? OOM risk"))
        opened.resize(200, 50)
        opened.wait_for("recorded trace", "q quit")
        assert "exit code 0" in quit_of(opened)


def test_live_devices_processes_and_a_refused_signal(
    pretend_driver: PretendDriver, pretend_environment: dict[str, str]
) -> None:
    for number in range(2):
        device = pretend_driver.add_device(used_bytes=(number + 1) * 30 << 30)
        device.set_processes([(os.getpid(), 20 << 30, "compute")])
    with pane(f"{PROGRAM} --read-only", pretend_environment) as opened:
        opened.wait_for("2 GPUs", "Pretend GPU", "60.0", "20.0 GiB", "2 processes")
        opened.press("Tab", "K")
        opened.wait_for("Started with --read-only")
        opened.press("/", "g", "p", "u", "1")
        opened.wait_for("1 of 2 match")
        opened.leave("1 of 2 match")
        opened.wait_for("2 processes")
        started = opened.processes()
        assert "exit code 0" in quit_of(opened)
        agents = [pid for pid in started if "agent" in _command_of(pid)]
        wait_until(lambda: not any(map(_is_alive, agents)), what="the agent to end")


def _command_of(pid: int) -> str:
    """Return the command line of a process, as far as it still has one."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.mark.parametrize(
    "variables",
    [
        {"TERM": "linux"},
        {"LC_ALL": "C", "LANG": "C"},
        {"LC_ALL": "", "LANG": "en_US.ISO-8859-1"},
    ],
    ids=["linux-console", "posix-locale", "latin-1"],
)
def test_poor_terminals_get_ascii(run_folder: Path, variables: dict[str, str]) -> None:
    with pane(f"{PROGRAM} replay {run_folder}", variables) as opened:
        shown = opened.wait_for("recorded trace", "####", "q quit")
        assert shown.isascii()
        opened.press("C-p")
        assert opened.wait_for("replay: pause").isascii()
        opened.leave("replay: pause")
        assert "exit code 0" in quit_of(opened)
        assert "recorded trace" not in opened.read(), "the main screen is back"


def test_no_color_means_none(run_folder: Path) -> None:
    with pane(f"{PROGRAM} replay {run_folder}", {"NO_COLOR": "1"}) as opened:
        opened.wait_for("recorded trace", "q quit")
        styles = re.findall(r"\x1b\[([0-9;]*)m", opened.read(with_styles=True))
        codes = {int(code) for style in styles for code in style.split(";") if code}
        assert 1 in codes, "bold stays"
        assert not {code for code in codes if 30 <= code <= 49 or 90 <= code <= 107} - {39, 49}
        quit_of(opened)


def test_a_dumb_terminal_is_told_what_to_use(run_folder: Path) -> None:
    with pane(f"{PROGRAM} replay {run_folder}", {"TERM": "dumb"}) as opened:
        shown = opened.wait_for("exit code 2")
        assert "vramscope export FILE" in shown.replace("\n", "")
        assert "Traceback" not in shown


@contextmanager
def _ending_screen(program: str, folder: Path) -> Iterator[None]:
    """End the session of GNU screen, which would live on detached when a test fails."""
    try:
        yield
    finally:
        words = [program, "-S", "vramscope", "-X", "quit"]
        subprocess.run(words, env={**os.environ, "SCREENDIR": str(folder)}, check=False, capture_output=True)


def test_inside_gnu_screen_the_same_is_shown(run_folder: Path, private_environment: Path) -> None:
    program = require("screen")
    folder = private_environment / "screens"
    folder.mkdir(mode=0o700)
    command = f"{program} -S vramscope -c /dev/null -U {PROGRAM} replay {run_folder}"
    with pane(command, {"SCREENDIR": str(folder)}) as opened, _ending_screen(program, folder):
        opened.wait_for("recorded trace", "2 ranks", "rank 1", "q quit")
        opened.press("?")
        opened.wait_for("vramscope: keys", "Pause or play; at the end")
        opened.leave("vramscope: keys")
        opened.resize(80, 24)
        opened.wait_for("recorded trace", "q quit")
        assert "exit code 0" in quit_of(opened)


def test_a_terminal_that_reports_no_size_is_drawn_on(run_folder: Path) -> None:
    with pane(f"stty rows 0 cols 0; {PROGRAM} replay {run_folder}") as opened:
        opened.wait_for("recorded trace")
        assert "exit code 0" in quit_of(opened)


@pytest.mark.parametrize("is_under_script", [False, True], ids=["directly", "under-script"])
def test_killing_the_pane_ends_everything(run_folder: Path, tmp_path: Path, is_under_script: bool) -> None:
    command = f"{PROGRAM} replay {run_folder}"
    if is_under_script:
        require("script")
        command = f"script -q -c '{command}' {tmp_path / 'log'}"
    with pane(command) as opened:
        opened.wait_for("recorded trace")
        started = [pid for pid in opened.processes() if "vramscope" in _command_of(pid)]
        assert started
        opened.kill()
        wait_until(lambda: not any(map(_is_alive, started)), what="every process to end")


def _is_alive(pid: int) -> bool:
    return bool(_command_of(pid))
