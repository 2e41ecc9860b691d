"""The slower fields of a device: each may be missing on its own, and absurd figures are not shown."""

import subprocess

import pytest

from tests.engine.sources.conftest import SteppedClock
from tests.pretend_nvml.driver import GIB, PretendDevice, PretendDriver
from tests.pretend_nvml.layout import FunctionClass
from vramscope.engine.errors import DeviceLostError
from vramscope.engine.model import MpsRole, ProcessReading
from vramscope.engine.sources.nvml import NvmlSource
from vramscope.engine.sources.source import DeviceDetails

PID = 4_000_000


@pytest.fixture
def device(pretend_nvml: PretendDriver) -> PretendDevice:
    device = pretend_nvml.add_device(used_bytes=10 * GIB)
    device.raw.gpu_percent, device.raw.temperature_c, device.raw.power_mw = 87, 64, 612_500
    return device


def read(source: NvmlSource) -> DeviceDetails:
    [reader] = source.discover()
    return reader.read_details()


def test_every_field_in_its_unit(nvml_source: NvmlSource, device: PretendDevice) -> None:
    assert read(nvml_source) == DeviceDetails(
        utilization_percent=87.0, temperature_c=64.0, power_w=612.5, processes=()
    )


@pytest.mark.parametrize("code", [3, 4, 13, 999])
@pytest.mark.parametrize(
    ("function_class", "field"),
    [
        (FunctionClass.UTILIZATION, "utilization_percent"),
        (FunctionClass.TEMPERATURE, "temperature_c"),
        (FunctionClass.POWER, "power_w"),
    ],
)
def test_a_field_that_is_not_told_is_missing_alone(
    nvml_source: NvmlSource, device: PretendDevice, function_class: FunctionClass, field: str, code: int
) -> None:
    device.fail(function_class, code)
    details = read(nvml_source)
    fields = ("utilization_percent", "temperature_c", "power_w")
    assert [name for name in fields if getattr(details, name) is None] == [field]


@pytest.mark.parametrize(
    ("raw_field", "value", "field"),
    [
        ("gpu_percent", 37100, "utilization_percent"),
        ("temperature_c", 4_000_000, "temperature_c"),
        ("power_mw", 0xFFFFFFFF, "power_w"),
    ],
)
def test_an_absurd_figure_is_not_shown(
    nvml_source: NvmlSource, device: PretendDevice, raw_field: str, value: int, field: str
) -> None:
    setattr(device.raw, raw_field, value)
    assert getattr(read(nvml_source), field) is None


def test_more_than_a_kilowatt_is_not_absurd(nvml_source: NvmlSource, device: PretendDevice) -> None:
    device.raw.power_mw = 1_400_000
    assert read(nvml_source).power_w == 1400.0


@pytest.mark.parametrize("function_class", [FunctionClass.TEMPERATURE, FunctionClass.COMPUTE_PROCESSES])
def test_a_device_lost_between_two_fields_is_lost(
    nvml_source: NvmlSource, device: PretendDevice, function_class: FunctionClass
) -> None:
    [reader] = nvml_source.discover()
    device.fail(function_class, 15)
    with pytest.raises(DeviceLostError, match="fell off the bus"):
        reader.read_details()
    with pytest.raises(DeviceLostError):
        reader.read_memory()


def used_by_pid(source: NvmlSource) -> dict[int, int | None]:
    return {process.pid: process.used_bytes for process in processes_of(read(source))}


def processes_of(details: DeviceDetails) -> tuple[ProcessReading, ...]:
    assert details.processes is not None
    return details.processes


def test_lists_are_read_every_other_second_and_the_other_fields_each_time(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock
) -> None:
    [reader] = nvml_source.discover()
    seen = []
    for second in range(5):
        device.set_processes([(PID + second, 1 * GIB, "compute")])
        device.raw.temperature_c = 50 + second
        details = reader.read_details()
        seen.append((details.temperature_c, processes_of(details)[0].pid - PID))
        stepped_clock.now_s += 1.02
    assert seen == [(50.0, 0), (51.0, 0), (52.0, 2), (53.0, 2), (54.0, 4)]


def test_a_list_that_stays_the_same_is_described_again_when_a_process_ends(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock
) -> None:
    job = subprocess.Popen(["sleep", "60"])
    device.set_processes([(job.pid, 1 * GIB, "compute")])
    [reader] = nvml_source.discover()
    first = processes_of(reader.read_details())
    stepped_clock.now_s += 2.02
    second = processes_of(reader.read_details())
    assert second is first
    job.kill()
    job.wait()
    stepped_clock.now_s += 2.02
    [ended] = processes_of(reader.read_details())
    assert (ended.location, ended.used_bytes) == ("gone", 1 * GIB)


