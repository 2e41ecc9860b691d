"""All four classes inside a process that trains on the simulated device: its own allocator is told."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests import REPOSITORY
from tests.components import require_package
from tests.once import make_once
from tests.warm.starter import write_warm_python

from ...exporters.reports.shapes import check_shape
from ..cli.running import no_library

MIB = 1 << 20
SCRIPT = """
import json, sys, time
import torch
import vramscope

def wait(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)

profiler = vramscope.MemoryProfiler(sampling_interval=0.05)
exact = vramscope.MemoryProfiler(sampling_interval=0.05, reset_peaks=True)
exact.start_monitoring()
with vramscope.phase("Model Creation"):
    weights = torch.ones(8 << 20, device="cuda")
for _ in range(2):
    with vramscope.phase("step"):
        with vramscope.phase("forward"):
            activations = torch.ones(4 << 20, device="cuda")
            del activations
        with vramscope.phase("backward"):
            gradients = torch.ones(2 << 20, device="cuda")
        del gradients
exact.stop_monitoring()
with vramscope.phase("not watched"):
    del weights
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
detector = vramscope.OOMDetector(sampling_interval=0.05)
analyzer = vramscope.FragmentationAnalyzer(sampling_interval=0.05)
leaks = vramscope.MemoryLeakDetector(sampling_interval=0.05)
watchers = (profiler, detector, analyzer, leaks)
for watcher in watchers:
    watcher.start_monitoring()
kept = [torch.ones(1 << 20, device="cuda") for _ in range(24)]
wait(lambda: all(watcher.devices for watcher in watchers))
highest = torch.cuda.memory_allocated()
wait(lambda: profiler.generate_report()["devices"]["0"]["current_memory"]["allocated"] == highest)
del kept[::2]
wait(lambda: analyzer.get_fragmentation_trend(0))
live = torch.cuda.memory_allocated()
wait(lambda: profiler.generate_report()["devices"]["0"]["current_memory"]["allocated"] == live)
current, trend = analyzer.get_current_fragmentation()[0], analyzer.get_fragmentation_trend(0)
prediction = detector.get_risk_assessment()[0]
result = {
    "allocated": torch.cuda.memory_allocated(),
    "profile": profiler.generate_report(),
    "oom": detector.generate_oom_report(),
    "fragment": analyzer.generate_fragmentation_report(),
    "leak": leaks.generate_leak_report(),
    "level": current.fragmentation_level.value,
    "ratio": current.fragmentation_ratio,
    "blocks": current.num_free_blocks,
    "measures": [current.measure, trend["measure"]],
    "ratios": [current.fragmentation_ratio, trend["current_fragmentation"]],
    "advice": analyzer.suggest_defragmentation(0),
    "risk": prediction.risk_level.value,
    "sources": [it["place"] for it in leaks.generate_leak_report()["tracking"]["sources"]],
}
report = exact.generate_report()
result["phases"] = report["phases"]
result["phase_text"] = exact.describe_phases()
result["status"] = profiler.get_current_status()[0]
events = []
detector.add_oom_callback(events.append)

def ask_too_much():
    return torch.empty(2 << 30, dtype=torch.uint8, device="cuda")

for count in (1, 2):
    try:
        ask_too_much()
    except torch.OutOfMemoryError as error:
        result["message"] = str(error)
    wait(lambda: len(events) == count)
wait(lambda: detector.generate_oom_report()["findings"])
result["events"] = [[it.device_id, it.requested_memory, it.available_memory, it.total_memory,
                     it.stack_trace, it.context_info["message"]] for it in events]
for watcher in watchers:
    watcher.stop_monitoring()
