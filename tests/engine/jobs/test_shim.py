"""The shim: what an interpreter of a job does before, and instead of, anything that the job sees."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramscope.engine.paths import SHIM

from .interpreters import OLD, SUPPORTED, list_pythons

PROBE = """
calls = []

def watch_imports(runtime_dir, job):
    calls.append(["watch", runtime_dir, job])

def after_torch_import(callback):
    calls.append(["after"])
    callback(None)
"""
SIMULATION = """
installed = []

def install(config, allocator):
    installed.append([config["total_bytes"], allocator.__name__])
"""
PYTHONS = list_pythons(*SUPPORTED) or {"this": Path(sys.executable)}


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """Packages that write down how they were called, and a torch and a JAX that do nothing."""
    texts = {"probe": PROBE, "simulation": SIMULATION, "allocator": "", "site/torch": "", "site/jax": ""}
    for name, text in texts.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text(text)
    return tmp_path


def job_environment(parts: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a job with the pretend packages."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(SHIM), str(parts / "site"))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "VRAMSCOPE_PROBE": str(parts / "probe"),
        "VRAMSCOPE_RUNTIME_DIR": str(parts / "run"),
        "VRAMSCOPE_JOB": "gpt",
        **variables,
    }


def execute(python: Path | str, code: str, environment: dict[str, str], *flags: str) -> str:
    """Run some code and return what it printed; it must say nothing on stderr."""
    done = subprocess.run(
        [str(python), *flags, "-c", code],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", ["torch", "jax"])
@pytest.mark.parametrize("version", sorted(PYTHONS))
def test_the_probe_watches_once_a_framework_is_imported(version: str, name: str, parts: Path) -> None:
    code = (
        f"import sys, json; import {name}, {name}\n"
        f"print(json.dumps([sys.modules['vramscope_probe'].calls, {name}.__file__]))"
    )
    calls, file = json.loads(execute(PYTHONS[version], code, job_environment(parts)))
    assert calls == [["watch", str(parts / "run"), "gpt"]]
    assert file == str(parts / f"site/{name}/__init__.py")


@pytest.mark.parametrize("version", sorted(PYTHONS))
def test_a_process_without_torch_loads_nothing_of_the_probe(version: str, parts: Path) -> None:
    code = "import sys, json; print(json.dumps(sorted(sys.modules)))"
    modules = set(json.loads(execute(PYTHONS[version], code, job_environment(parts))))
    plain = {**job_environment(parts), "PYTHONPATH": ""}
    without = set(json.loads(execute(PYTHONS[version], code, plain)))
    assert modules - without <= {"sitecustomize", "vramscope_shim"}


@pytest.mark.parametrize("version", sorted(list_pythons(*OLD)))
def test_a_python_too_old_for_the_probe_runs_as_ever(version: str, parts: Path) -> None:
    code = "import sys, torch; print([name for name in sys.modules if name.startswith('vramscope')])"
    assert execute(list_pythons(*OLD)[version], code, job_environment(parts)) == "[]\n"


@pytest.mark.parametrize("flag", ["-I", "-E", "-S"])
def test_an_isolated_interpreter_is_left_alone(flag: str, parts: Path) -> None:
    code = "import sys; print('vramscope_shim' in sys.modules)"
    assert execute(sys.executable, code, job_environment(parts), flag) == "False\n"


def test_the_simulated_device_is_installed_once_torch_is_there(parts: Path) -> None:
    config = {
        "total_bytes": 5,
        "simulation_path": str(parts / "simulation"),
        "allocator_path": str(parts / "allocator"),
    }
    code = "import sys, torch; print(sys.modules['vramscope_simulation'].installed)"
    environment = job_environment(parts, VRAMSCOPE_SIMULATE=json.dumps(config))
    assert execute(sys.executable, code, environment) == "[[5, 'vramscope_allocator_model']]\n"


def test_a_device_that_cannot_be_installed_is_told_in_one_line(parts: Path) -> None:
    environment = job_environment(parts, VRAMSCOPE_SIMULATE="{}")
    done = subprocess.run(
        [sys.executable, "-c", "import torch; print('ran')"],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    assert done.stdout == "ran\n"
    assert done.stderr == (
        "vramscope simulate: cannot install the simulated device (KeyError: 'allocator_path')\n"
    )


@pytest.mark.parametrize("text", ["raise RuntimeError('broken')", "def broken(:", None])
def test_a_broken_probe_costs_the_job_nothing(text: str | None, parts: Path) -> None:
    first = parts / "probe/__init__.py"
    first.unlink() if text is None else first.write_text(text)
    code = "import sys, torch; print('vramscope_probe' in sys.modules, torch.__name__)"
    assert execute(sys.executable, code, job_environment(parts)) == "False torch\n"


def test_torch_that_is_missing_is_missing(parts: Path) -> None:
    code = "try:\n    import torch.cuda\nexcept ModuleNotFoundError as error:\n    print(error.name)"
    environment = {**job_environment(parts), "PYTHONPATH": str(SHIM)}
    assert execute(_without_packages(), code, environment, "-s").strip() == "torch"


def _without_packages() -> Path:
    """Return an interpreter that has no torch installed."""
    for path in PYTHONS.values():
        code = "import importlib.util as u; raise SystemExit(u.find_spec('torch') is not None)"
        if subprocess.run([path, "-s", "-c", code], check=False).returncode == 0:
            return path
    pytest.skip("every Python of this machine has torch")


@pytest.mark.parametrize("version", sorted({**list_pythons(*OLD), **PYTHONS}))
def test_the_sitecustomize_behind_it_runs_as_well(version: str, parts: Path) -> None:
    behind = parts / "site/sitecustomize.py"
    behind.write_text("import sys\nsys.path.append('/added')\nprint('behind')\n")
    code = "import sys, sitecustomize; print(sitecustomize.__file__); print(sys.path[1:3] + sys.path[-1:])"
    python = {**list_pythons(*OLD), **PYTHONS}[version]
    said = execute(python, code, job_environment(parts)).splitlines()
    assert said == ["behind", str(behind), str([str(SHIM), str(parts / "site"), "/added"])]


def test_a_sitecustomize_that_fails_fails_as_it_would_alone(parts: Path) -> None:
    (parts / "site/sitecustomize.py").write_text("import no_such_module\n")
    said = []
    for path in (f"{SHIM}{os.pathsep}{parts / 'site'}", str(parts / "site")):
        done = subprocess.run(
            [sys.executable, "-c", "import torch, sys; print('sitecustomize' in sys.modules)"],
            env={**job_environment(parts), "PYTHONPATH": path},
            capture_output=True,
            check=True,
            timeout=60,
        )
        said.append((done.stdout, done.stderr))
    assert said[0] == said[1]


def test_children_that_are_spawned_inherit_the_watch(parts: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing, sys\n"
        "def work():\n"
        "    import torch\n"
        "    print(sys.modules['vramscope_probe'].calls[0][2])\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(); child.join()\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env=job_environment(parts),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("gpt\n", "")