def test_a_process_in_several_lists_is_one_row(nvml_source: NvmlSource, device: PretendDevice) -> None:
    device.set_processes(
        [
            (PID, 4 * GIB, "compute"),
            (PID, 4 * GIB, "graphics"),
            (PID + 1, 1 * GIB, "graphics"),
            (PID + 2, 2 * GIB, "mps"),
        ]
    )
    assert used_by_pid(nvml_source) == {PID: 4 * GIB, PID + 1: 1 * GIB, PID + 2: 2 * GIB}


def test_clients_of_mps_are_marked_as_the_driver_lists_them(
    nvml_source: NvmlSource, device: PretendDevice
) -> None:
    device.set_processes([(PID, GIB, "compute"), (PID + 1, GIB, "compute"), (PID + 1, GIB, "mps")])
    found = {process.pid: process.mps for process in processes_of(read(nvml_source))}
    assert found == {PID: None, PID + 1: MpsRole("client")}


def test_memory_that_the_driver_does_not_tell_is_unknown(
    nvml_source: NvmlSource, device: PretendDevice
) -> None:
    device.set_processes([(PID, None, "compute"), (PID + 1, 1 * GIB, "compute")])
    assert used_by_pid(nvml_source) == {PID: None, PID + 1: 1 * GIB}


@pytest.mark.parametrize("newest", [3, 2, 1])
def test_older_drivers_list_processes_too(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, device: PretendDevice, newest: int
) -> None:
    pretend_nvml.raw.newest_process_version = newest
    expected = {PID + number: (number + 1) * GIB for number in range(3)}
    device.set_processes([(pid, used, "compute") for pid, used in expected.items()])
    assert used_by_pid(nvml_source) == expected


@pytest.mark.parametrize(("newest", "churned"), [(3, 0b1000), (3, 0b1100), (2, 0b100)])
@pytest.mark.parametrize("count", [1, 2, 9, 32])
def test_entries_that_a_driver_made_longer_are_read_right(
    nvml_source: NvmlSource,
    pretend_nvml: PretendDriver,
    device: PretendDevice,
    newest: int,
    churned: int,
    count: int,
) -> None:
    pretend_nvml.raw.newest_process_version = newest
    pretend_nvml.raw.churned_process_versions = churned
    expected: dict[int, int | None] = {PID + number: number << 20 for number in range(count)}
    device.set_processes([(pid, used, "compute") for pid, used in expected.items()])
    assert used_by_pid(nvml_source) == expected


def test_impossible_entries_are_dropped_and_the_others_kept(
    nvml_source: NvmlSource, device: PretendDevice
) -> None:
    device.set_processes(
        [
            (PID, 1 * GIB, "compute"),
            (0, 1 * GIB, "compute"),
            (0xFFFFFFFF, 1 * GIB, "compute"),
            (PID + 1, 500 * GIB, "compute"),
        ]
    )
    [reader] = nvml_source.discover()
    reader.read_memory()
    assert [(p.pid, p.used_bytes) for p in processes_of(reader.read_details())] == [(PID, 1 * GIB)]


@pytest.mark.parametrize("code", [3, 4, 999])
def test_a_list_that_is_refused_leaves_the_others(
    nvml_source: NvmlSource, device: PretendDevice, code: int
) -> None:
    device.set_processes([(PID, 1 * GIB, "compute"), (PID + 1, 2 * GIB, "graphics")])
    device.fail(FunctionClass.COMPUTE_PROCESSES, code)
    assert used_by_pid(nvml_source) == {PID + 1: 2 * GIB}


def test_lists_that_are_all_refused_are_unknown_and_not_empty(
    nvml_source: NvmlSource, device: PretendDevice
) -> None:
    for kind in (
        FunctionClass.COMPUTE_PROCESSES,
        FunctionClass.GRAPHICS_PROCESSES,
        FunctionClass.MPS_PROCESSES,
    ):
        device.fail(kind, 3)
    assert read(nvml_source).processes is None


def test_a_long_list_is_read_whole(nvml_source: NvmlSource, device: PretendDevice) -> None:
    for number in range(2):
        instance = device.add_instance(used_bytes=1 * GIB)
        first = PID + 100 * (number + 1)
        for slot in range(32):
            instance.processes.entries[slot].pid = first + slot
            instance.processes.entries[slot].used = 1 << 20
        instance.processes.count = 32
    gpu = nvml_source.discover()[0]
    assert len(processes_of(gpu.read_details())) == 64


def test_a_process_in_two_instances_holds_the_sum_on_their_gpu(
    nvml_source: NvmlSource, device: PretendDevice
) -> None:
    for used_bytes in (1 * GIB, 2 * GIB):
        instance = device.add_instance(used_bytes=3 * GIB)
        instance.processes.entries[0].pid, instance.processes.entries[0].used = PID, used_bytes
        instance.processes.count = 1
    readings = [processes_of(reader.read_details())[0].used_bytes for reader in nvml_source.discover()]
    assert readings == [3 * GIB, 1 * GIB, 2 * GIB]
