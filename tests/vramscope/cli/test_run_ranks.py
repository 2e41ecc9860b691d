"""What `vramscope run` is for: the processes of a job appear, whatever starts them, nothing else changes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.components import require_package
from vramscope.engine.jobs.background import HubKeeper
from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.wire.endpoints import holder_pid, is_hub_alive

from ...engine.jobs.environments import make_environment_with_torch_alone
from ...engine.ranks.running import await_steps
from ...engine.uncompiled import UNCOMPILED
from ...waiting import wait_until
from .running import run

TRAINING = (
    UNCOMPILED
    + """
import os, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
while not os.path.exists(sys.argv[1]):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
print("done")
"""
)
SPAWNING = """
import multiprocessing, os, sys
def train(mark):
    sys.argv[1] = mark
    exec(open(os.path.join(os.path.dirname(mark), "train.py")).read(), {})
if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=train, args=(sys.argv[1],))
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.fixture(autouse=True)
def _end_hub(private_environment: Path) -> Iterator[None]:
    yield
    folder = locate_runtime_folder()
    pid = holder_pid(folder) if is_hub_alive(folder) else None
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the end of the agent")


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file whose being there ends the training."""
    require_package("torch")
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "spawn.py").write_text(SPAWNING)
    return tmp_path / "stop"


def list_ranks() -> list[dict[str, Any]]:
    ranks: list[dict[str, Any]] = run("--once", "--json").lines[0]["ranks"]
    return [rank for rank in ranks if rank["state"] == "ok" and rank["step"]]


@contextmanager
def job(*words: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a job; it must end well and have said nothing but `done`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vramscope", "run", "--quiet", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=REPOSITORY,  # where vramscope is found, and not by the scripts, which lie elsewhere
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        yield process
        said, complained = process.communicate(timeout=60)
        assert (process.returncode, complained) == (0, "")
        assert said == "done\n"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_job_of_an_environment_without_vramscope_appears_in_the_agent_that_was_started_for_it(
    mark: Path, tmp_path: Path
) -> None:
    python = make_environment_with_torch_alone(tmp_path / "other")
    names = ("torch", "vramscope", "msgspec", "zmq")
    code = f"import importlib.util as u; print(*(bool(u.find_spec(name)) for name in {names}))"
    seen = subprocess.run(
        [python, "-c", code], capture_output=True, encoding="utf-8", check=True, timeout=60, cwd=tmp_path
    )
    assert seen.stdout == "True False False False\n"
    script = str(mark.with_name("train.py"))
    with job("--job", "gpt", "--", str(python), script, str(mark)) as process:
        await_steps()
        (rank,) = list_ranks()
        assert (rank["pid"], rank["job"], rank["backend"]) == (process.pid, "gpt", "cpu")
        pid = holder_pid(locate_runtime_folder())
        assert pid is not None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert str(pid) not in children
        assert os.getsid(pid) == pid
        mark.touch()


def test_a_process_that_is_spawned_appears_and_its_parent_does_not(mark: Path) -> None:
    with job("--", sys.executable, str(mark.with_name("spawn.py")), str(mark)) as process:
        await_steps()
        (rank,) = list_ranks()
        assert rank["pid"] != process.pid
        mark.touch()


def test_a_job_whose_agent_cannot_start_runs_unwatched(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    outcome = run("run", "--quiet", "--runtime-dir", str(tmp_path), "--", "echo", "done")
    assert (outcome.code, outcome.stdout) == (0, "done\n")
    assert outcome.stderr.startswith("vramscope: no agent could be started, so the job runs without one: ")
    assert "chmod 700" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


@pytest.mark.waits
def test_an_agent_that_is_killed_while_the_job_runs_is_started_again(tmp_path: Path) -> None:
    mark = tmp_path / "stop"
    waiting = f"until [ -e {mark} ]; do sleep 0.1; done"
    words = [sys.executable, "-m", "vramscope", "run", "--", "sh", "-c", waiting]
    folder = locate_runtime_folder()
    with subprocess.Popen(words, cwd=REPOSITORY, stderr=subprocess.PIPE, encoding="utf-8") as process:
        # It writes its number after it has the lock; until then that of an earlier one may be there.
        wait_until(lambda: is_hub_alive(folder) and holder_pid(folder) is not None, what="the agent")
        first = holder_pid(folder)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not is_hub_alive(folder), what="the end of the agent")
        wait_until(
            lambda: is_hub_alive(folder) and holder_pid(folder) not in {first, None}, 60.0, "another agent"
        )
        second = holder_pid(folder)
        status = Path(f"/proc/{second}/status").read_text()
        assert int(re.findall(r"^SigBlk:\s*(\w+)", status, re.MULTILINE)[0], 16) == 0
        mark.touch()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said.splitlines()[-1].startswith("vramscope run: ended after ")


def test_an_agent_that_cannot_be_started_again_is_complained_of_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    said: list[str] = []
    keeper = HubKeeper(tmp_path, said.append)
    keeper.start()
    for _ in range(100):
        keeper.check()
    (complaint,) = said
    assert "chmod 700" in complaint


def test_an_agent_that_is_there_is_used(mark: Path) -> None:
    run("run", "--quiet", "--", "true")
    first = holder_pid(locate_runtime_folder())
    assert first is not None
    outcome = run("run", "--quiet", "--", "true")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert holder_pid(locate_runtime_folder()) == first


def test_no_agent_is_started_for_a_command_that_is_not_there_or_where_none_is_wanted() -> None:
    assert run("run", "--", "no-such-command").code == 127
    assert run("run", "--no-hub", "--quiet", "--", "true").code == 0
    assert not locate_runtime_folder().exists()


def test_a_job_that_waits_for_its_children_finds_only_its_own() -> None:
    code = "import os\ntry:\n    print(os.wait())\nexcept ChildProcessError:\n    print('none')"
    outcome = run("run", "--quiet", "--", sys.executable, "-c", code)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "none\n", "")


SIMULATED = """
import sys, torch
x = [torch.empty(64 << 20, device="cuda") for _ in range(2)]
print(torch.cuda.is_available(), torch.cuda.mem_get_info()[1], torch.cuda.memory_allocated())
try:
    while True:
        x.append(torch.empty(64 << 20, device="cuda"))
