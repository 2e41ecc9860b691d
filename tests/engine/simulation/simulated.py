"""Runs a script in an interpreter of its own, on a simulated device or plainly."""

import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.structure.tree import ROOT
from tests.warm.starter import WarmProcess, run_warm

MIB = 1 << 20
GIB = 1 << 30
TIMEOUT_S = 240
_run_numbers = itertools.count()
READ_BY_US = {"CUDA_VISIBLE_DEVICES"}
"""Variables that the simulated device reads when it is made; PyTorch itself reads others as it is loaded."""

BOOT = """
import importlib.util, json, os, runpy, sys
def load(name, folder):
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
import torch
config = json.loads(os.environ["SIMULATED_CONFIG"])
if config is not None:
    root = os.environ["SIMULATED_ROOT"]
    model = load("vramscope_allocator_model", os.path.join(root, "analyzers", "allocator_model"))
    load("vramscope_simulation", os.path.join(root, "engine", "simulation")).install(config, model)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_script(
    folder: Path,
    source: str,
    config: dict[str, Any] | None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a script and return how it ended.

    Args:
        folder: Where the script is written, and its working directory.
        source: The script.
        config: Configuration of the simulated device; None runs the script plainly.
        environment: Variables to add.
    """
    words, variables = _write(folder, source), _make_environment(config, environment)
    if environment.keys() <= READ_BY_US:
        return run_warm(words, folder, variables, TIMEOUT_S)
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def run_ranks(folder: Path, source: str, config: dict[str, Any], count: int) -> list[str]:
    """Run a script as so many ranks at once, with what torchrun sets, and return what each printed."""
    # Not an ephemeral port: some connection could get it before the first rank listens there. A new one for
    # each run: the first rank of the run before may still listen, and would take the ranks of this one.
    port = 10_000 + (97 * os.getpid() + next(_run_numbers)) % 20_000
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    shared["LOCAL_WORLD_SIZE"] = shared["WORLD_SIZE"]
    words = _write(folder, source)  # once: a rank that reads it while it is written again finds it empty
    processes = []
    for rank in range(count):
        variables = _make_environment(config, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        processes.append(WarmProcess(words, folder, variables))
    with ThreadPoolExecutor(count) as pool:
        ended = {pool.submit(it.communicate, TIMEOUT_S): it for it in processes}
        try:
            # The others would wait for one that fails.
            for future in as_completed(ended):
                assert ended[future].returncode == 0, future.result()[1]
        finally:
            for it in processes:
                if it.returncode is None:
                    with suppress(ProcessLookupError):
                        os.kill(it.pid, signal.SIGKILL)
    return [future.result()[0] for future in ended]


def _write(folder: Path, source: str) -> tuple[str, str]:
    """Write a script and what starts it; return the words that run both."""
    boot, script = folder / "boot.py", folder / "train.py"
    boot.write_text(BOOT, encoding="utf-8")
    script.write_text(textwrap.dedent(source), encoding="utf-8")
    return str(boot), str(script)


def _make_environment(config: dict[str, Any] | None, environment: dict[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "SIMULATED_CONFIG": json.dumps(config),
        "SIMULATED_ROOT": str(ROOT),
        "OMP_NUM_THREADS": "1",
        **environment,
    }


def answers(folder: Path, source: str, *, total_bytes: int = 2 * GIB, **config: Any) -> Any:
    """Run a script on a simulated device and return the JSON in its last line; it must succeed."""
    result = run_script(folder, source, {"total_bytes": total_bytes, **config})
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def plain_answers(folder: Path, source: str) -> Any:
    """Run a script on the host and return the JSON in its last line; it must succeed."""
    result = run_script(folder, source, None)
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout.splitlines()[-1])
