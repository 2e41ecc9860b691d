"""`MemoryLeakDetector` in a program: growth, a baseline, and the Python objects that have become more."""

import gc
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vramscope
from tests import REPOSITORY
from vramscope.engine.errors import UsageError

from ...components import require_package
from ...exporters.reports.shapes import check_shape
from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until
from ...warm.starter import run_warm

GIB, MIB = 1 << 30, 1 << 20
KEPT: list[object] = []


class Batch:
    """Something that a program keeps."""


@pytest.fixture
def detector(pretend_nvml: PretendDriver) -> Iterator[vramscope.MemoryLeakDetector]:
    made = vramscope.MemoryLeakDetector(sampling_interval=0.05, history_window=100_000)  # of any machine
    yield made
    made.stop_monitoring()
    KEPT.clear()


def wait_for_points(detector: vramscope.MemoryLeakDetector, count: int) -> None:
    """Return once so many snapshots of device 0 were seen."""

    def taken() -> bool:
        trend: Any = detector.get_memory_growth_trend(0)
        return bool(trend) and trend["data_points"] >= count

    wait_until(taken, 60.0, f"{count} snapshots")


def test_growth_of_device_and_host_is_told(
    detector: vramscope.MemoryLeakDetector, pretend_nvml: PretendDriver, tmp_path: Path
) -> None:
    device = pretend_nvml.add_device(used_bytes=10 * GIB)
    detector.start_monitoring()
    wait_for_points(detector, 6)
    device.set_memory(10 * GIB + 500 * MIB)
    wait_until(lambda: _growth(detector) == 500.0, 60.0, "the growth")
    wait_for_points(detector, 12)
    report: Any = detector.generate_leak_report(tmp_path / "leak.json")
    check_shape("leak", report)
    told = report["devices"]["0"]
    assert told["leak_risk"] is None
    assert told["python_memory"]["start_mb"] > 10
    assert (tmp_path / "leak.json").exists()
    # What the report recommends and what the object suggests are the same words.
    assert [it for it in detector.suggest_fixes(0) if "of device 0 grows by" in it]
    assert any("of device 0 grows by" in it for it in report["recommendations"])
    detector.set_baseline()
    wait_until(lambda: _growth(detector) == 0.0, 60.0, "growth from the new baseline on")


def _growth(detector: vramscope.MemoryLeakDetector) -> object:
    trend: Any = detector.get_memory_growth_trend(0)
    return trend["gpu_memory"]["total_growth_mb"]


def test_before_it_was_started_the_summary_says_so(detector: vramscope.MemoryLeakDetector) -> None:
    assert detector.get_leak_summary() == {"error": "Monitoring not started"}
    assert detector.get_memory_growth_trend(0) == {}


def test_a_healthy_program_has_no_leaks_and_no_fixes(
    detector: vramscope.MemoryLeakDetector, pretend_nvml: PretendDriver
) -> None:
    pretend_nvml.add_device(used_bytes=10 * GIB)
    detector.start_monitoring()
    wait_for_points(detector, 12)
    assert detector.get_leak_summary()["total_leaks_detected"] == 0
    assert detector.suggest_fixes(0) == ["No memory was seen to grow without end"]


def test_objects_that_have_become_more_are_named(
    detector: vramscope.MemoryLeakDetector, pretend_nvml: PretendDriver
) -> None:
    pretend_nvml.add_device(used_bytes=10 * GIB)
    detector.start_monitoring()
    KEPT.extend(Batch() for _ in range(5000))
    report: Any = detector.generate_leak_report()
    assert report["tracking"]["active"]
    (found,) = [it for it in report["tracking"]["sources"] if "Batch" in it["place"]]
    assert found["blocks"] == 5000
    assert found["grown_bytes"] is None


def test_tracking_can_be_left_out(pretend_nvml: PretendDriver) -> None:
    detector = vramscope.MemoryLeakDetector(enable_reference_tracking=False)
    report: Any = detector.generate_leak_report()
    assert report["tracking"]["requested"] is False


def test_garbage_is_collected_on_demand(detector: vramscope.MemoryLeakDetector) -> None:
    gc.collect()
    one, other = Batch(), Batch()
    one.other, other.other = other, one  # type: ignore[attr-defined] # a cycle
    del one, other
    assert detector.force_garbage_collection() >= 2


KEEPING = f"""
import gc, json, sys
sys.path.insert(0, {str(REPOSITORY)!r})
import torch
from vramscope.memory.leak_detector import ReferenceTracker
gc.unfreeze()
if "frozen" in sys.argv:
    gc.freeze()
KEPT = []
before = [torch.ones(1024) for _ in range(8)]
tracker = ReferenceTracker()
tracker.set_baseline()
KEPT.extend(torch.ones(1 << 18) for _ in range(16))
found = [it for it in tracker.find_growth() if it.name == "torch.Tensor"]
KEPT.clear()
after = [it for it in tracker.find_growth() if it.name == "torch.Tensor"]
print(json.dumps([[it.more, it.size_bytes, it.holders] for it in (*found, *after)]))
"""


@pytest.mark.parametrize("words", [(), ("frozen",)], ids=["", "frozen"])
def test_tensors_that_stay_are_told_with_who_holds_them(words: tuple[str, ...], tmp_path: Path) -> None:
    """In a program that has taken all that it loaded out of the collector's sight, and one that has not."""
    require_package("torch")
    (tmp_path / "keep.py").write_text(KEEPING)
    done = run_warm((str(tmp_path / "keep.py"), *words), tmp_path, os.environ, 60.0)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [[16, 16 * MIB, ["list of 16 `KEPT` of module __main__"]]]


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="leak_threshold"):
        vramscope.MemoryLeakDetector(leak_threshold=-1)
    with pytest.raises(UsageError, match="history_window"):
        vramscope.MemoryLeakDetector(history_window=1)
