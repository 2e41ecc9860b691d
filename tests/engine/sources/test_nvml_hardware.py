"""Clocks, throughput, limits, errors and loads: each in its unit, at its own pace, missing on its own."""

import ctypes
import itertools
import struct
from pathlib import Path

import pytest

from tests.engine.sources.conftest import SteppedClock
from tests.pretend_nvml.driver import GIB, PretendDevice, PretendDriver
from tests.pretend_nvml.layout import FunctionClass
from vramscope.engine.errors import DeviceLostError
from vramscope.engine.model import DeviceActivity, DeviceHardware
from vramscope.engine.sources.nvml import NvmlSource
from vramscope.engine.sources.nvml.driver import NvmlLibrary
from vramscope.engine.sources.nvml.hardware import (
    COST_SHARE,
    HEALTH_S,
    LIMITS_S,
    REFUSED_AGAIN_S,
    HardwareQuestions,
)
from vramscope.engine.sources.nvml.reader import NvmlReader
from vramscope.engine.sources.source import HardwareReading

PID = 4_000_000


@pytest.fixture
def device(pretend_nvml: PretendDriver) -> PretendDevice:
    return pretend_nvml.add_device(used_bytes=10 * GIB)


def open_reader(source: NvmlSource) -> NvmlReader:
    [reader] = source.discover()
    assert isinstance(reader, NvmlReader)
    return reader


def activity_of(reading: HardwareReading) -> DeviceActivity:
    assert reading.activity is not None
    return reading.activity


def hardware_of(reading: HardwareReading) -> DeviceHardware:
    assert reading.hardware is not None
    return reading.hardware


def test_limits_errors_and_versions(nvml_source: NvmlSource, device: PretendDevice) -> None:
    device.raw.power_limit_mw, device.raw.fan_percent, device.raw.compute_mode = 650_500, 40, 3
    device.raw.ecc_corrected, device.raw.ecc_uncorrected = 12, 1
    device.raw.remapped_rows, device.raw.is_repair_pending = 2, 1
    assert open_reader(nvml_source).read_hardware().hardware == DeviceHardware(
        driver_version="580.95.05",
        cuda_version="13.0",
        power_limit_w=650.5,
        sm_clock_max_mhz=1980,
        memory_clock_max_mhz=2619,
        fan_percent=40.0,
        compute_mode="exclusive process",
        pcie_generation=5,
        pcie_lanes=16,
        is_ecc_on=True,
        ecc_corrected=12,
        ecc_uncorrected=1,
        remapped_rows=2,
        is_repair_pending=True,
    )


def test_an_older_gpu_retires_pages(nvml_source: NvmlSource, device: PretendDevice) -> None:
    device.fail(FunctionClass.REMAPPED, 3)
    device.raw.has_retired_pages, device.raw.retired_pages = 1, 7
    hardware = hardware_of(open_reader(nvml_source).read_hardware())
    assert (hardware.retired_pages, hardware.remapped_rows, hardware.is_repair_pending) == (7, None, False)


def test_clocks_throttling_and_throughput(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock
) -> None:
    device.raw.memory_percent, device.raw.sm_clock_mhz, device.raw.memory_clock_mhz = 25, 1410, 2619
    device.raw.performance_state, device.raw.throttle_reasons = 2, 0x04 | 0x40
    reader = open_reader(nvml_source)
    reader.read_details()
    first = activity_of(reader.read_hardware())
    assert first == DeviceActivity(
        memory_bandwidth_percent=25.0,
        sm_clock_mhz=1410,
        memory_clock_mhz=2619,
        performance_state=2,
        throttle_reasons=("hardware thermal slowdown", "power cap"),
    )
    device.raw.throttle_reasons = 0
    stepped_clock.now_s += 4.0
    assert activity_of(reader.read_hardware()).throttle_reasons == ()


def test_throughput_is_the_rise_of_the_counters(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock
) -> None:
    device.link(6, [None, None])
    raw = device.raw
    reader = open_reader(nvml_source)
    raw.pcie_sent_bytes_per_s = raw.pcie_received_bytes_per_s = raw.nvlink_sent_bytes_per_s = 0.0
    reader.read_hardware()
    stepped_clock.now_s += 4.0
    idle = activity_of(reader.read_hardware())
    assert (idle.pcie_sent_bytes_per_s, idle.pcie_received_bytes_per_s) == (0.0, 0.0)
    assert (idle.nvlink_sent_bytes_per_s, idle.nvlink_received_bytes_per_s) == (0.0, 0.0)
    raw.pcie_received_bytes_per_s = raw.nvlink_received_bytes_per_s = 1e9
    stepped_clock.now_s += 4.0
    busy = activity_of(reader.read_hardware())
    assert busy.pcie_sent_bytes_per_s == 0.0
    assert busy.pcie_received_bytes_per_s is not None
    assert busy.pcie_received_bytes_per_s > 1e8
    assert busy.nvlink_received_bytes_per_s is not None
    assert busy.nvlink_received_bytes_per_s > 1e8
    raw.pcie_received_bytes_per_s = 0.0
    stepped_clock.now_s += 4.0
    begun_again = activity_of(reader.read_hardware())
    assert begun_again.pcie_received_bytes_per_s is None


