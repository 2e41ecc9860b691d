"""The memory of a device: what is shown, what is refused, what happens when it is lost or hangs."""

import threading
import time
from pathlib import Path

import pytest

from tests.pretend_nvml.driver import GIB, PretendDriver
from tests.pretend_nvml.layout import FunctionClass
from tests.waiting import wait_until
from vramscope.engine.errors import DeviceDeniedError, DeviceError, DeviceLostError, NotSupportedError
from vramscope.engine.model import MemoryReading
from vramscope.engine.sources.nvml import NvmlSource

MEMINFO = "MemTotal: 125829120 kB\nMemFree: 1000 kB\nMemAvailable: 83886080 kB\n"


@pytest.fixture
def fake_meminfo(fake_root: Path) -> Path:
    path = fake_root / "proc/meminfo"
    path.write_text(MEMINFO)
    return path


def test_used_leaves_out_what_the_driver_reserved(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    pretend_nvml.add_device(used_bytes=10 * GIB, reserved_bytes=1 * GIB)
    [reader] = nvml_source.discover()
    assert reader.read_memory() == MemoryReading(
        total_bytes=80 * GIB, used_bytes=10 * GIB, free_bytes=69 * GIB
    )


def test_an_old_driver_counts_its_reserve_as_used(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    pretend_nvml.raw.has_memory_v2 = 0
    pretend_nvml.add_device(used_bytes=10 * GIB, reserved_bytes=1 * GIB)
    [reader] = nvml_source.discover()
    assert reader.read_memory() == MemoryReading(
        total_bytes=80 * GIB, used_bytes=11 * GIB, free_bytes=69 * GIB
    )


def test_the_next_call_sees_a_change(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    device = pretend_nvml.add_device(used_bytes=10 * GIB)
    [reader] = nvml_source.discover()
    device.set_memory(30 * GIB)
    assert reader.read_memory().used_bytes == 30 * GIB


def test_figures_that_contradict_each_other_are_not_shown(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    device = pretend_nvml.add_device(used_bytes=10 * GIB)
    [reader] = nvml_source.discover()
    device.raw.memory.reserved = 100 * GIB  # more than the device has
    assert reader.read_memory() == MemoryReading(total_bytes=80 * GIB)


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (3, NotSupportedError, "NVML error 3"),
        (4, DeviceDeniedError, "NVML error 4"),
        (15, DeviceLostError, "fell off the bus"),
        (16, DeviceLostError, "nvidia-smi --gpu-reset"),
        (10, DeviceError, "NVML error 10"),
        (999, DeviceError, "NVML error 999"),
    ],
)
def test_a_failed_memory_call_says_why(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, code: int, error: type[DeviceError], words: str
) -> None:
    pretend_nvml.add_device().fail(FunctionClass.MEMORY, code)
    [reader] = nvml_source.discover()
    with pytest.raises(DeviceError, match=words) as caught:
        reader.read_memory()
    assert type(caught.value) is error


@pytest.mark.parametrize("code", [2, 6, 999])
def test_a_handle_that_answered_before_is_lost_on_an_unknown_error(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, code: int
) -> None:
    device = pretend_nvml.add_device()
    [reader] = nvml_source.discover()
    reader.read_memory()
    device.fail(FunctionClass.MEMORY, code)
    with pytest.raises(DeviceLostError, match=f"NVML error {code}"):
        reader.read_memory()


def test_a_passing_failure_does_not_lose_the_device(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    device = pretend_nvml.add_device(used_bytes=5 * GIB)
    [reader] = nvml_source.discover()
    device.fail(FunctionClass.MEMORY, 10)
    with pytest.raises(DeviceError):
        reader.read_memory()
    device.fail(FunctionClass.MEMORY, 0)
    assert reader.read_memory().used_bytes == 5 * GIB


def test_a_dead_handle_is_never_touched_again(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    device = pretend_nvml.add_device()
    [reader] = nvml_source.discover()
    device.lose()
    with pytest.raises(DeviceLostError):
        reader.read_memory()
    calls = device.calls()
    for _ in range(3):
        with pytest.raises(DeviceLostError, match="fell off the bus"):
            reader.read_memory()
        with pytest.raises(DeviceLostError, match="fell off the bus"):
            reader.read_details()
    assert device.calls() == calls


def test_a_closed_source_makes_no_more_calls(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    device = pretend_nvml.add_device()
    [reader] = nvml_source.discover()
    nvml_source.close()
    calls = device.calls()
    with pytest.raises(DeviceLostError, match="shut down"):
        reader.read_memory()
    assert device.calls() == calls


@pytest.mark.parametrize("name", ["NVIDIA GB10", "Orin (nvgpu)", "NVIDIA Thor", "Jetson AGX Xavier"])
def test_a_device_that_shares_the_hosts_memory_shows_that(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_meminfo: Path, name: str
) -> None:
    pretend_nvml.add_device(name=name).fail(FunctionClass.MEMORY, 3)
    [reader] = nvml_source.discover()
    assert reader.read_memory() == MemoryReading(
        total_bytes=120 * GIB, used_bytes=40 * GIB, free_bytes=80 * GIB, source="host"
    )
    assert reader.identity.kind == "unified"


def test_the_addressing_mode_says_unified_where_the_name_does_not(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_meminfo: Path
) -> None:
    device = pretend_nvml.add_device(name="NVIDIA Something New")
    device.fail(FunctionClass.MEMORY, 3)
    device.raw.addressing_mode = 2
    [reader] = nvml_source.discover()
    assert reader.read_memory().source == "host"


def test_a_coherent_card_with_memory_of_its_own_shows_its_own(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_meminfo: Path
) -> None:
    device = pretend_nvml.add_device(name="NVIDIA GH200 480GB", used_bytes=7 * GIB)
    device.raw.addressing_mode = 2
    [reader] = nvml_source.discover()
    assert reader.read_memory().used_bytes == 7 * GIB
    assert reader.identity.kind == "gpu"


@pytest.mark.parametrize("mode", [0, 1])
def test_an_ordinary_card_that_refuses_never_shows_the_hosts_memory(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_meminfo: Path, mode: int
) -> None:
    device = pretend_nvml.add_device(name="NVIDIA GeForce GTX 1080")
    device.fail(FunctionClass.MEMORY, 3)
    device.raw.addressing_mode = mode
    [reader] = nvml_source.discover()
    with pytest.raises(NotSupportedError):
        reader.read_memory()
    assert reader.identity.kind == "gpu"


def test_a_capacity_of_zero_is_not_a_figure(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    pretend_nvml.add_device(used_bytes=0, total_bytes=0)
    [reader] = nvml_source.discover()
    with pytest.raises(NotSupportedError):
        reader.read_memory()


def test_a_call_that_hangs_returns_when_the_driver_does_and_holds_no_other(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    hung = pretend_nvml.add_device(used_bytes=1 * GIB)
    pretend_nvml.add_device(used_bytes=2 * GIB)
    first, second = nvml_source.discover()
    hung.hang()
    readings: list[MemoryReading] = []
    thread = threading.Thread(target=lambda: readings.append(first.read_memory()), daemon=True)
    thread.start()
    wait_until(lambda: hung.waiting == 1, what="the call to hang")
    assert second.read_memory().used_bytes == 2 * GIB
    assert readings == []
    hung.release()
    thread.join(timeout=60)
    assert [reading.used_bytes for reading in readings] == [1 * GIB]


def test_a_slow_driver_is_waited_for(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    device = pretend_nvml.add_device(used_bytes=1 * GIB)
    [reader] = nvml_source.discover()
    device.raw.delay_us = 20_000
    begin_s = time.monotonic()
    assert reader.read_memory().used_bytes == 1 * GIB
    assert time.monotonic() - begin_s >= 0.02
