"""`vramscope.attach()`, `step()` and `phase()` in a script that trains."""

import json
import subprocess
import sys
from pathlib import Path

from vramscope.engine.paths import locate_runtime_folder
from vramscope.engine.viewer.client import Client
from vramscope.engine.viewer.snapshot import Snapshot

from ...components import require_package
from ...vramscope.cli.running import environment, run
from ...vramscope.cli.test_stream import agent
from ..ranks.running import see
from ..uncompiled import UNCOMPILED
from .targets import running


def execute(code: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(**variables),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )


def test_a_script_loads_nothing_of_ours_but_the_probe() -> None:
    code = (
        "import sys, vramscope\n"
        "@vramscope.on_advice\n"
        "def obey(action, reason):\n"
        "    return True\n"
        "vramscope.attach(); vramscope.attach(); vramscope.step()\n"
        "assert sys.modules['vramscope_probe'].current.on_advice is obey\n"
        "heavy = {'msgspec', 'zmq', 'psutil', 'rich', 'textual', 'numpy', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)), 'vramscope_probe' in sys.modules)"
    )
    done = execute(code)
    assert (done.stdout, done.stderr) == ("[] True\n", "")


def test_without_a_probe_steps_and_phases_do_nothing() -> None:
    code = (
        "import sys, vramscope\n"
        "@vramscope.phase('evaluation')\n"
        "def add(a, *, b):\n"
        "    'Adds.'\n"
        "    return a + b\n"
        "with vramscope.phase('forward') as part:\n"
        "    with part:\n"
        "        vramscope.step()\n"
        "print(add(1, b=2), add.__doc__, 'vramscope_probe' in sys.modules)"
    )
    done = execute(code)
    assert (done.stdout, done.stderr) == ("3 Adds. False\n", "")


def test_an_error_within_a_phase_goes_on() -> None:
    code = (
        "import vramscope; vramscope.attach()\n"
        "try:\n"
        "    with vramscope.phase('forward'):\n"
        "        raise KeyError('mine')\n"
        "except KeyError as error:\n"
        "    print(error)"
    )
    assert execute(code).stdout == "'mine'\n"


def test_inside_a_job_it_is_the_probe_of_the_job(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, json, vramscope\n"
        "vramscope.attach()\n"
        "probe = sys.modules['vramscope_probe']\n"
        "sys.modules['torch'] = torch = type(sys)('torch')\n"
        "vramscope.attach()\n"
        "print(json.dumps([probe is sys.modules['vramscope_probe'], probe.__file__]))\n"
    )
    outcome = run("run", "--no-hub", "--", sys.executable, str(script))
    is_same, path = json.loads(outcome.stdout)
    assert is_same
    assert path.endswith("engine/probe/__init__.py")


TRAINING = (
    UNCOMPILED
    + """
import time, torch, vramscope
vramscope.attach()
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
print("ready")
while True:
    for part in range(4):
        optimizer.zero_grad()
        with vramscope.phase("forward"):
            loss = model(torch.randn(8, 64)).sum()
            time.sleep(0.02)
        loss.backward()
        optimizer.step()
    vramscope.step()
"""
)


def test_a_script_names_its_steps_and_their_parts(tmp_path: Path) -> None:
    require_package("torch")
    phases: set[object] = set()

    def look(snapshot: Snapshot) -> bool:
        ranks = () if snapshot.sample is None else snapshot.sample.ranks
        phases.update(rank.phase for rank in ranks if rank.pid == target.pid)
        return "forward" in phases and any(rank.step for rank in ranks)

    with agent(), running(TRAINING, tmp_path, PYTHONPATH=environment()["PYTHONPATH"]) as target:
        target.wait_for("ready")
        with Client(locate_runtime_folder()) as client:
            see(client, look, "a step with its phase", timeout_s=60.0)
        assert target.process.poll() is None
    assert target.said == "ready\n"


def test_a_runtime_folder_that_cannot_be_used_is_nothing_to_the_training() -> None:
    done = execute("import vramscope; vramscope.attach(); print('on')", VRAMSCOPE_RUNTIME_DIR="/proc/nowhere")
    assert (done.stdout, done.stderr) == ("on\n", "")
