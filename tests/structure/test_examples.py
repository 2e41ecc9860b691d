"""The examples do what the documentation says of them."""

import importlib.util
import os
import subprocess
import sys
import tomllib
from types import ModuleType

import pytest

from tests.structure.tree import ROOT
from vramscope.engine.model import DeviceSample, Finding, MemoryReading, Sample

GIB = 1 << 30
PLUGIN = ROOT / "examples" / "idle_memory"


@pytest.fixture
def idle_memory() -> ModuleType:
    spec = importlib.util.spec_from_file_location("idle_memory", PLUGIN / "idle_memory.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _sample(time_s: float, utilization_percent: float | None) -> Sample:
    memory = MemoryReading(total_bytes=80 * GIB, used_bytes=40 * GIB, free_bytes=40 * GIB)
    device = DeviceSample(uuid="GPU-a", index=0, memory=memory, utilization_percent=utilization_percent)
    return Sample(node="n", seq=int(time_s), time_s=time_s, interval_s=1.0, devices=(device,))


def test_idle_memory_opens_once_after_ten_minutes_and_closes_with_the_first_work(
    idle_memory: ModuleType,
) -> None:
    analyzer = idle_memory.IdleMemoryAnalyzer()
    found: list[Finding] = []
    for second in range(700):
        found += analyzer.observe(_sample(float(second), 0.0))
    assert [finding.opened_s for finding in found] == [600.0]
    (closed,) = analyzer.observe(_sample(700.0, 35.0))
    assert (closed.id, closed.closed_s) == (found[0].id, 700.0)


def test_idle_memory_concludes_nothing_from_what_was_not_measured(idle_memory: ModuleType) -> None:
    analyzer = idle_memory.IdleMemoryAnalyzer()
    assert [analyzer.observe(_sample(float(second), None)) for second in range(700)] == [[]] * 700


def test_plug_in_declares_the_analyzer_it_holds(idle_memory: ModuleType) -> None:
    declared = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, name = declared["vramscope.analyzers"]["idle-memory"].partition(":")
    assert module == idle_memory.__name__
    assert getattr(idle_memory, name).name == "idle-memory"


def test_watch_says_what_to_do_where_no_agent_runs() -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "examples" / "watch.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 7
    assert "vramscope agent" in result.stderr
    assert "Traceback" not in result.stderr