@pytest.mark.parametrize("bits", [0, 32])
def test_without_counters_the_driver_measures_the_throughput(
    nvml_source: NvmlSource, device: PretendDevice, bits: int
) -> None:
    device.raw.has_pcie_counters = bits
    device.raw.pcie_sent_bytes_per_s, device.raw.pcie_received_bytes_per_s = 12e6, 34e6
    activity = activity_of(open_reader(nvml_source).read_hardware())
    assert (activity.pcie_sent_bytes_per_s, activity.pcie_received_bytes_per_s) == (12e6, 34e6)


def test_with_counters_the_driver_is_not_made_to_measure_for_20_ms(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock
) -> None:
    reader = open_reader(nvml_source)
    for _ in range(5):
        reader.read_hardware()
        stepped_clock.now_s += 5.0
    assert device.calls(FunctionClass.THROUGHPUT) == 0


@pytest.mark.parametrize("code", [3, 4, 999])
@pytest.mark.parametrize(
    ("function_class", "fields"),
    [
        (FunctionClass.CLOCK, {"sm_clock_mhz", "memory_clock_mhz"}),
        (FunctionClass.PERFORMANCE_STATE, {"performance_state"}),
        (FunctionClass.THROTTLING, {"throttle_reasons"}),
        (FunctionClass.UTILIZATION, {"memory_bandwidth_percent"}),
    ],
)
def test_what_is_not_told_is_missing_alone(
    nvml_source: NvmlSource,
    device: PretendDevice,
    stepped_clock: SteppedClock,
    function_class: FunctionClass,
    fields: set[str],
    code: int,
) -> None:
    device.fail(function_class, code)
    reader = open_reader(nvml_source)
    for _ in range(2):
        reader.read_details()
        activity = activity_of(reader.read_hardware())
        stepped_clock.now_s += 4.0
    missing = {name for name in DeviceActivity.__struct_fields__ if getattr(activity, name) is None}
    assert {name for name in missing if not name.startswith(("nvlink_", "xgmi_"))} == fields


@pytest.mark.parametrize("function_class", [FunctionClass.FAN, FunctionClass.CLOCK, FunctionClass.REMAPPED])
def test_what_is_not_supported_is_not_asked_again_for_ten_minutes(
    nvml_source: NvmlSource,
    device: PretendDevice,
    stepped_clock: SteppedClock,
    function_class: FunctionClass,
) -> None:
    device.fail(function_class, 3)
    reader = open_reader(nvml_source)
    reader.read_hardware()
    asked = device.calls(function_class)
    assert asked > 0
    for _ in range(int(REFUSED_AGAIN_S) - 1):
        stepped_clock.now_s += 1.0
        reader.read_hardware()
    assert device.calls(function_class) == asked
    device.fail(function_class, 0)
    stepped_clock.now_s += 1.0
    reader.read_hardware()
    assert device.calls(function_class) == 2 * asked


def test_a_field_that_is_not_supported_is_left_out_of_the_next_call(
    pretend_nvml: PretendDriver, device: PretendDevice
) -> None:
    device.raw.has_pcie_counters = 0
    library = NvmlLibrary()
    library.open()
    calls: list[list[int]] = []
    clock = SteppedClock()
    questions = make_questions(library, clock, calls)
    for _ in range(5):
        questions.read(None, frozenset())
        clock.now_s += 4.0
    library.close()
    with_links = [fields for fields in calls if 138 in fields or 197 in fields]
    assert with_links == [[197, 198, 138, 139]]


def make_questions(
    library: NvmlLibrary,
    clock: SteppedClock,
    calls: list[list[int]] | None = None,
    *,
    cost_s: float = 0.0,
    takes_s: float | None = None,
) -> HardwareQuestions:
    """Return the questions to the only device; each takes time and costs CPU time of clocks by hand."""
    handle = ctypes.c_void_p()
    library.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(0), ctypes.byref(handle))
    find = library.find

    class Noting(NvmlLibrary):
        def find(self, name: str):  # type: ignore[no-untyped-def] # noqa: ANN202
            found = find(name)
            if name != "nvmlDeviceGetFieldValues" or found is None or calls is None:
                return found

            def note(handle: object, count: ctypes.c_int, array: ctypes.Array[ctypes.c_char]) -> int:
                calls.append([field[0] for field in struct.iter_unpack("I36x", array)])
                return found(handle, count, array)

            return note

    noting = Noting()
    noting.is_open = True
    cpu = itertools.count(0.0, cost_s)
    elapsed = itertools.count(0.0, cost_s if takes_s is None else takes_s)
    return HardwareQuestions(
        noting,
        handle,
        is_usable=lambda: True,
        clock_s=clock,
        elapsed_s=lambda: next(elapsed),
        cpu_s=lambda: next(cpu),
        wall_s=lambda: 1e9,
    )


