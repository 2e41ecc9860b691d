"""The folder in which somebody types `vramscope` may be a stranger's: nothing in it is run, and all works."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.viewer.client import connect
from vramscope.engine.wire.endpoints import holder_pid, is_hub_alive

from ...components import require, require_package
from ...engine.agent.hubs import has_worker
from ...engine.files.snapshots import small_snapshot, write_snapshot
from ...pretend_nvml.driver import PretendDriver
from ...tui.panes import pane
from ...waiting import wait_until
from .hostile_folder import PROGRAM, HostileFolder, clean_environment
from .running import GIB, Outcome


@pytest.fixture
def hostile(tmp_path: Path, pretend_driver: PretendDriver, pretend_environment: object) -> HostileFolder:
    """Return a hostile folder on a node with one device."""
    pretend_driver.add_device(used_bytes=30 * GIB)
    return HostileFolder(tmp_path)


@pytest.fixture(autouse=True)
def _end_hub(private_environment: Path) -> Iterator[None]:
    yield
    end_hub()


def end_hub() -> None:
    """End the agent of the runtime folder, whoever started it."""
    folder = locate_runtime_folder()
    if is_hub_alive(folder) and (pid := holder_pid(folder)) is not None:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not is_hub_alive(folder), what="the end of the agent")


HEADLESS = (
    ("--version",),
    ("--help",),
    ("--once",),
    ("--once", "--json"),
    ("--json", "--interval", "100ms", "--duration", "300ms"),
    ("completion", "bash"),
    ("doctor",),
    ("estimate", "--model", "llama2-7b", "--capacity", "80GiB"),
    ("heatmap", "--memory-dir", ".", "--log-dir", ".", "--output", "heat"),
    ("inspect", "train.py"),
    ("keys", "--help"),
    ("plan", "--model", "gpt-1.5b", "--stages", "2", "--output", "planned"),
    ("profile", "--duration", "300ms", "--interval", "100ms", "--output", "profile.json"),
    ("leak", "--duration", "300ms", "--interval", "100ms", "--output", "leak.json"),
    ("oom", "--duration", "300ms", "--interval", "100ms", "--output", "oom.json"),
    ("fragment", "--duration", "300ms", "--interval", "100ms", "--output", "fragment.json"),
    ("record", "--duration", "300ms", "-o", "run.vscope"),
    ("replay", "train.py"),
    ("sweep", ".", "--format", "text"),
    ("advise", "1", "empty_cache"),
    ("attach", "999999999"),
    ("detach", "1"),
    ("modules", "--help"),
    ("guard", "--ssh", "nowhere.invalid", "--duration", "100ms"),
    ("distributed", "--role", "master", "--nodes", "1", "--port", "0", "--duration", "300ms"),
)


def test_no_verb_runs_a_file_of_the_current_folder(hostile: HostileFolder) -> None:
    ended = {words: hostile.run(*words) for words in HEADLESS}
    assert hostile.list_executed() == {}
    assert [words for words, outcome in ended.items() if "internal error" in outcome.stderr] == []
    codes = {words[0]: outcome.code for words, outcome in ended.items() if words[0] in WORK}
    assert codes == dict.fromkeys(WORK, 0)


WORK = ("--once", "--json", "completion", "estimate", "plan", "profile", "leak", "oom", "fragment", "record")
"""What has all that it needs, in whatever folder."""


def test_typed_as_a_module_it_leaves_the_folder_out_as_well(hostile: HostileFolder) -> None:
    module = (sys.executable, "-m", "vramscope")
    outcome = hostile.run("--once", "--json", program=module)
    assert (outcome.code, hostile.list_executed()) == (0, {})
    assert len(json.loads(outcome.stdout)["devices"]) == 1
    assert hostile.run("run", "--quiet", "--", "true", program=module) == Outcome(0, "", "")
    wait_for_worker()
    assert hostile.list_executed() == {}


def wait_for_worker() -> None:
    """Wait until the agent shows a sample, and its worker is at work."""
    with connect(timeout_s=30.0) as client:

        def is_complete() -> bool:
            snapshot = client.snapshot(0.05)
            return snapshot.sample is not None and has_worker(snapshot)

        wait_until(is_complete, 60.0, "a sample and a worker that reports")


@pytest.mark.parametrize("search_path", ["", "/nonexistent"])
def test_a_job_gets_its_agent(hostile: HostileFolder, search_path: str) -> None:
    seen = "import os; print(os.environ['PYTHONPATH'].split(os.pathsep)[1:])"
    outcome = hostile.run("run", "--quiet", "--", sys.executable, "-I", "-c", seen, PYTHONPATH=search_path)
    assert (outcome.code, outcome.stderr) == (0, "")
    assert (
        outcome.stdout == f"{[search_path] if search_path else []}\n"
    )  # no more than it would have without us
    wait_for_worker()
    assert hostile.list_executed() == {}


def test_an_agent_serves_prometheus_and_records(hostile: HostileFolder) -> None:
    with subprocess.Popen(
        [PROGRAM, "agent", "--prometheus", "127.0.0.1:0"],
        cwd=hostile.path,
        env=clean_environment(),
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stderr is not None
        assert (
            "metrics are available at http://127.0.0.1:"
            in process.stderr.readline() + process.stderr.readline()
        )
        wait_for_worker()
        outcome = hostile.run("run", "--record=job.vscope", "--", "true")
        assert outcome.code == 0
        assert hostile.run("--once").code == 0
        end_hub()
    assert hostile.list_executed() == {}


def test_an_alert_is_delivered(hostile: HostileFolder, tmp_path: Path) -> None:
    told = tmp_path / "told"
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ncat > {told}\n")
    hook.chmod(0o755)
    settings = Path(os.environ["XDG_CONFIG_HOME"]) / "vramscope" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[alerts]\ncommand = ["{hook}"]\n')
    outcome = hostile.run("agent", "--test-alert")
    assert (outcome.code, hostile.list_executed()) == (0, {})
    assert told.read_text()


def test_a_snapshot_is_decoded(hostile: HostileFolder) -> None:
    path = write_snapshot(hostile.path, small_snapshot())
    outcome = hostile.run("inspect", str(path), "--json")
    assert (outcome.code, outcome.stderr, hostile.list_executed()) == (0, "", {})


@pytest.mark.parametrize("program", [PROGRAM, f"{sys.executable} -m vramscope"])
def test_the_view_shows_the_devices(hostile: HostileFolder, program: str) -> None:
    require("tmux")
    variables = {
        name: os.environ[name] for name in os.environ if name.startswith(("XDG", "HOME", "LD_", "PRETEND"))
    }
    with pane(f"unset PYTHONPATH; cd {hostile.path}; {program}", variables) as opened:
        shown = opened.wait_for("Pretend GPU", "30.0", "q quit")
        assert "Traceback" not in shown
        wait_for_worker()
        opened.press("q")
        opened.wait_for("exit code 0")
    assert hostile.list_executed() == {}


PLAN = ("plan", "--factory", "train:make_model", "--input", "4x8:float32", "--stages", "2")
PHASES = ("phases", "--factory", "train:make_phases", "--dp-mode", "none", "--device", "cpu")


@pytest.mark.parametrize(
    ("words", "name"),
    [(PLAN, "code"), (PHASES, "below")],
    ids=["a module with a name of Python's", "a relative path"],
)
def test_a_function_of_the_users_is_found_and_nothing_beside_it(
    hostile: HostileFolder, words: tuple[str, ...], name: str
) -> None:
    require_package("torch")
    place = hostile.path / "src" if name == "below" else hostile.path
    place.mkdir(exist_ok=True)
    (hostile.path / "train.py").rename(place / f"{name}.py")
    outcome = hostile.run(*(word.replace("train", name) for word in words), PYTHONPATH="src")
    assert (outcome.code, hostile.list_executed()) == (0, {}), outcome.stderr


def test_a_job_of_the_demonstration_runs(hostile: HostileFolder) -> None:
    require_package("torch")
    require("tmux")
    variables = {
        name: os.environ[name] for name in os.environ if name.startswith(("XDG", "HOME", "LD_", "PRETEND"))
    }
    with pane(f"unset PYTHONPATH; cd {hostile.path}; {PROGRAM} demo", variables) as opened:
        opened.wait_for("demo (simulated)", "GiB", "q quit")
        opened.press("q")
        opened.wait_for("exit code 0")
    assert hostile.list_executed() == {}
