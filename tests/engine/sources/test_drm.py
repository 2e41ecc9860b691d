"""GPUs of Intel and of any other kernel driver: memory, its labels, sensors, load, and what wakes nothing."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.sources.conftest import SteppedClock
from tests.engine.sources.drm_root import GIB, DrmMachine
from vramscope.engine.errors import DeviceLostError, NotSupportedError
from vramscope.engine.sources.drm.dmem import parse_dmem
from vramscope.engine.sources.drm.fdinfo import ClientScan, parse_fdinfo
from vramscope.engine.sources.drm.intel import ask_size, parse_regions
from vramscope.engine.sources.drm.reader import DrmReader
from vramscope.engine.sources.drm.source import DrmSource, find_pci_name

MIB = 1 << 20


@pytest.fixture
def machine(fake_root: Path) -> DrmMachine:
    machine = DrmMachine(fake_root)
    machine.add_pci_names()
    return machine


def find(machine: DrmMachine, clock: SteppedClock) -> DrmReader:
    [reader] = DrmSource(machine.root, clock).discover()
    return reader


def scan(reader: DrmReader) -> None:
    """Let processes be looked for, as the second lane does every few seconds."""
    reader.read_hardware()


def xe_client(number: int, *, vram: str, cycles: int = 0, total: int = 0) -> str:
    return (
        f"drm-driver:\txe\ndrm-client-id:\t{number}\ndrm-pdev:\t0000:03:00.0\n"
        f"drm-total-vram0:\t{vram}\ndrm-resident-vram0:\t{vram}\ndrm-resident-gtt:\t192 KiB\n"
        f"drm-cycles-ccs:\t{cycles}\ndrm-total-cycles-ccs:\t{total}\ndrm-engine-capacity-ccs:\t2\n"
        f"drm-cycles-bcs:\t{total}\ndrm-total-cycles-bcs:\t{total}\n"
    )


def i915_client(number: int, *, local: str, busy_ns: int = 0) -> str:
    return (
        f"drm-driver:\ti915\ndrm-client-id:\t{number}\ndrm-pdev:\t0000:03:00.0\n"
        f"drm-total-local0:\t{local}\ndrm-resident-local0:\t{local}\ndrm-resident-system0:\t8 MiB\n"
        f"drm-resident-stolen-local0:\t0\ndrm-engine-compute:\t{busy_ns} ns\n"
    )


def test_a_battlemage_by_control_groups(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    folder = machine.add_battlemage()
    reader = find(machine, stepped_clock)
    assert (reader.identity.name, reader.identity.uuid) == ("Intel Arc B580", "xe-0000:03:00.0")
    memory = reader.read_memory()
    assert (memory.total_bytes, memory.used_bytes, memory.free_bytes) == (12 * GIB, 3 * GIB, 9 * GIB)
    assert not memory.is_lower_bound
    machine.write("sys/fs/cgroup/dmem.current", f"drm/0000:03:00.0/vram0 {5 * GIB}")
    stepped_clock.now_s += 0.1
    assert reader.read_memory().used_bytes == 5 * GIB
    first = reader.read_details()
    assert (first.temperature_c, first.power_w) == (61.0, None), "power needs two readings of the energy"
    machine.write(f"{folder}/hwmon/hwmon2/energy1_input", 9_000_000 + 240_000_000)
    stepped_clock.now_s += 2.0
    assert reader.read_details().power_w == 120.0
    activity, hardware = reader.read_hardware()
    assert activity is not None
    assert hardware is not None
    assert (activity.sm_clock_mhz, activity.throttle_reasons) == (2400, ())
    assert (hardware.sm_clock_max_mhz, hardware.power_limit_w) == (2850, 190.0)
    assert hardware.fan_percent is None, "turns in a minute are no percent"


def test_an_arc_on_xe_without_control_groups_has_a_lower_bound(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    machine.add_arc_xe()
    machine.host.add_process(20)
    machine.add_drawing(20, 4, xe_client(3, vram="2 GiB"))
    machine.add_drawing(20, 5, xe_client(3, vram="2 GiB"))
    machine.add_drawing(20, 6, xe_client(4, vram="512 MiB"))
    reader = find(machine, stepped_clock)
    assert reader.identity.name == "Intel Arc A770"
    memory = reader.read_memory()
    assert (memory.total_bytes, memory.used_bytes, memory.free_bytes) == (16 * GIB, 2560 * MIB, None)
    assert memory.is_lower_bound
    processes = reader.read_details().processes
    assert processes is not None
    assert [(it.pid, it.used_bytes) for it in processes] == [(20, 2560 * MIB)]


def test_a_gpu_whose_processes_are_not_visible_has_a_size_alone(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    machine.add_arc_xe()
    memory = find(machine, stepped_clock).read_memory()
    assert (memory.total_bytes, memory.used_bytes, memory.is_lower_bound) == (16 * GIB, None, False)


def test_an_arc_on_i915_has_no_total_and_says_so(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    machine.add_arc_i915()
    reader = find(machine, stepped_clock)
    with pytest.raises(NotSupportedError, match="i915 says neither how much memory"):
        reader.read_memory()
    machine.host.add_process(20)
    machine.add_drawing(20, 4, i915_client(3, local="1536 MiB"))
    stepped_clock.now_s += 4.0
    scan(reader)
    memory = reader.read_memory()
    assert (memory.total_bytes, memory.used_bytes, memory.is_lower_bound) == (None, 1536 * MIB, True)
    activity, hardware = reader.read_hardware()
    assert activity is not None
    assert hardware is not None
    assert (activity.sm_clock_mhz, activity.throttle_reasons) == (2100, ("power cap",))
    assert (hardware.sm_clock_max_mhz, hardware.power_limit_w) == (2400, 190.0)
    reader.read_details()
    stepped_clock.now_s += 2.0
    machine.write("sys/class/drm/card0/device/hwmon/hwmon4/energy1_input", 105_000_000)
    assert reader.read_details().power_w == 50.0, "the whole card's energy, not that of a part of it"


def test_a_scan_that_the_other_lane_has_begun_is_not_taken_for_one_that_found_nothing(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    machine.add_arc_i915()
    machine.host.add_process(20)
    machine.add_drawing(20, 4, i915_client(3, local="1536 MiB"))
    seen: list[tuple[bool, int]] = []

    def look_meanwhile() -> float:
        seen.append((clients.has_scanned, len(clients.held)))
        return 0.0

    clients = ClientScan(machine.root, lambda: stepped_clock.now_s, look_meanwhile)
    clients.scan_if_due()
    assert seen[0] == (False, 0)
    assert (clients.has_scanned, len(clients.held)) == (True, 1)


@pytest.mark.parametrize("driver", ["i915", "xe"])
def test_load_is_the_share_of_busy_time_of_engines_that_run_kernels(
    machine: DrmMachine, stepped_clock: SteppedClock, driver: str
) -> None:
    second = 19_200_000  # cycles of the clock that xe counts by
    machine.add_arc_xe() if driver == "xe" else machine.add_arc_i915()

    def write(busy_s: float, passed_s: float) -> None:
        if driver == "xe":
            cycles, total = int(2 * busy_s * second), int(passed_s * second)
            machine.write("proc/20/fdinfo/4", xe_client(3, vram="1 GiB", cycles=cycles, total=total))
        else:
            machine.write("proc/20/fdinfo/4", i915_client(3, local="1 GiB", busy_ns=int(busy_s * 1e9)))

    machine.host.add_process(20)
    machine.add_drawing(20, 4, "")
    write(10.0, 100.0)
    reader = find(machine, stepped_clock)
    scan(reader)
    assert reader.read_details().utilization_percent is None, "one reading of a counter is no load"
    stepped_clock.now_s += 4.0
    write(13.0, 104.0)
    scan(reader)
    details = reader.read_details()
    assert details.utilization_percent == 75.0
    assert details.processes is not None
    assert details.processes[0].sm_percent == 75.0
    stepped_clock.now_s += 4.0
    write(12.0, 108.0)  # a counter may fall for a while
    scan(reader)
    assert reader.read_details().utilization_percent == 0.0


@pytest.mark.skipif(os.getuid() == 0, reason="root may list every process")
def test_load_of_the_device_is_unmeasured_while_other_users_processes_are_hidden(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    machine.add_arc_i915()
    machine.host.add_process(21)
    (machine.root / "proc/21/fd").chmod(0)
    reader = find(machine, stepped_clock)
    scan(reader)
    assert reader.read_details().utilization_percent is None


def test_a_gpu_that_sleeps_is_not_woken_by_the_search_for_its_processes(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    folder = machine.add_battlemage()
    machine.write(f"{folder}/power/runtime_status", "suspended")
    machine.host.add_process(20)
    machine.add_drawing(20, 4, "")
    # Whoever opens one of these hangs, as nobody writes into it.
    for path in (machine.root / "proc/20/fdinfo/4", machine.root / folder / "tile0/gt0/freq0/act_freq"):
        path.unlink()
        os.mkfifo(path)
    source = DrmSource(machine.root, stepped_clock)
    [reader] = source.discover()
    for read in (reader.read_memory, reader.read_details, reader.read_hardware):
        with pytest.raises(NotSupportedError, match="sleeps"):
            read()
    reader._shared.clients.scan_if_due()
    assert reader._shared.clients.held == {}


def test_the_gpu_of_a_processor_is_listed_only_where_there_is_no_other(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    machine.add_intel("0000:00:02.0", driver="i915", device="0x7d55", render_node="renderD129")
    machine.host.write(
        "proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 41943040 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    reader = find(machine, stepped_clock)
    assert (reader.identity.kind, reader.identity.name) == ("unified", "Intel Meteor Lake-P")
    memory = reader.read_memory()
    assert (memory.total_bytes, memory.used_bytes, memory.source) == (64 * GIB, 24 * GIB, "host")
    machine.add_arc_i915()
    assert find(machine, stepped_clock).identity.pci_address == "0000:03:00.0"


def test_a_gpu_off_the_pci_bus_by_any_driver(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    machine.add_card("fb000000.gpu", driver="panthor", render_node="renderD128", files={"vendor": ""})
    machine.host.write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n")
    machine.host.add_process(20)
    machine.add_drawing(
        20,
        4,
        "drm-driver:\tpanthor\ndrm-client-id:\t9\ndrm-resident-memory:\t96 MiB\ndrm-engine-panthor:\t0 ns\n",
    )
    reader = find(machine, stepped_clock)
    assert (reader.identity.kind, reader.identity.pci_address) == ("unified", None)
    assert reader.identity.name == "GPU of the driver panthor"
    assert reader.read_memory().total_bytes == 16 * GIB
    scan(reader)
    processes = reader.read_details().processes
    assert processes is not None
    assert [(it.pid, it.used_bytes) for it in processes] == [(20, 96 * MIB)]


def test_what_only_draws_a_console_is_no_gpu(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    machine.add_card("0000:01:00.0", driver="ast")
    machine.add_card("0000:02:00.0", driver="nvidia", render_node="renderD130")
    machine.add_battlemage()
    assert find(machine, stepped_clock).identity.name == "Intel Arc B580"


def test_numbers_go_from_amd_to_intel_to_others(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    machine.add_card("0000:01:00.0", driver="nouveau", render_node="renderD127", files={"vendor": "0x10de"})
    machine.add_battlemage()
    machine.add_mi300x("0000:c1:00.0")
    readers = DrmSource(machine.root, stepped_clock).discover()
    assert [(it.identity.index, it.driver) for it in readers] == [(0, "amdgpu"), (1, "xe"), (2, "nouveau")]


@pytest.mark.parametrize("content", [b"", b"\xff\x00\xfe" * 40_000, b"-1\n", b"9" * 400])
def test_a_broken_file_leaves_its_field_unmeasured(
    machine: DrmMachine, stepped_clock: SteppedClock, content: bytes
) -> None:
    folder = machine.add_battlemage()
    machine.host.add_process(20)
    machine.add_drawing(20, 4, "")
    reader = find(machine, stepped_clock)
    for path in [*(machine.root / folder).rglob("*"), machine.root / "proc/20/fdinfo/4"]:
        if path.is_file() and not path.is_symlink():
            path.write_bytes(content)
    scan(reader)
    assert reader.read_memory().used_bytes == 3 * GIB
    details = reader.read_details()
    assert (details.temperature_c, details.power_w, details.processes) == (None, None, ())
    machine.write("sys/fs/cgroup/dmem.current", content)
    stepped_clock.now_s += 1.0
    memory = reader.read_memory()
    assert (memory.total_bytes, memory.used_bytes) == (12 * GIB, None)


def test_a_gpu_that_was_removed_is_lost(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    folder = machine.add_arc_i915()
    reader = find(machine, stepped_clock)
    (machine.root / folder).rename(machine.root / "gone")
    with pytest.raises(DeviceLostError, match="0000:03:00"):
        reader.read_memory()


def test_inside_a_container_its_own_group_is_not_what_is_used_of_the_device(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    machine.add_battlemage()
    (machine.root / "sys/fs/cgroup/dmem.capacity").unlink()  # only the group above all has it
    with pytest.raises(NotSupportedError):
        find(machine, stepped_clock).read_memory()


def test_the_size_of_memory_in_the_answers_of_both_drivers() -> None:
    host = struct.pack("<HHIQQ64x", 0, 0, 0, 64 * GIB, 64 * GIB)
    own = struct.pack("<HHIQQ64x", 1, 0, 0, 16 * GIB, 16 * GIB)
    i915 = struct.pack("<I12x", 2) + host + own
    assert parse_regions("i915", i915) == 16 * GIB
    xe = struct.pack("<I4x", 3) + host + own + own
    assert parse_regions("xe", xe) == 32 * GIB, "a GPU of two tiles"
    assert parse_regions("xe", struct.pack("<I4x", 1) + host) is None
    assert parse_regions("xe", xe[:-1]) is None
    assert parse_regions("i915", struct.pack("<I12x", 1 << 31)) is None


def test_a_file_that_is_no_device_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "renderD128").write_text("")
    assert ask_size("xe", tmp_path / "renderD128") is None
    assert ask_size("i915", tmp_path / "renderD129") is None


@pytest.mark.parametrize(
    ("device", "name"),
    [("56a0", "Arc A770"), ("7d55", "Meteor Lake-P"), ("abcd", None), ("ffff", None)],
)
def test_names_are_those_of_the_vendor(machine: DrmMachine, device: str, name: str | None) -> None:
    assert find_pci_name(machine.root / "usr/share/misc/pci.ids", "8086", device) == name


def test_a_list_of_names_that_is_empty_or_absent_names_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert find_pci_name(tmp_path / "empty", "8086", "56a0") is None
    assert find_pci_name(tmp_path / "absent", "8086", "56a0") is None


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=400), st.sampled_from(["vram0", "vram", "gtt", "local0", ""]), st.integers())
def test_dmem_of_any_content_is_sizes(noise: bytes, region: str, size: int) -> None:
    found = parse_dmem(noise + f"\ndrm/0000:03:00.0/{region} {size}\n".encode() + noise)
    assert all(value >= 0 for value in found.values())
    if size >= 0 and len(str(size)) < 20 and region.startswith(("vram", "local")):
        assert found["0000:03:00.0"] >= size


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["i915", "xe"]), st.binary(max_size=400))
def test_regions_of_any_content_are_a_size_or_none(driver: str, data: bytes) -> None:
    found = parse_regions(driver, data)
    assert found is None or found > 0


_VALUE = st.one_of(st.integers(), st.text(max_size=8))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["engine-ccs", "cycles-ccs", "total-cycles-ccs", "engine-capacity-ccs"]), _VALUE
        ),
        max_size=12,
    )
)
def test_engines_of_any_content_are_counters(lines: list[tuple[str, object]]) -> None:
    text = "drm-driver: x\n" + "\n".join(f"drm-{key}: {value}" for key, value in lines)
    client = parse_fdinfo(text.encode("utf-8", "replace"))
    assert client is not None
    assert all(it.busy >= 0 and it.capacity >= 1 for it in client.engines.values())
