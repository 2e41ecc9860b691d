"""What each way to run vramscope loads, seen in a fresh interpreter: headless means without a screen."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.analyzers.planning.sweep.trees import SMALL, write_tree
from tests.engine.agent.hubs import has_worker
from tests.structure.tree import PRODUCT_FOLDERS, ROOT, python_files
from tests.waiting import wait_until
from vramscope.engine.viewer.client import connect
from vramscope.engine.wire.endpoints import is_hub_alive

SCREEN = {"textual", "vramscope.tui"}
RICH = {"rich", "markdown_it", "pygments"}
HEAVY = {"torch", "matplotlib", "networkx", "numpy", "tomlkit"}
LIVES_ELSEWHERE = (
    "vramscope.engine.simulation.",
    "vramscope.engine.workloads.",
    "vramscope.engine.probe.shim.",
    *(f"vramscope.callbacks.{framework}" for framework in ("keras", "lightning", "transformers")),
)
"""Modules that only the interpreter that trains loads."""
BARE_NAMES = {"engine", "analyzers", "exporters", "tui"}
"""Names that would collide with the user's own training code."""


def _imported(importtime: str) -> set[str]:
    """Return the modules and their packages in what `python -X importtime` wrote."""
    lines = [line for line in importtime.splitlines() if line.startswith("import time:")]
    names = {line.rpartition("|")[2].strip() for line in lines}
    return {".".join(name.split(".")[: depth + 1]) for name in names for depth in range(name.count(".") + 1)}


def _run(*arguments: str) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """Run vramscope and return how it ended and what it imported."""
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "vramscope", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return result, _imported(result.stderr)


def _run_each(*runs: tuple[str, ...]) -> tuple[list[int], set[str]]:
    """Run verbs one after the other in one interpreter; return their codes and what any of them imported."""
    code = (
        "import json, sys\nfrom vramscope.cli.application import run\n"
        f"codes = [run(list(words)) for words in {runs!r}]\n"
        "print(json.dumps(codes))"
    )
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in result.stderr, result.stderr
    return json.loads(result.stdout.splitlines()[-1]), _imported(result.stderr)


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        pytest.param(("--version",), SCREEN | RICH | HEAVY | {"zmq", "pynvml", "psutil"}, id="version"),
        pytest.param(("--help",), SCREEN | RICH | HEAVY, id="help"),
        pytest.param(("--once", "--json"), SCREEN | RICH | HEAVY, id="once as JSON"),
        pytest.param(("--json", "--duration", "1s"), SCREEN | RICH | HEAVY, id="JSON lines"),
        pytest.param(("--once",), SCREEN | HEAVY, id="once"),
        # The doctor asks tui/terminal/abilities.py what could be drawn here; that file loads no Textual.
        pytest.param(("doctor", "--json"), {"textual"} | RICH | HEAVY, id="doctor as JSON"),
        pytest.param(
            ("plan", "--model", "gpt2", "--json"),
            SCREEN | RICH | (HEAVY - {"networkx"}) | {"zmq", "pynvml", "psutil"},
            id="plan as JSON",
        ),
        pytest.param(("completion", "bash"), SCREEN | RICH | HEAVY, id="completion"),
        pytest.param(
            ("guard", "--connect", "127.0.0.1:9", "--duration", "0.1s"), SCREEN | RICH | HEAVY, id="guard"
        ),
        pytest.param(("no-such-verb",), SCREEN | RICH | HEAVY, id="usage error"),
    ],
)
def test_headless_verbs_load_no_screen_and_nothing_heavy(
    arguments: tuple[str, ...], forbidden: set[str]
) -> None:
    result, imported = _run(*arguments)
    assert "vramscope" in imported, result.stderr
    assert "Traceback" not in result.stderr
    assert imported & (forbidden | BARE_NAMES) == set()


def test_reports_of_a_file_load_no_screen_no_driver_and_nothing_heavy(private_environment: Path) -> None:
    series = private_environment / "series.csv"
    series.write_text("time_s,device,allocated_bytes\n1,0,1048576\n2,0,1048576\n")
    verbs = (("profile",), ("oom",), ("leak",), ("leak", "--enable-tracking"), ("fragment",))
    codes, imported = _run_each(*((*verb, "--input", str(series)) for verb in verbs))
    assert codes == [0] * len(verbs)
    assert "vramscope.exporters.reports.frame" in imported
    forbidden = SCREEN | RICH | HEAVY | {"zmq", "pynvml", "psutil"}
    assert imported & (forbidden | BARE_NAMES) == set()


def test_reports_of_a_node_load_no_screen_and_nothing_heavy() -> None:
    verbs = ("profile", "oom", "leak", "fragment")
    _, imported = _run_each(*((verb, "--duration", "100ms", "--interval", "100ms") for verb in verbs))
    assert "vramscope.engine.sampling.live" in imported
    assert imported & (SCREEN | RICH | HEAVY | BARE_NAMES | {"zmq"}) == set()


MONITOR = {"vramscope.analyzers.verdict", "vramscope.analyzers.risk", "vramscope.analyzers.findings"}


