"""`OOMDetector` in a program: the risk by device, and callbacks that may act on it."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vramscope
from vramscope.engine.errors import UsageError
from vramscope.memory.oom_detector import OOMPrediction, OOMRiskLevel

from ...exporters.reports.shapes import check_shape
from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until

GIB = 1 << 30


@pytest.fixture
def detector(pretend_nvml: PretendDriver) -> Iterator[vramscope.OOMDetector]:
    made = vramscope.OOMDetector(sampling_interval=0.05, prediction_window=5)
    yield made
    made.stop_monitoring()


def start(detector: vramscope.OOMDetector) -> None:
    """Begin to watch and return once a few samples were seen."""
    detector.start_monitoring()
    wait_until(lambda: detector.get_memory_trends(0).get("data_points", 0) >= 5, 60.0, "samples")  # type: ignore[operator] # a number


def test_device_memory_alone_is_judged_by_its_usage(
    detector: vramscope.OOMDetector, pretend_nvml: PretendDriver, tmp_path: Path
) -> None:
    pretend_nvml.add_device(used_bytes=78 * GIB)
    pretend_nvml.add_device(used_bytes=8 * GIB)
    start(detector)
    risks = detector.get_risk_assessment()
    assert [risks[index].risk_level.value for index in (0, 1)] == ["critical", "low"]
    assert (risks[0].current_usage, risks[0].basis) == (0.975, "threshold")
    assert risks[0].predicted_oom_time is None
    report: Any = detector.generate_oom_report(str(tmp_path / "oom.json"))
    check_shape("oom", report)
    assert (tmp_path / "oom.json").exists()


def test_a_callback_is_called_once_a_crossing(
    detector: vramscope.OOMDetector, pretend_nvml: PretendDriver
) -> None:
    device = pretend_nvml.add_device(used_bytes=8 * GIB)
    calls: list[tuple[int, str]] = []

    def act(device_id: int, prediction: OOMPrediction) -> None:
        calls.append((device_id, prediction.risk_level.value))
        # What a callback is for: it may ask the detector, and it lets memory go.
        assert detector.get_risk_assessment()[device_id].risk_level.value == "critical"
        device.set_memory(8 * GIB)

    detector.add_warning_callback(act)
    start(detector)
    for count in (1, 2):
        device.set_memory(78 * GIB)
        wait_until(lambda count=count: len(calls) == count, 60.0, "the callback")  # type: ignore[misc] # bound
        wait_until(
            lambda: detector.get_risk_assessment()[0].risk_level.value in ("low", "medium"), 20.0, "the fall"
        )
    detector.stop_monitoring()
    assert calls == [(0, "critical"), (0, "critical")]


def test_a_threshold_that_was_given_calls_back_once_a_crossing(pretend_nvml: PretendDriver) -> None:
    device = pretend_nvml.add_device(used_bytes=58 * GIB)
    made = vramscope.OOMDetector(warning_threshold=0.75, critical_threshold=0.9, sampling_interval=0.05)
    calls: list[str] = []
    made.add_warning_callback(lambda _, prediction: calls.append(prediction.risk_level.value))
    start(made)
    assert calls == []
    device.set_memory(61 * GIB)
    wait_until(lambda: len(calls) == 1, 60.0, "the crossing of the first threshold")
    device.set_memory(59 * GIB)
    device.set_memory(61 * GIB)
    device.set_memory(73 * GIB)
    wait_until(lambda: len(calls) == 2, 60.0, "the crossing of the second threshold")
    seen = made.get_memory_trends(0)["data_points"]
    wait_until(lambda: made.get_memory_trends(0)["data_points"] >= seen + 10, 60.0, "samples")  # type: ignore[operator] # a number
    made.stop_monitoring()
    assert len(calls) == 2
    assert calls[0] in ("medium", "high")
    assert calls[1] == "critical"


def test_a_risk_that_stays_is_told_once(detector: vramscope.OOMDetector, pretend_nvml: PretendDriver) -> None:
    pretend_nvml.add_device(used_bytes=78 * GIB)
    calls: list[str] = []
    detector.add_warning_callback(lambda _, prediction: calls.append(prediction.risk_level.value))
    start(detector)
    wait_until(lambda: detector.get_memory_trends(0)["data_points"] >= 15, 60.0, "samples")  # type: ignore[operator] # a number
    detector.stop_monitoring()
    assert calls == ["critical"]


def test_each_rise_is_told_and_no_fall(detector: vramscope.OOMDetector) -> None:
    levels = ["medium", "high", "high", "critical", "high", "low", "critical"]
    told = [detector._is_news(0, OOMRiskLevel(level)) for level in levels]
    assert told == [False, True, False, True, False, False, True]


def test_a_callback_that_raises_is_told_once_and_ends_nothing(
    detector: vramscope.OOMDetector, pretend_nvml: PretendDriver, capfd: pytest.CaptureFixture[str]
) -> None:
    device = pretend_nvml.add_device(used_bytes=8 * GIB)
    called = threading.Semaphore(0)
    reached = threading.Event()

    def fail(device_id: int, prediction: OOMPrediction) -> None:
        called.release()
        raise ValueError("a bug of the program")

    detector.add_warning_callback(fail)
    detector.add_warning_callback(lambda *_: reached.set())
    start(detector)
    for _ in range(2):
        device.set_memory(78 * GIB)
        assert called.acquire(timeout=60)
        device.set_memory(8 * GIB)
        wait_until(lambda: detector.get_risk_assessment()[0].risk_level.value != "critical", 60.0, "the fall")
    assert reached.wait(timeout=60)
    assert detector.is_monitoring
    said = capfd.readouterr().err
    assert said == "vramscope: a callback raised ValueError: a bug of the program; monitoring goes on\n"


def test_a_scenario_is_judged_without_anything_being_taken(
    detector: vramscope.OOMDetector, pretend_nvml: PretendDriver
) -> None:
    pretend_nvml.add_device(used_bytes=40 * GIB)
    start(detector)
    harmless = detector.simulate_oom_scenario(0, memory_increase_mb=0.001)
    grave = detector.simulate_oom_scenario(0, memory_increase_mb=4096)
    assert harmless is not None
    assert grave is not None
    assert (harmless.risk_level.value, grave.risk_level.value) == ("low", "critical")
    assert harmless.is_simulated
    assert grave.is_simulated
    assert detector.get_risk_assessment()[0].risk_level.value == "low"
    assert detector.get_memory_trends(0)["max_memory"] == 40 * GIB
    assert detector.simulate_oom_scenario(5) is None


def test_trends_are_of_the_device(detector: vramscope.OOMDetector, pretend_nvml: PretendDriver) -> None:
    pretend_nvml.add_device(used_bytes=40 * GIB)
    start(detector)
    trend = detector.get_memory_trends(0, duration_minutes=1)
    assert (trend["device_id"], trend["min_memory"], trend["max_memory"]) == (0, 40 * GIB, 40 * GIB)
    assert detector.get_memory_trends(3) == {}


def test_thresholds_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="critical_threshold"):
        vramscope.OOMDetector(warning_threshold=0.9, critical_threshold=0.8)
    with pytest.raises(UsageError, match="shares from 0 to 1"):
        vramscope.OOMDetector(warning_threshold=85, critical_threshold=95)
    with pytest.raises(UsageError, match="shares from 0 to 1"):
        vramscope.OOMDetector(warning_threshold=85)
    with pytest.raises(UsageError, match="prediction_window"):
        vramscope.OOMDetector(prediction_window=1)