with open(sys.argv[1], "w") as file:
    json.dump(result, file)
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the script saw on a simulated card, without any driver."""
    require_package("torch")
    seen: dict[str, Any] = make_once(tmp_path_factory, "in-training", lambda: train(tmp_path_factory))
    return seen


def train(factory: pytest.TempPathFactory) -> object:
    folder = factory.mktemp("training")
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "vramscope", "run", "--no-hub", "--simulate", "1GiB", "--"]
    done = subprocess.run(
        [*command, write_warm_python(folder), str(folder / "train.py"), str(folder / "out")],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(REPOSITORY),
            "XDG_RUNTIME_DIR": str(factory.mktemp("run")),
            **no_library(folder),
        },
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out").read_text())


def test_the_allocator_of_the_process_is_told(result: dict[str, Any]) -> None:
    check_shape("profile", result["profile"])
    device = result["profile"]["devices"]["0"]
    assert device["memory_source"] == "allocator"
    assert device["current_memory"]["allocated"] == result["allocated"] == 12 * 4 * MIB
    assert device["peak_memory"] == 24 * 4 * MIB
    assert device["current_memory"]["total"] == 1 << 30
    assert result["profile"]["evidence"]["source"] == "process"


def test_blocks_are_read_from_the_allocator(result: dict[str, Any]) -> None:
    check_shape("fragment", result["fragment"])
    metrics = result["fragment"]["devices"]["0"]["current_metrics"]
    assert metrics["measure"] == "external"
    assert result["ratio"] == metrics["fragmentation_ratio"] > 0.5
    assert result["blocks"] == metrics["num_free_blocks"] >= 2
    assert result["measures"] == ["external", "external"]
    assert result["ratios"][0] == result["ratios"][1]
    assert result["level"] == metrics["fragmentation_level"]
    assert result["advice"]["device_id"] == 0
    assert (
        result["fragment"]["devices"]["0"]["allocation_pattern"]["size_distribution"]["small (<64MB)"] == 12
    )


def test_current_and_peak_are_of_one_measure(result: dict[str, Any]) -> None:
    status = result["status"]
    assert status["memory_measure"] in ("used", "reserved")
    assert status["peak_memory"] >= status["current_used"] >= status["current_allocated"]
    assert status["peak_allocated"] == 24 * 4 * MIB


def test_each_error_is_called_back_with_its_size_and_stack(result: dict[str, Any]) -> None:
    assert len(result["events"]) == 2
    for device_id, requested, available, total, stack, message in result["events"]:
        assert (device_id, requested, total) == (0, 2 << 30, 1 << 30)
        assert 0 < available < total
        assert stack.splitlines()[0].endswith("in ask_too_much")
        assert "own_process" not in stack
        assert message == result["message"]
        assert "Tried to allocate 2.00 GiB" in message


def test_phases_of_ones_own_loop_have_before_after_and_peak(result: dict[str, Any]) -> None:
    weights, activations, gradients = 32 * MIB, 16 * MIB, 8 * MIB
    told = {it["phase"]: it for it in result["phases"]}
    assert list(told) == ["Model Creation", "forward", "backward", "step"]
    assert all(it["is_peak_exact"] and it["device_id"] == 0 for it in told.values())
    names = ("calls", "before_allocated", "after_allocated", "peak_allocated", "difference_allocated")
    assert {name: [it[field] for field in names] for name, it in told.items()} == {
        "Model Creation": [1, 0, weights, weights, weights],
        "forward": [2, weights, weights, weights + activations, 0],
        "backward": [2, weights, weights + gradients, weights + gradients, gradients],
        "step": [2, weights, weights, weights + activations, 0],
    }
    assert result["phase_text"].startswith(
        "=== Model Creation Memory Usage ===\nBefore: 0.00 MB allocated, 0.00 MB reserved\n"
        "After:  32.00 MB allocated, 32.00 MB reserved\nPeak:   32.00 MB allocated\n"
        "Diff:   +32.00 MB allocated, +32.00 MB reserved\n"
    )
    _, summary = result["phase_text"].split("MEMORY USAGE SUMMARY\n")
    lines = summary.splitlines()
    assert lines[0] == "=" * 60
    assert lines[1:4] == ["1. Model Creation", "   Peak: 32.00 MB", "   Diff: +32.00 MB"]
    assert [line for line in lines if line[0].isdigit()] == [
        f"{number}. {phase['phase']}" for number, phase in enumerate(result["phases"], 1)
    ]


def test_risk_and_leaks_are_told(result: dict[str, Any]) -> None:
    check_shape("oom", result["oom"])
    check_shape("leak", result["leak"])
    assert result["risk"] in ("low", "medium", "high", "critical", "unknown")
    assert result["leak"]["devices"]["0"]["python_memory"]["end_mb"] > 50
    (tensors,) = [place for place in result["sources"] if place.startswith("torch.Tensor")]
    assert "12 more than at the baseline, 48.0 MiB" in tensors
    assert "`kept` of module __main__" in tensors


def test_a_program_that_has_not_used_its_device_is_left_without_a_context() -> None:
    code = (
        "import types, sys; asked = []; "
        "cuda = types.SimpleNamespace(is_initialized=lambda: False, "
        "memory_stats=asked.append, memory_stats_as_nested_dict=asked.append, device_count=lambda: 1); "
        "sys.modules['torch'] = types.SimpleNamespace(cuda=cuda); "
        "from vramscope.memory.own_process import OwnProcess; devices, ranks = OwnProcess().read(()); "
        "assert not asked and devices == () and ranks[0].allocator is None and ranks[0].resident_bytes"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)