@pytest.mark.parametrize(("cost_s", "calls_a_minute"), [(0.00001, 15), (0.001, 13), (0.01, 3)])
def test_a_call_that_needs_much_cpu_time_is_made_less_often(
    pretend_nvml: PretendDriver, device: PretendDevice, cost_s: float, calls_a_minute: int
) -> None:
    library = NvmlLibrary()
    library.open()
    clock = SteppedClock()
    questions = make_questions(library, clock, cost_s=cost_s)
    for _ in range(60):
        questions.read(None, frozenset())
        clock.now_s += 1.0
    library.close()
    # One call more than its share allows: the first long one only makes us look at its CPU time.
    assert device.calls(FunctionClass.PERFORMANCE_STATE) == calls_a_minute
    assert (calls_a_minute - 2) * cost_s / 60 <= COST_SHARE


def test_a_call_that_takes_long_and_needs_no_cpu_time_is_made_as_often_as_others(
    pretend_nvml: PretendDriver, device: PretendDevice
) -> None:
    library = NvmlLibrary()
    library.open()
    clock = SteppedClock()
    questions = make_questions(library, clock, cost_s=0.0, takes_s=0.02)
    for _ in range(60):
        questions.read(None, frozenset())
        clock.now_s += 1.0
    library.close()
    assert device.calls(FunctionClass.PERFORMANCE_STATE) == 15


def test_what_seldom_changes_is_seldom_read(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock
) -> None:
    reader = open_reader(nvml_source)
    for _ in range(15):
        reader.read_hardware()
        stepped_clock.now_s += 4.0
    assert device.calls(FunctionClass.POWER_LIMIT) == 60 / (LIMITS_S + 2)
    assert device.calls(FunctionClass.REMAPPED) == 60 // HEALTH_S
    assert device.calls(FunctionClass.THROTTLING) == 15


def test_a_mig_instance_has_what_its_gpu_does_not_share(
    nvml_source: NvmlSource, device: PretendDevice
) -> None:
    device.add_instance(1 * GIB)
    whole, instance = nvml_source.discover()
    assert isinstance(whole, NvmlReader)
    assert isinstance(instance, NvmlReader)
    assert whole.read_hardware().activity is not None
    reading = instance.read_hardware()
    assert reading.activity == DeviceActivity()
    assert reading.hardware == DeviceHardware(driver_version="580.95.05", cuda_version="13.0")


def test_a_device_lost_in_between_is_not_called_again(nvml_source: NvmlSource, device: PretendDevice) -> None:
    reader = open_reader(nvml_source)
    reader.read_memory()
    device.lose()
    with pytest.raises(DeviceLostError):
        reader.read_memory()
    called = device.raw.dead_handle_calls
    with pytest.raises(DeviceLostError):
        reader.read_hardware()
    assert device.raw.dead_handle_calls == called


def loads_of(reader: NvmlReader, clock: SteppedClock) -> dict[int, tuple[float | None, float | None]]:
    """Let lists and loads be read, and return the loads that the next lists come with."""
    reader.read_details()
    reader.read_hardware()
    clock.now_s += 2.0
    processes = reader.read_details().processes or ()
    return {it.pid: (it.sm_percent, it.memory_bandwidth_percent) for it in processes}


def test_loads_of_processes_and_an_idle_one_has_none(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock
) -> None:
    device.set_processes([(PID, GIB, "compute"), (PID + 1, GIB, "compute")])
    device.set_load(PID, 83, 31)
    assert loads_of(open_reader(nvml_source), stepped_clock) == {PID: (83.0, 31.0), PID + 1: (0.0, 0.0)}


def test_when_all_are_idle_their_load_is_0(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock
) -> None:
    device.set_processes([(PID, GIB, "compute")])
    assert loads_of(open_reader(nvml_source), stepped_clock) == {PID: (0.0, 0.0)}


@pytest.mark.parametrize("code", [3, 4, 999])
def test_a_load_that_is_not_told_is_unknown(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock, code: int
) -> None:
    device.set_processes([(PID, GIB, "compute")])
    device.fail(FunctionClass.PROCESS_UTILIZATION, code)
    assert loads_of(open_reader(nvml_source), stepped_clock) == {PID: (None, None)}


def test_an_absurd_load_is_not_shown(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock
) -> None:
    device.set_processes([(PID, GIB, "compute")])
    device.set_load(PID, 4_000_000)
    assert loads_of(open_reader(nvml_source), stepped_clock) == {PID: (None, None)}


def test_without_processes_nobody_asks_for_loads(
    nvml_source: NvmlSource, device: PretendDevice, stepped_clock: SteppedClock
) -> None:
    assert loads_of(open_reader(nvml_source), stepped_clock) == {}
    assert device.calls(FunctionClass.PROCESS_UTILIZATION) == 0


def test_kinds_of_processes(nvml_source: NvmlSource, device: PretendDevice, fake_root: Path) -> None:
    lists = [(PID, "compute"), (PID, "graphics"), (PID + 1, "graphics"), (PID + 2, "mps")]
    device.set_processes([(pid, GIB, kind) for pid, kind in lists])
    processes = open_reader(nvml_source).read_details().processes or ()
    assert {it.pid: it.kind for it in processes} == {
        PID: "compute+graphics",
        PID + 1: "graphics",
        PID + 2: "compute",
    }
