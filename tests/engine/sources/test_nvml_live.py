"""NVML through the live producer: what a viewer is shown of a device in trouble."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.sources.test_nvml_discovery import write_gpu_folders
from tests.pretend_nvml.driver import GIB, PretendDevice, PretendDriver
from tests.pretend_nvml.layout import FunctionClass
from tests.waiting import wait_until
from vramscope.engine.model import DeviceSample, Sample
from vramscope.engine.sampling import sampler
from vramscope.engine.sampling.live import LiveProducer
from vramscope.engine.sources.nvml import NvmlSource
from vramscope.exporters.status.document import describe_sample
from vramscope.exporters.status.table import render_table
from vramscope.exporters.text import TableStyle


@pytest.fixture
def producer(nvml_source: NvmlSource) -> Iterator[LiveProducer]:
    producer = LiveProducer([nvml_source], None, node="n", interval_s=0.1, memory_interval_s=0.05)
    yield producer
    producer.stop()


def await_devices(
    producer: LiveProducer, condition: Callable[[tuple[DeviceSample, ...]], object]
) -> tuple[DeviceSample, ...]:
    found: list[Sample] = []

    def has_sample() -> bool:
        found.extend(sample for sample in producer.take() if sample.devices and condition(sample.devices))
        return bool(found)

    wait_until(has_sample, what="a sample")
    return found[0].devices


def await_calls(device: PretendDevice, count: int) -> None:
    enough = device.calls(FunctionClass.MEMORY) + count
    wait_until(lambda: device.calls(FunctionClass.MEMORY) >= enough, what="readings")


def test_a_device_that_tells_nothing_but_its_uuid_has_a_row(
    producer: LiveProducer, pretend_nvml: PretendDriver
) -> None:
    device = pretend_nvml.add_device()
    for function_class in FunctionClass:
        if function_class != FunctionClass.UUID:
            device.fail(function_class, 3)
    producer.start()
    [shown] = await_devices(producer, lambda _: True)
    assert (shown.uuid, shown.name, shown.state) == (device.uuid, None, "unsupported")
    assert "NVML error 3" in str(shown.reason)
    assert (shown.memory.total_bytes, shown.memory.used_bytes, shown.memory.free_bytes) == (None, None, None)
    assert (shown.utilization_percent, shown.temperature_c, shown.power_w) == (None, None, None)
    assert shown.processes is None


def test_a_lost_device_keeps_its_row_and_its_capacity_and_comes_back(
    producer: LiveProducer, pretend_nvml: PretendDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "RETRY_S", 0.1)
    devices = [pretend_nvml.add_device(used_bytes=(n + 1) * GIB) for n in range(2)]
    producer.start()
    await_devices(producer, lambda shown: all(d.state == "ok" for d in shown))
    devices[0].lose()
    lost, other = await_devices(producer, lambda shown: shown[0].state == "lost")
    assert "fell off the bus" in str(lost.reason)
    assert (lost.memory.total_bytes, lost.memory.used_bytes, lost.power_w) == (80 * GIB, None, None)
    assert (other.state, other.memory.used_bytes) == ("ok", 2 * GIB)
    devices[0].recover()
    back, _ = await_devices(producer, lambda shown: shown[0].state == "ok")
    assert (back.uuid, back.memory.used_bytes) == (devices[0].uuid, 1 * GIB)


def test_a_device_that_was_lost_before_has_a_row_and_comes_back_as_itself(
    producer: LiveProducer, pretend_nvml: PretendDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "RETRY_S", 0.1)
    devices = [pretend_nvml.add_device(used_bytes=(n + 1) * GIB) for n in range(3)]
    devices[1].lose()
    producer.start()
    first = await_devices(producer, lambda shown: [it.state for it in shown] == ["ok", "lost", "ok"])
    assert [it.index for it in first] == [0, 1, 2]
    assert "fell off the bus" in str(first[1].reason)
    assert not producer.has_held_calls
    devices[1].recover()
    back = await_devices(producer, lambda shown: all(it.state == "ok" for it in shown))
    assert [it.uuid for it in back] == [device.uuid for device in devices]
    assert back[1].memory.used_bytes == 2 * GIB


def test_a_gpu_that_nvml_does_not_count_is_in_samples_and_on_screens(
    producer: LiveProducer, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    devices = [pretend_nvml.add_device(name=f"Card {number}") for number in range(8)]
    write_gpu_folders(fake_root, pretend_nvml, has_device_files=True)
    devices[3].detach()
    producer.start()
    shown = await_devices(producer, lambda _: True)
    [lost] = [device for device in shown if device.state == "lost"]
    assert ([it.index for it in shown], lost.uuid, lost.name) == ([*range(8)], devices[3].uuid, "Card 3")
    assert lost.index == 7, "NVML numbers the others from 0 to 6"
    assert lost.pci_address == "0000:04:00.0"
    status = describe_sample(Sample("n", 1, 0.0, 1.0, shown))
    table = render_table(status, TableStyle(width=120))
    assert "8 GPUs, 1 lost" in table
    assert "0000:04:00.0 (/dev/nvidia3)" in table


@pytest.mark.parametrize("has_memory_v2", [1, 0])
def test_a_tick_spans_all_readings_within_it_in_either_version_of_the_call(
    producer: LiveProducer, pretend_nvml: PretendDriver, has_memory_v2: int
) -> None:
    pretend_nvml.raw.has_memory_v2 = has_memory_v2
    device = pretend_nvml.add_device(used_bytes=5 * GIB)
    producer.start()
    await_devices(producer, lambda shown: shown[0].memory.used_bytes == 5 * GIB)
    for used_bytes in (9 * GIB, 2 * GIB, 3 * GIB):
        device.set_memory(used_bytes)
        await_calls(device, 3)
    [first] = await_devices(producer, lambda _: True)
    assert (first.memory.used_min_bytes, first.memory.used_max_bytes) == (2 * GIB, 9 * GIB)
    assert (first.memory.used_bytes, first.memory.free_bytes) == (3 * GIB, 77 * GIB)


def test_a_capacity_of_zero_is_no_figure_of_a_device_that_had_one(
    producer: LiveProducer, pretend_nvml: PretendDriver
) -> None:
    device = pretend_nvml.add_device(used_bytes=GIB)
    producer.start()
    await_devices(producer, lambda shown: shown[0].memory.used_bytes == GIB)
    await_calls(device, 2)
    device.set_memory(0, total_bytes=0)
    [shown] = await_devices(producer, lambda shown: shown[0].memory.used_bytes != GIB)
    assert (shown.memory.total_bytes, shown.memory.used_bytes, shown.memory.free_bytes) == (None, None, None)


def test_a_device_that_shares_the_hosts_memory_is_labelled(
    producer: LiveProducer, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    (fake_root / "proc/meminfo").write_text("MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n")
    pretend_nvml.add_device(name="NVIDIA GB10").fail(FunctionClass.MEMORY, 3)
    producer.start()
    [shown] = await_devices(producer, lambda _: True)
    assert (shown.kind, shown.memory.source, shown.memory.total_bytes) == ("unified", "host", 1 * GIB)


def test_instances_are_rows_below_their_gpu(producer: LiveProducer, pretend_nvml: PretendDriver) -> None:
    parent = pretend_nvml.add_device(used_bytes=3 * GIB)
    for _ in range(2):
        parent.add_instance(used_bytes=1 * GIB)
    other = pretend_nvml.add_device()
    producer.start()
    shown = await_devices(producer, lambda _: True)
    assert [(d.index, d.mig_index, d.parent_uuid) for d in shown] == [
        (0, None, None),
        (0, 0, parent.uuid),
        (0, 1, parent.uuid),
        (1, None, None),
    ]
    assert shown[3].uuid == other.uuid
