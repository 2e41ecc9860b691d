"""Processes that train: a script of a test, run as a person would run it, the probe loaded by its path."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.structure.tree import ROOT
from tests.warm.starter import WarmProcess

PROBE_FOLDER = ROOT / "engine" / "probe"

LOAD = f"""
import sys, importlib.util
def load_probe():
    spec = importlib.util.spec_from_file_location(
        "vramscope_probe",
        {str(PROBE_FOLDER / "__init__.py")!r},
        submodule_search_locations=[{str(PROBE_FOLDER)!r}],
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules["vramscope_probe"] = module
    spec.loader.exec_module(module)
    return module
def failures():
    return list(sys.modules["vramscope_probe.base.current"].failures)
"""
VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
WATCH = "probe = load_probe(); probe.watch_imports(sys.argv[1], 'job-1')\n"
MODEL = """
import torch
torch.manual_seed(7)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
def train(steps, pause=0.0):
    import time
    for _ in range(steps):
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(pause)
"""


def start(
    folder: Path,
    script: str,
    *,
    prelude: str = LOAD + WATCH,
    python: str = sys.executable,
    options: tuple[str, ...] = (),
    environ: dict[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start a script with the runtime folder as its argument; what it prints is caught."""
    path = _write(folder, script, prelude)
    return subprocess.Popen(
        [python, *options, str(path), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **VARIABLES, **(environ or {})},
    )


def start_beside_torch(folder: Path, script: str, *, prelude: str = LOAD + WATCH) -> WarmProcess:
    """Start a script where torch is loaded already: for what does not depend on when it is."""
    path = _write(folder, script, prelude)
    return WarmProcess((str(path), str(folder)), folder, {**os.environ, **VARIABLES})


def finish(process: "subprocess.Popen[str] | WarmProcess", timeout_s: float = 100.0) -> str:
    """Wait for a process that must end well and say nothing on stderr; return what it printed."""
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:  # else it would be a failure of later tests, too
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, errors
    assert errors == ""
    return output


def run(folder: Path, script: str, **options: object) -> str:
    """Run a script to its end and return what it printed."""
    return finish(start(folder, script, **options))  # type: ignore[arg-type]


def run_beside_torch(
    folder: Path, script: str, *, prelude: str = LOAD + WATCH
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end where torch is loaded already; it must end well."""
    process = start_beside_torch(folder, script, prelude=prelude)
    output, errors = process.communicate(timeout=100.0)
    assert process.returncode == 0, errors
    return subprocess.CompletedProcess(process.args, 0, output, errors)


def _write(folder: Path, script: str, prelude: str) -> Path:
    path = folder / "train.py"
    path.write_text(prelude + textwrap.dedent(script), encoding="utf-8")
    return path