def test_the_monitor_and_the_planning_rooms_load_without_each_other(private_environment: Path) -> None:
    tree = write_tree(private_environment)
    result, imported = _run("heatmap", "--memory-dir", str(tree / "memory_traces_scaling" / SMALL), "--json")
    assert result.returncode == 0, result.stderr
    assert imported & (MONITOR | SCREEN | RICH | HEAVY | {"zmq", "vramscope.exporters.status"}) == set()
    series = private_environment / "series.csv"
    series.write_text("time_s,device,allocated_bytes\n1,0,1048576\n2,0,1048576\n")
    result, imported = _run("profile", "--input", str(series), "--figure", str(private_environment / "p.png"))
    assert "vramscope.exporters.figures.charts" in imported, result.stderr
    assert "vramscope.analyzers.planning" not in imported


def test_recording_a_node_loads_no_screen_and_nothing_heavy(private_environment: Path) -> None:
    path = private_environment / "run.vscope"
    _, imported = _run("record", "-o", str(path), "--duration", "0.1")
    assert "vramscope.engine.recording.writer" in imported
    assert imported & (SCREEN | RICH | HEAVY | BARE_NAMES | {"zmq"}) == set()
    result, imported = _run("leak", "--input", str(path))
    assert "sqlite3" in imported, result.stderr
    assert imported & (SCREEN | RICH | HEAVY | BARE_NAMES | {"zmq", "pynvml", "psutil"}) == set()


def test_importing_and_exporting_loads_no_screen_no_driver_and_nothing_heavy(
    private_environment: Path,
) -> None:
    series, path = private_environment / "series.csv", private_environment / "run.vscope"
    series.write_text("time_s,device,allocated_bytes\n1,0,1048576\n2,0,1048576\n")
    codes, imported = _run_each(
        ("import", str(series), "-o", str(path)),
        ("export", str(path), "--prometheus"),
        ("diff", str(series), str(path), "--json"),
    )
    assert codes == [0, 0, 0]
    assert "vramscope.engine.recording.recording" in imported
    assert imported & (SCREEN | RICH | HEAVY | BARE_NAMES | {"zmq", "pynvml", "psutil", "pyarrow"}) == set()


def test_classes_for_programs_load_no_screen_and_nothing_heavy() -> None:
    names = ("MemoryProfiler", "OOMDetector", "FragmentationAnalyzer", "MemoryLeakDetector")
    modules = _modules_after("import vramscope\n" + "\n".join(f"vramscope.{name}()" for name in names))
    assert modules & (SCREEN | RICH | HEAVY | BARE_NAMES | {"zmq"}) == set()


@pytest.fixture
def agent_imports(private_environment: Path) -> Iterator[set[str]]:
    """Imports of a hub and its worker, once the worker has loaded its analyzers."""
    runtime_dir = private_environment / "run" / "vramscope"
    stderr = private_environment / "agent.log"
    with stderr.open("wb") as log:
        agent = subprocess.Popen(
            [sys.executable, "-m", "vramscope", "agent"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )

    def written() -> str:
        logs = [stderr, *runtime_dir.glob("*.log")]
        return "\n".join(path.read_text(errors="replace") for path in logs)

    try:
        wait_until(lambda: is_hub_alive(runtime_dir), 30.0, "the hub")
        with connect(timeout_s=30.0) as client:
            wait_until(lambda: has_worker(client.snapshot(0.05)), 60.0, "a worker that reports")
        yield _imported(written())
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait(60)


def test_agent_and_worker_load_no_screen_and_no_numpy(agent_imports: set[str]) -> None:
    assert {"vramscope.engine.agent.hub", "vramscope.engine.agent.worker"} <= agent_imports
    assert agent_imports & (SCREEN | RICH | HEAVY | BARE_NAMES) == set()


def _modules_after(statement: str) -> set[str]:
    """Return what a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


def _name_of(path: Path) -> str:
    """Return the name under which a file of the product is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    inside = parts[1:] if parts[0] == "vramscope" else parts
    return ".".join(("vramscope", *(part for part in inside if part != "__init__")))


def test_every_module_can_be_imported_under_its_one_name() -> None:
    names = {_name_of(path) for path in python_files(PRODUCT_FOLDERS)}
    ours = [name for name in names if not name.startswith(LIVES_ELSEWHERE) and "__main__" not in name]
    modules = _modules_after(f"import importlib\nfor name in {sorted(ours)!r}: importlib.import_module(name)")
    assert {"vramscope.tui", "vramscope.engine.probe.session"} <= modules
    assert modules & (BARE_NAMES | {"torch", "matplotlib", "networkx"}) == set()


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("vramscope", SCREEN | RICH | HEAVY | {"zmq", "pynvml", "psutil", "msgspec"}),
        ("vramscope.engine.model", SCREEN | RICH | HEAVY | {"zmq", "pynvml", "psutil"}),
        ("vramscope.analyzers.pressure", SCREEN | RICH | HEAVY | {"zmq", "pynvml", "psutil"}),
        ("vramscope.exporters.json_lines", SCREEN | RICH | HEAVY | {"zmq", "pynvml", "psutil"}),
        ("vramscope.exporters.figures", SCREEN | RICH | HEAVY | {"pynvml", "psutil"}),
        ("vramscope.engine.sampling.series_source", SCREEN | RICH | HEAVY | {"pynvml", "psutil"}),
    ],
)
def test_libraries_load_what_they_need_and_no_more(module: str, forbidden: set[str]) -> None:
    assert _modules_after(f"import {module}") & forbidden == set()
