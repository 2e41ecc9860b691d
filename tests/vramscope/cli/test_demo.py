"""`vramscope demo` and `make pretend`: whatever ends them, everything that they started ends too."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import REPOSITORY
from vramscope.engine.errors import UsageError
from vramscope.engine.jobs.demonstration import SCRIPT, check_size
from vramscope.engine.units import GIB, MIB

from ...components import missing
from ...tui.panes import PROGRAM, pane
from ...waiting import wait_until
from .running import run
from .test_live import terminal

STORY_S = 200.0
"""Far more than the shortest story takes, on a machine that is busy with other tests."""

PRETENDER = """
import os, sys
from benchmarks.pretend import Ending
ending = Ending()
ending.install()
program = "import time; print('up', flush=True); time.sleep(60)"
code = ending.run([sys.executable, "-c", program], dict(os.environ))
print("tidied", flush=True)
sys.exit(code)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_program_and_leaves_time_to_tidy(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PRETENDER], cwd=REPOSITORY, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
        assert process.stdout.read() == "tidied\n"


@pytest.fixture
def torch_installed() -> None:
    if find_spec("torch") is None:
        missing("torch is not installed (pip install 'vramscope[train]')")


@pytest.fixture
def state_folder(private_environment: Path, torch_installed: None) -> Iterator[Path]:
    """The folder in which a demo leaves its output; no job of a demo outlives the test."""
    yield private_environment / "home/.local/state/vramscope/demo"
    for job in find_jobs(private_environment):
        os.kill(job, signal.SIGKILL)


def find_jobs(environment: Path) -> list[int]:
    """Return the ids of the training processes that were started below this environment."""
    jobs = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    home = f"HOME={environment}/".encode()
    trained = [pid for pid in jobs if str(SCRIPT).encode() in read_proc(pid, "cmdline")]
    return [pid for pid in trained if home in read_proc(pid, "environ")]


def read_proc(pid: int, name: str) -> bytes:
    """Return what the system tells of a process; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def runtime_folder(pid: int) -> Path:
    entries = read_proc(pid, "environ").decode().split("\0")
    named = dict(entry.partition("=")[::2] for entry in entries)
    return Path(named["VRAMSCOPE_RUNTIME_DIR"])


def has_ended(pid: int) -> bool:
    return not read_proc(pid, "cmdline")


@pytest.mark.waits
@pytest.mark.timeout(2 * STORY_S)
def test_the_story_is_told_to_its_end_and_nothing_is_left_running(
    state_folder: Path, private_environment: Path
) -> None:
    with pane(f"{PROGRAM} demo --size 896MiB") as opened:
        opened.wait_for("1 simulated GPU")
        (job,) = find_jobs(private_environment)
        folder = runtime_folder(job)
        flight = state_folder / "flight"
        wait_until(lambda: list(flight.glob("oom-*.json.gz")), STORY_S, "the flight record")
        opened.wait_for("job demo (simulated)", f" {job} ")
        opened.press("q")
        told = opened.wait_for("exit code 0").replace("\n", "")
        (record, *_) = sorted(flight.iterdir())
        assert f"the job's output goes to {state_folder / 'output.log'}" in told
        assert "vramscope inspect " in told
        assert has_ended(job)
        wait_until(lambda: not folder.exists(), what="the hub to go")
    assert "evaluations kept" in (state_folder / "output.log").read_text()
    explained = run("inspect", str(record))
    assert explained.code == 0, explained.stderr
    assert "simulated device" in explained.stdout
    assert "leaking_gpt.py" in explained.stdout
    assert "small_gpt.py" in explained.stdout, "the stacks of what was live lead into the model"


@pytest.mark.waits
def test_a_viewer_that_is_killed_takes_the_job_and_the_folder_along(
    state_folder: Path, private_environment: Path
) -> None:
    with terminal("demo") as screen:
        screen.wait_for("simulated")
        wait_until(lambda: find_jobs(private_environment), what="the job to start")
        (job,) = find_jobs(private_environment)
        folder = runtime_folder(job)
        assert folder.name.startswith("vramscope-demo-")
        screen.process.kill()
        wait_until(lambda: has_ended(job), what="the job to end")
        wait_until(lambda: not folder.exists(), 20.0, what="the agent to remove its folder")


def test_two_demos_at_once_write_to_folders_of_their_own_and_one_ends_after_the_time_that_was_set(
    state_folder: Path,
) -> None:
    outputs = [folder / "output.log" for folder in (state_folder, state_folder.parent / "demo-2")]
    with terminal("demo") as first, terminal("demo", "--duration", "2s") as second:
        first.wait_for("Alerts")
        wait_until(lambda: all(it.exists() for it in outputs), what="the output of two jobs")
        assert second.wait_for_end() == 0
        first.type("q")
        assert first.wait_for_end() == 0


def test_without_torch_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['torch'] = None\n")
    outcome = run("demo", PYTHONPATH=f"{tmp_path}:{REPOSITORY}")
    assert outcome.code == 4
    assert outcome.stdout == ""
    (line,) = outcome.stderr.splitlines()
    assert "pip install 'vramscope[train]'" in line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--capacity", "64MiB"), "--capacity 64 MiB: expected at least 896 MiB"),
        (("--capacity", "large"), "--capacity large: not a size"),
        (("--duration", "0s"), "--duration 0s: expected a second or more"),
        (("--duration", "ever"), "--duration ever: not a duration"),
    ],
)
def test_flags_that_mean_nothing_are_refused(
    words: tuple[str, ...], told: str, torch_installed: None
) -> None:
    with terminal("demo", *words) as screen:
        assert screen.wait_for_end() == 2
    assert told in screen.output.decode().replace("\r\n", "")


def test_without_a_terminal_nothing_is_started(torch_installed: None, private_environment: Path) -> None:
    outcome = run("demo")
    assert outcome.code == 2
    assert len(outcome.stderr.splitlines()) == 1
    assert not (private_environment / "home/.local/state/vramscope").exists()


def test_a_card_that_host_memory_cannot_hold_is_refused() -> None:
    check_size(GIB, host_available_bytes=2 * GIB)
    check_size(900 * GIB, host_available_bytes=None)
    with pytest.raises(UsageError, match=r"15\.5 GiB of host memory, but 3\.0 GiB are free"):
        check_size(16 * GIB, host_available_bytes=4 * GIB)
    with pytest.raises(UsageError, match="at least 896 MiB"):
        check_size(895 * MIB, host_available_bytes=None)
