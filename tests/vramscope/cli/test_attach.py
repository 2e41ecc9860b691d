"""`vramscope attach` and `detach`: a job that was started plainly appears, and goes on when it is let go."""

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from vramscope.engine.jobs.attach import attach as attach_in_this_process
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.wire.endpoints import holder_pid

from ...components import require_package
from ...engine.jobs.interpreters import SUPPORTED, find_python, list_pythons
from ...engine.jobs.targets import BUSY, Target, make_stub_torch, running
from ...engine.ranks.running import list_ranks
from ...engine.uncompiled import UNCOMPILED
from ...waiting import wait_until
from .running import Outcome, run

TRAINING = (
    UNCOMPILED
    + """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
print("ready")
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""
)
STUB = f"import torch\nprint('ready')\n{BUSY}"


@pytest.fixture(autouse=True)
def _end_hub(private_environment: Path) -> Iterator[None]:
    yield
    folder = locate_runtime_folder()
    pid = holder_pid(folder) if folder.exists() else None
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the agent")


def attach(target: Target) -> Outcome:
    """Attach, with patience for a machine that is busy."""
    return run("attach", str(target.pid), "--timeout", "25s")


def test_a_job_that_was_started_plainly_appears_and_is_let_go_again(tmp_path: Path) -> None:
    require_package("torch")
    with running(TRAINING, tmp_path) as target:
        target.wait_for("ready")
        outcome = attach(target)
        assert (outcome.code, outcome.stderr) == (0, "")
        assert re.fullmatch(
            rf"process {target.pid} reports \(attached in \d\.\d s; it was stopped for \d+\.\d ms\)\n",
            outcome.stdout,
        )
        wait_until(lambda: list_ranks()[0]["step"], what="a step")
        wait_until(lambda: list_ranks()[0]["backend"], what="the backend")
        (rank,) = list_ranks()
        assert (rank["pid"], rank["state"], rank["backend"]) == (target.pid, "ok", "cpu")
        assert rank["job"] is None
        wait_until(lambda: list_ranks()[0]["model_state"], what="the model's size is")

        again = attach(target)
        assert (again.code, again.stdout) == (0, f"process {target.pid} reports already\n")

        gone = run("detach", str(target.pid))
        assert (gone.code, gone.stdout) == (0, f"process {target.pid} no longer reports\n")
        wait_until(lambda: all(rank["state"] == "ended" for rank in list_ranks()), what="the end of the rank")
        assert run("detach", str(target.pid)).code == 2
        assert target.process.poll() is None
    assert target.said == "ready\n"


def test_every_python_that_the_probe_knows_can_be_attached_to(tmp_path: Path) -> None:
    pythons = list_pythons(*SUPPORTED[:-1]) or {"own": Path(sys.executable)}
    stub = make_stub_torch(tmp_path)
    with ExitStack() as stack:
        targets = {}
        for version, python in pythons.items():
            folder = tmp_path / version
            folder.mkdir()
            targets[version] = stack.enter_context(running(STUB, folder, python=python, PYTHONPATH=stub))
        for number, target in enumerate(targets.values()):
            target.wait_for("ready")
            if number == 0:
                outcome = attach(target)  # which starts the agent
                assert (outcome.code, outcome.stderr) == (0, "")
            else:
                attached = attach_in_this_process(target.pid, locate_runtime_folder(), timeout_s=25.0)
                assert (attached.rank.pid, attached.way) == (target.pid, "injector")
        assert [target.process.poll() for target in targets.values()] == [None] * len(targets)
        assert {target.said for target in targets.values()} == {"ready\n"}


def find_python_314() -> Path:
    python = find_python("3.14")
    if python is None:
        pytest.skip("no Python 3.14 is on PATH, in ~/.pyenv or named by VRAMSCOPE_TEST_PYTHON314")
    return python


def test_python_3_14_is_attached_to_by_its_own_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = find_python_314()
    monkeypatch.setenv("PATH", "/nowhere")  # no gdb
    with running(STUB, tmp_path, python=python, PYTHONPATH=make_stub_torch(tmp_path)) as target:
        target.wait_for("ready")
        outcome = attach(target)
        assert (outcome.code, outcome.stderr) == (0, "")
        assert re.fullmatch(rf"process {target.pid} reports \(attached in \d\.\d s\)\n", outcome.stdout)
        assert run("detach", str(target.pid)).code == 0


def test_a_python_3_14_that_forbids_it_is_refused_with_the_reason(tmp_path: Path) -> None:
    python = find_python_314()
    with running(
        STUB.replace("import torch", ""), tmp_path, python=python, PYTHON_DISABLE_REMOTE_DEBUG="1"
    ) as target:
        target.wait_for("ready")
        outcome = attach(target)
    assert outcome.code == 6
    assert "PYTHON_DISABLE_REMOTE_DEBUG in its environment" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_process_without_torch_is_told_and_reports_once_it_has_it(tmp_path: Path) -> None:
    mark = tmp_path / "go"
    script = (
        "import os, time\nprint('ready')\n"
        f"while not os.path.exists({str(mark)!r}):\n    time.sleep(0.002)\n"
        "import torch\nprint('imported')\n" + BUSY
    )
    with running(script, tmp_path, PYTHONPATH=make_stub_torch(tmp_path)) as target:
        target.wait_for("ready")
        outcome = attach(target)
        assert outcome.code == 7
        assert outcome.stderr == (
            f"vramscope: process {target.pid} (python) has the probe but has not imported torch yet; "
            "it will report once it does\n"
        ).replace("(python)", f"({Path(f'/proc/{target.pid}/comm').read_text().strip()})")
        mark.touch()
        target.wait_for("imported")
        wait_until(lambda: [rank["pid"] for rank in list_ranks()] == [target.pid], what="its report")


def test_a_process_that_imports_torch_at_this_moment_reports_once_it_has_it(tmp_path: Path) -> None:
    mark, stub = tmp_path / "go", make_stub_torch(tmp_path)
    (Path(stub) / "torch/__init__.py").write_text(
        f"import os, time\nprint('ready')\nwhile not os.path.exists({str(mark)!r}):\n    time.sleep(0.002)\n"
        "__version__ = '0'\n"
    )
    with running("import torch\n" + BUSY, tmp_path, PYTHONPATH=stub) as target:
        target.wait_for("ready")
        outcome = run("attach", str(target.pid), "--timeout", "0.3s")
        assert outcome.code == 7
        assert outcome.stderr.endswith(
            "has the probe but is still importing torch; it will report once it has\n"
        )
        mark.touch()
        wait_until(lambda: [rank["pid"] for rank in list_ranks()] == [target.pid], what="its report")


def check_late_attach(target: Target, door: Path) -> None:
    """Attach to a process that waits in the kernel until somebody opens `door`, and open it."""
    target.wait_for("ready")
    outcome = run("attach", str(target.pid), "--timeout", "0.5s")
    assert outcome.code == 7
    assert "it will report once that thread continues" in outcome.stderr
    assert list_ranks() == []
    with door.open("w"):
        target.wait_for("through")
        wait_until(lambda: [rank["pid"] for rank in list_ranks()] == [target.pid], what="its report")
    assert target.said == "ready\nthrough\n"
    wait_until(lambda: not list(locate_runtime_folder().glob("attach-*")), what="the end of the payload")


def write_waiting_script(door: Path) -> str:
    """Return a script whose main thread runs no Python until somebody writes to a FIFO, which is made."""
    os.mkfifo(door)
    return f"import torch\nprint('ready')\nopen({str(door)!r})\nprint('through')\n{BUSY}"


@pytest.mark.waits
def test_a_main_thread_that_waits_takes_the_probe_up_when_it_returns(tmp_path: Path) -> None:
    door = tmp_path / "door"
    with running(write_waiting_script(door), tmp_path, PYTHONPATH=make_stub_torch(tmp_path)) as target:
        check_late_attach(target, door)


def test_python_3_14_takes_the_probe_up_late_as_well(tmp_path: Path) -> None:
    python, door = find_python_314(), tmp_path / "door"
    script = write_waiting_script(door)
    with running(script, tmp_path, python=python, PYTHONPATH=make_stub_torch(tmp_path)) as target:
        check_late_attach(target, door)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("attach", "4194305"), 2, "there is no process 4194305"),
        (("attach", "0"), 2, "PID 0: expected the number of a process"),
        (("attach", "train.py"), 2, "argument PID: invalid int value: 'train.py'"),
        (("attach", "1", "--timeout", "soon"), 2, "--timeout soon: not a duration"),
        (("attach",), 2, "the following arguments are required: PID"),
        (("detach", "1"), 7, "no agent serves"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(words: tuple[str, ...], code: int, said: str) -> None:
    outcome = run(*words)
    assert (outcome.code, outcome.stdout) == (code, "")
    assert said in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert not (locate_runtime_folder() / "hub.lock").exists()