except torch.OutOfMemoryError:
    print("out of memory at", len(x))
"""


@pytest.mark.parametrize("storage", [(), ("--fake",)])
def test_a_script_runs_on_the_simulated_card(storage: tuple[str, ...]) -> None:
    require_package("torch")
    outcome = run("run", "--no-hub", "--simulate", "2GiB", *storage, "--", sys.executable, "-c", SIMULATED)
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.splitlines() == [f"True {2 << 30} {512 << 20}", "out of memory at 6"]
    _, peak, why = outcome.stderr.splitlines()
    assert re.fullmatch(
        r"vramscope run: ended after [\d.]+ s; simulated: peak reserved 1\.5 GiB of 2\.0 GiB with 512 MiB of "
        r"context; the job handled 1 out-of-memory error",
        peak,
    )
    assert why.startswith("vramscope run: 256 MiB more were needed; <string>:7 held most, 1.0 GiB; why: ")
    record = why.rpartition(" ")[2]
    assert run("inspect", record).code == 0
    assert not list(locate_runtime_folder().glob("summary-*"))


def test_a_job_whose_first_request_fails_is_one_that_used_the_card() -> None:
    require_package("torch")
    program = "import torch; torch.empty(1 << 31, device='cuda')"
    outcome = run("run", "--no-hub", "--simulate", "1GiB", "--fake", "--", sys.executable, "-c", program)
    assert outcome.code == 1
    peak, why = outcome.stderr.splitlines()[-2:]
    assert "simulated: peak reserved 0 B of 1.0 GiB" in peak
    assert peak.endswith("1 out-of-memory error")
    # The request is of 8 GiB, and half a GiB is free.
    assert why.startswith("vramscope run: 7.5 GiB more were needed; why: vramscope inspect ")
    inspected = run("inspect", why.rpartition(" ")[2]).stdout
    assert inspected.startswith("simulated device · out of memory")
    assert "0 B were allocated, 0 B reserved" in " ".join(inspected.split())


HOLDING = """
import torch
x = torch.empty(64 << 20, device="cuda")
taken, kernel = (torch.empty(1, 8, 512, 512, device="cuda"), torch.empty(8, 8, 1, 1, device="cuda"))
torch.nn.functional.conv2d(taken, kernel)
"""


def test_a_simulated_run_is_judged_by_the_range_of_what_no_tensor_holds() -> None:
    require_package("torch")

    def judge(*words: str) -> str:
        outcome = run("run", "--no-hub", "--fake", *words, "--", sys.executable, "-c", HOLDING)
        assert outcome.code == 0, outcome.stderr
        return outcome.stderr.splitlines()[-1]

    # A context of any GPU, 64 MiB of cuBLAS, twice the largest workspace of the convolution (16 MiB for
    # copies of its tensors and 8 MiB for its result), 5 % of what is reserved.
    assert re.search(
        r"peak reserved 278 MiB of 2\.0 GiB with 512 MiB of context: cannot say whether it fits with 274 MiB "
        r"to 1\.9 GiB for what no tensor holds$",
        judge("--simulate", "2GiB"),
    )
    most_mib = 300 + 64 + 2 * (16 + 8) + 0.05 * 278
    assert re.search(
        rf": fits with 300 MiB to {most_mib:.0f} MiB for what no tensor holds, at least 1\.3 GiB headroom$",
        judge("--simulate", "2GiB", "--context", "300MiB"),
    )
    assert re.search(
        r"with 659 MiB of context: fits with 384 MiB to 1\.9 GiB for what no tensor holds, ",
        judge("--simulate", "rtx4090"),
    )
