"""`MemoryProfiler` in a program: begun and ended at will, asked meanwhile, with reports like the verb's."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import vramscope
from vramscope.engine.errors import UsageError

from ...exporters.reports.shapes import check_shape
from ...pretend_nvml.driver import PretendDriver
from ...waiting import wait_until

GIB = 1 << 30


def wait_for_snapshots(profiler: vramscope.MemoryProfiler, count: int) -> None:
    """Return once so many snapshots of the first device were taken."""

    def taken() -> bool:
        report: Any = profiler.generate_report()
        return "0" in report["devices"] and report["devices"]["0"]["statistics"]["num_snapshots"] >= count

    wait_until(taken, 60.0, f"{count} snapshots")


def test_a_program_reports_what_it_used(pretend_nvml: PretendDriver, tmp_path: Path) -> None:
    device = pretend_nvml.add_device(used_bytes=10 * GIB)
    pretend_nvml.add_device(used_bytes=3 * GIB)
    with vramscope.MemoryProfiler(sampling_interval=0.05) as profiler:
        assert profiler.is_monitoring
        wait_for_snapshots(profiler, 3)
        device.set_memory(70 * GIB)
        wait_until(lambda: profiler.get_current_status()[0]["current_used"] == 70 * GIB, 60.0, "the rise")
        device.set_memory(10 * GIB)
        wait_until(lambda: profiler.get_current_status()[0]["current_used"] == 10 * GIB, 60.0, "the fall")
    assert not profiler.is_monitoring
    status = profiler.get_current_status()
    assert status[0] == {
        "memory_measure": "used",
        "current_used": 10 * GIB,
        "current_free": 70 * GIB,
        "total": 80 * GIB,
        "utilization": 12.5,
        "fragmentation": None,
        "peak_memory": 70 * GIB,
        "current_allocated": None,
        "peak_allocated": None,
    }
    assert profiler.devices == [0, 1]
    report = profiler.generate_report(tmp_path / "report.json")
    check_shape("profile", report)
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["devices"] == report["devices"]
    html: str = report._repr_html_()  # what a notebook asks for
    assert html.startswith("<pre")
    assert "70.0 GiB" in html


def test_beginning_and_ending_twice_is_the_same_as_once(pretend_nvml: PretendDriver) -> None:
    pretend_nvml.add_device(used_bytes=GIB)
    others = _watching()
    profiler = vramscope.MemoryProfiler(sampling_interval=0.05)
    profiler.stop_monitoring()
    assert not profiler.is_monitoring
    profiler.start_monitoring()
    profiler.start_monitoring()
    assert len(_watching() - others) == 1, "one watch, not two"
    wait_for_snapshots(profiler, 2)
    profiler.stop_monitoring()
    profiler.stop_monitoring()
    assert not profiler.is_monitoring
    assert _watching() <= others
    count = _count(profiler)
    profiler.start_monitoring()
    wait_for_snapshots(profiler, count + 2)
    profiler.stop_monitoring()
    assert _count(profiler) >= count + 2, "what was seen before stays"


def _watching() -> set[threading.Thread]:
    return {it for it in threading.enumerate() if it.name == "vramscope-monitor"}


def _count(profiler: vramscope.MemoryProfiler) -> int:
    report: Any = profiler.generate_report()
    count: int = report["devices"]["0"]["statistics"]["num_snapshots"]
    return count


def test_only_the_devices_asked_for_are_watched(pretend_nvml: PretendDriver) -> None:
    for _ in range(3):
        pretend_nvml.add_device(used_bytes=GIB)
    with vramscope.MemoryProfiler(devices=[1], sampling_interval=0.05) as profiler:
        wait_until(lambda: profiler.devices, 60.0, "a device")
    assert profiler.devices == [1]


def test_exported_snapshots_are_read_back_by_the_verbs(pretend_nvml: PretendDriver, tmp_path: Path) -> None:
    from vramscope.engine.sampling.series_source import open_series

    pretend_nvml.add_device(used_bytes=10 * GIB)
    with vramscope.MemoryProfiler(sampling_interval=0.05, max_snapshots=4) as profiler:
        wait_for_snapshots(profiler, 6)
    path = tmp_path / "snapshots.json"
    profiler.export_snapshots(path)
    exported = json.loads(path.read_text())
    assert exported["metadata"]["devices"] == [0]
    assert [it["allocated"] for it in exported["snapshots"]["0"]] == [10 * GIB] * 4
    assert exported["snapshots"]["0"][0]["process_info"]["num_threads"] >= 1
    samples = list(open_series(path).samples())
    assert [it.devices[0].memory.used_bytes for it in samples] == [10 * GIB] * 4


@pytest.mark.parametrize("name", ["memory.png", "memory.pdf"])
def test_a_plot_is_written_where_it_was_asked_for(
    name: str, pretend_nvml: PretendDriver, tmp_path: Path
) -> None:
    pretend_nvml.add_device(used_bytes=10 * GIB)
    with vramscope.MemoryProfiler(sampling_interval=0.05) as profiler:
        wait_for_snapshots(profiler, 2)
    assert profiler.plot_memory_usage(0, tmp_path / name) == [tmp_path / name]
    assert (tmp_path / name).read_bytes()[:4] in (b"\x89PNG", b"%PDF")
    with pytest.raises(UsageError, match="device 7 was not seen"):
        profiler.plot_memory_usage(7, tmp_path / name)
    with pytest.raises(UsageError, match="expected a name that ends in"):
        profiler.plot_memory_usage(0, tmp_path / "memory.xyz")


def test_without_a_device_the_report_is_empty_and_says_why(pretend_nvml: PretendDriver) -> None:
    pretend_nvml.raw.init_error = 9
    with vramscope.MemoryProfiler(sampling_interval=0.05) as profiler:
        wait_until(lambda: _notes(profiler), 60.0, "the reason")
    report: Any = profiler.generate_report()
    assert report["devices"] == {}
    assert "NVIDIA driver not loaded" in _notes(profiler)[0]


def _notes(profiler: vramscope.MemoryProfiler) -> list[str]:
    report: Any = profiler.generate_report()
    return list(report["evidence"]["notes"])


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UsageError, match="sampling_interval"):
        vramscope.MemoryProfiler(sampling_interval=0)
    with pytest.raises(UsageError, match="max_snapshots"):
        vramscope.MemoryProfiler(max_snapshots=0)
