"""AMD GPUs by the files of the kernel: what is read, what is not, and what bad files do."""

import os
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.sources.conftest import SteppedClock
from tests.engine.sources.drm_root import (
    APU_METRICS,
    GIB,
    LISTED_METRICS,
    MI300_METRICS,
    NAVI_METRICS,
    DrmMachine,
    encode_listed,
    make_listed,
    make_metrics,
)
from tests.pretend_nvml.driver import PretendDriver
from tests.waiting import wait_until
from vramscope.engine.errors import DeviceDeniedError, DeviceError, DeviceLostError, NotSupportedError
from vramscope.engine.model import DeviceActivity, Sample
from vramscope.engine.sampling.live import open_node
from vramscope.engine.sources.drm.amd import AmdReader
from vramscope.engine.sources.drm.fdinfo import parse_fdinfo
from vramscope.engine.sources.drm.gpu_metrics import Throttling, parse_metrics
from vramscope.engine.sources.drm.kfd import KfdProcesses
from vramscope.engine.sources.drm.source import DrmSource
from vramscope.exporters.status.document import describe_sample
from vramscope.exporters.status.table import render_table
from vramscope.exporters.text import TableStyle


@pytest.fixture
def machine(fake_root: Path) -> DrmMachine:
    return DrmMachine(fake_root)


def find(machine: DrmMachine, clock: SteppedClock) -> AmdReader:
    [reader] = DrmSource(machine.root, clock).discover()
    assert isinstance(reader, AmdReader)
    return reader


def test_a_navi_card(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    machine.add_navi()
    machine.write("usr/share/libdrm/amdgpu.ids", "# List\n1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX")
    reader = find(machine, stepped_clock)
    identity = reader.identity
    assert (identity.uuid, identity.name) == ("GPU-1a2b3c4d5e6f7788", "AMD Radeon RX 7900 XTX")
    assert (identity.pci_address, identity.kind) == ("0000:03:00.0", "gpu")
    memory = reader.read_memory()
    assert (memory.total_bytes, memory.used_bytes, memory.free_bytes) == (24 * GIB, 6 * GIB, 18 * GIB)
    details = reader.read_details()
    assert (details.utilization_percent, details.temperature_c, details.power_w) == (96.0, 54.0, 211.0)
    activity, hardware = reader.read_hardware()
    assert activity is not None
    assert hardware is not None
    assert (activity.memory_bandwidth_percent, activity.sm_clock_mhz, activity.memory_clock_mhz) == (
        40,
        2484,
        1249,
    )
    assert activity.throttle_reasons == ("thermal slowdown", "power cap")
    assert (hardware.power_limit_w, hardware.fan_percent) == (303.0, 40.0)
    assert (hardware.pcie_generation, hardware.pcie_lanes) == (4, 16)
    assert hardware.ecc_uncorrected is None


@pytest.mark.parametrize(
    ("risen", "reasons"),
    [
        ((0, 0, 0, 0, 0), ()),
        ((0, 7, 0, 0, 0), ("power cap",)),
        ((3, 0, 0, 0, 9), ("thermal slowdown", "hardware slowdown")),
    ],
)
@pytest.mark.parametrize(("revision", "size", "start"), [((1, 6), 1664, 32), ((1, 7), 2208, 40)])
def test_an_instinct_gpu_that_throttles(
    machine: DrmMachine,
    stepped_clock: SteppedClock,
    revision: tuple[int, int],
    size: int,
    start: int,
    risen: tuple[int, ...],
    reasons: tuple[str, ...],
) -> None:
    folder = machine.add_mi300x()
    seen: list[tuple[str, ...] | None] = []
    counts = (2**32 - 4, 5, 2**32 - 2, 0, 1, 2)  # two of them start again in between
    for added in ((0, 0, 0, 0, 0, 0), (1000, *risen)):
        values = [(count + more) % 2**32 for count, more in zip(counts, added, strict=True)]
        fields = {f"f{at}": (start + 4 * at, "I", value) for at, value in enumerate(values)}
        machine.write(f"{folder}/gpu_metrics", make_metrics(revision, size, **fields))
        if not seen:
            reader = find(machine, stepped_clock)
            reader.read_memory()
        activity = reader.read_hardware().activity
        assert activity is not None
        seen.append(activity.throttle_reasons)
        stepped_clock.now_s += 4.0
    assert seen[-1] == reasons


def test_memory_is_read_again_on_every_call(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    folder = machine.add_navi()
    reader = find(machine, stepped_clock)
    reader.read_memory()
    machine.write(f"{folder}/mem_info_vram_used", 9 * GIB)
    assert reader.read_memory().used_bytes == 9 * GIB


@pytest.mark.parametrize(
    ("compute", "memory", "parts", "name"),
    [
        ("SPX", "NPS1", 1, "AMD Instinct MI300X OAM"),
        ("CPX", "NPS4", 8, "AMD Instinct MI300X OAM (CPX/NPS4)"),
    ],
)
def test_an_instinct_gpu_in_two_partition_modes(
    machine: DrmMachine, stepped_clock: SteppedClock, compute: str, memory: str, parts: int, name: str
) -> None:
    machine.add_mi300x(compute=compute, memory=memory, parts=parts)
    machine.add_computing(4242, **{f"vram_{5000 + part}": 3 * GIB for part in range(parts)})
    machine.host.add_process(4242)
    reader = find(machine, stepped_clock)
    assert reader.identity.name == name
    assert reader.read_memory().total_bytes == 192 * GIB
    activity, hardware = reader.read_hardware()
    assert activity is not None
    assert hardware is not None
    assert (activity.sm_clock_mhz, activity.memory_bandwidth_percent) == (2101, 33.0)
    assert (hardware.is_ecc_on, hardware.ecc_corrected, hardware.ecc_uncorrected) == (True, 12, 1)
    assert (hardware.retired_pages, hardware.is_repair_pending) == (1, True)
    details = reader.read_details()
    assert (details.utilization_percent, details.temperature_c, details.power_w) == (88.0, 70.0, 700.0)
    assert details.processes is not None
    [process] = details.processes
    assert (process.pid, process.used_bytes, process.kind) == (4242, parts * 3 * GIB, "compute")
    assert (process.command, process.location) == ("python train.py", "here")


def test_an_apu_leads_with_the_memory_that_it_may_map(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    machine.add_apu()
    reader = find(machine, stepped_clock)
    memory = reader.read_memory()
    assert (memory.total_bytes, memory.used_bytes) == (16 * GIB, 3 * GIB)
    assert (reader.identity.kind, reader.identity.uuid) == ("unified", "amdgpu-0000:c1:00.0")
    assert reader.identity.name == "AMD GPU 15bf"
    details = reader.read_details()
    assert (details.utilization_percent, details.temperature_c, details.power_w) == (None, None, None)


def test_an_apu_with_a_large_carve_out_leads_with_that(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    folder = machine.add_apu()
    machine.write(f"{folder}/mem_info_vram_total", 96 * GIB)
    assert find(machine, stepped_clock).read_memory().total_bytes == 96 * GIB


def test_graphics_processes_count_once_however_many_descriptors_they_have(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    machine.add_navi()
    client = "drm-driver:\tamdgpu\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t{}\n"
    both = "drm-resident-vram:\t16 MiB\ndrm-memory-vram:\t16384 KiB\n"
    machine.add_drawing(10, 5, client.format(7) + both)
    machine.add_drawing(10, 6, client.format(7) + both)
    machine.add_drawing(10, 7, client.format(8) + "drm-memory-vram:\t1024 KiB\n")
    machine.add_drawing(11, 5, client.format(7) + both)
    machine.add_drawing(12, 5, client.format(9) + "drm-resident-vram:\t0\n")
    reader = find(machine, stepped_clock)
    reader.read_memory()
    reader.read_hardware()
    processes = reader.read_details().processes or ()
    assert [(it.pid, it.used_bytes, it.kind) for it in processes] == [
        (10, 17 << 20, "graphics"),
        (12, 0, "graphics"),
    ]


@pytest.mark.parametrize(
    ("is_container", "expected"), [(False, [(10, 2 * GIB, "here")]), (True, [(4242, 2 * GIB, "outside")])]
)
def test_a_compute_process_is_listed_once_inside_and_outside_a_container(
    machine: DrmMachine, stepped_clock: SteppedClock, is_container: bool, expected: list[tuple[int, int, str]]
) -> None:
    machine.add_mi300x()
    machine.host.add_process(10, opened=("/dev/kfd",))
    if is_container:
        (machine.root / "proc/self/ns/pid").unlink()
        (machine.root / "proc/self/ns/pid").symlink_to("pid:[4026532999]")
    machine.add_computing(4242 if is_container else 10, vram_5000=2 * GIB)
    client = "drm-driver:\tamdgpu\ndrm-pdev:\t0000:05:00.0\ndrm-client-id:\t7\ndrm-resident-vram:\t1 GiB\n"
    machine.add_drawing(10, 5, client)
    reader = find(machine, stepped_clock)
    reader.read_memory()
    reader.read_hardware()
    processes = reader.read_details().processes or ()
    assert [(it.pid, it.used_bytes, it.location) for it in processes] == expected


def test_a_gpu_that_sleeps_is_found_and_not_read(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    folder = machine.add_navi()
    machine.write(f"{folder}/power/runtime_status", "suspended")
    reader = find(machine, stepped_clock)
    for name in ("gpu_busy_percent", "gpu_metrics", "hwmon/hwmon3/temp1_input", "mem_info_vram_used"):
        # Whoever opens it hangs, as nobody writes into it.
        (machine.root / folder / name).unlink()
        os.mkfifo(machine.root / folder / name)
    for read in (reader.read_memory, reader.read_details, reader.read_hardware):
        with pytest.raises(NotSupportedError, match="sleeps"):
            read()


def test_a_gpu_that_wakes_up_is_read(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    folder = machine.add_navi()
    machine.write(f"{folder}/power/runtime_status", "suspended")
    reader = find(machine, stepped_clock)
    with pytest.raises(NotSupportedError):
        reader.read_memory()
    machine.write(f"{folder}/power/runtime_status", "active")
    stepped_clock.now_s += 1.0
    assert reader.read_memory().used_bytes == 6 * GIB


@pytest.mark.parametrize("content", [b"", b"\xff\x00\xfe" * 40_000, b"-1\n", b"9" * 400])
def test_a_broken_file_leaves_its_field_unmeasured(
    machine: DrmMachine, stepped_clock: SteppedClock, content: bytes
) -> None:
    folder = machine.add_navi()
    reader = find(machine, stepped_clock)
    for path in (machine.root / folder).rglob("*"):
        if path.is_file() and not path.is_symlink() and "vram" not in path.name:
            path.write_bytes(content)
    assert reader.read_memory().used_bytes == 6 * GIB
    details = reader.read_details()
    assert (details.utilization_percent, details.temperature_c, details.power_w) == (None, None, None)
    activity, hardware = reader.read_hardware()
    assert activity == DeviceActivity()
    assert hardware is not None
    assert (hardware.power_limit_w, hardware.ecc_corrected) == (None, None)
    machine.write(f"{folder}/mem_info_vram_used", content)
    with pytest.raises(DeviceError, match="mem_info_vram_used holds no number"):
        reader.read_memory()


def test_files_that_vanish_say_why(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    folder = machine.add_navi()
    reader = find(machine, stepped_clock)
    (machine.root / folder / "mem_info_vram_total").unlink()
    with pytest.raises(NotSupportedError, match="mem_info_vram_total"):
        reader.read_memory()
    shutil.rmtree(machine.root / folder)
    stepped_clock.now_s += 2.0
    with pytest.raises(DeviceLostError, match="0000:03:00"):
        reader.read_memory()


@pytest.mark.skipif(os.getuid() == 0, reason="root may read every file")
def test_a_file_of_another_user_is_denied(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    folder = machine.add_navi()
    (machine.root / folder / "mem_info_vram_used").chmod(0)
    with pytest.raises(DeviceDeniedError, match="may not read"):
        find(machine, stepped_clock).read_memory()


def test_cards_of_other_drivers_are_left_to_others(machine: DrmMachine, stepped_clock: SteppedClock) -> None:
    machine.add_card("0000:01:00.0", driver="nvidia")
    machine.add_navi()
    assert find(machine, stepped_clock).identity.index == 0


def test_nvidia_and_amd_in_one_view(machine: DrmMachine, pretend_nvml: PretendDriver) -> None:
    for number in range(2):
        pretend_nvml.add_device(name=f"Card {number}")
    machine.add_navi()
    machine.add_mi300x()
    producer = open_node(interval_s=0.1, memory_interval_s=0.05, has_plugins=False, root=machine.root)
    producer.start()
    taken: list[Sample] = []

    def has_all() -> bool:
        taken.extend(producer.take())
        return bool(taken) and len(taken[-1].devices) == 4

    try:
        wait_until(has_all, what="four devices")
    finally:
        producer.stop()
    devices = taken[-1].devices
    assert [device.index for device in devices] == [0, 1, 2, 3]
    assert [device.memory.total_bytes for device in devices] == [80 * GIB, 80 * GIB, 24 * GIB, 192 * GIB]
    assert all(device.state == "ok" for device in devices)
    table = render_table(describe_sample(taken[-1]), TableStyle(width=120))
    assert "4 GPUs" in table
    assert "AMD Instinct MI300X OAM" in table


@pytest.mark.parametrize(
    ("data", "revision", "clock_mhz"),
    [(NAVI_METRICS, "1.3", 2484), (MI300_METRICS, "1.6", 2101), (APU_METRICS, "2.3", 2700)],
)
def test_metrics_are_read_by_revision(data: bytes, revision: str, clock_mhz: int) -> None:
    found = parse_metrics(data)
    assert found is not None
    assert (found.revision, found.clock_mhz) == (revision, clock_mhz)
    assert parse_metrics(data[:-1]) is None


@pytest.mark.parametrize("revision", [(1, 0), (1, 9), (2, 5), (4, 0), (255, 255)])
def test_metrics_of_an_unknown_revision_are_not_guessed(revision: tuple[int, int]) -> None:
    assert parse_metrics(make_metrics(revision, 4000)) is None


def test_a_table_that_lists_its_fields_is_read_by_id_and_unit() -> None:
    found = parse_metrics(LISTED_METRICS)
    assert found is not None
    assert (found.revision, found.is_apu, found.edge_c) == ("1.9", False, None)
    assert (found.junction_c, found.memory_c, found.power_w) == (71, 55, 701)
    assert (found.busy_percent, found.memory_busy_percent) == (88, 33)
    assert (found.clock_mhz, found.memory_clock_mhz) == (2101, 1300)
    assert (found.pcie_lanes, found.pcie_generation) == (16, 5)
    assert found.throttling == Throttling(cycles=900, board=1, power=20, heat=12)
    assert parse_metrics(LISTED_METRICS[:-1]) is None, "cut off"
    later_type = struct.pack("<QB", 9 << 20 | 1, 0)
    assert parse_metrics(make_listed(later_type)) is None, "of unknown size"


def test_a_listed_field_in_other_units_is_converted_or_unmeasured() -> None:
    found = parse_metrics(
        make_listed(
            encode_listed(6, 2, 17, 64),  # GT/s
            encode_listed(1, 2, 37, 1200, 1250),  # one clock for each die of memory
            encode_listed(1, 2, 3, 701),  # power in MHz
            encode_listed(2, 3, 0, -5),
            encode_listed(10, 2, 4, 400),
        )
    )
    assert found is not None
    assert (found.pcie_generation, found.memory_clock_mhz) == (6, 1250)
    assert (found.power_w, found.junction_c, found.busy_percent, found.throttling) == (None,) * 4


def test_unsupported_metrics_are_none() -> None:
    found = parse_metrics(make_metrics((1, 3), 120))
    assert found is not None
    values = (found.edge_c, found.power_w, found.busy_percent, found.clock_mhz, found.throttle_reasons)
    assert values == (None,) * 5


_REVISIONS = st.sampled_from([(1, n) for n in range(1, 10)] + [(2, n) for n in range(1, 5)] + [(3, 0)])


@settings(max_examples=60, deadline=None)
@given(_REVISIONS, st.binary(max_size=3400))
def test_metrics_of_any_content_are_possible_or_none(revision: tuple[int, int], data: bytes) -> None:
    found = parse_metrics(b"\x58\x00" + bytes(revision) + data)
    full = parse_metrics(make_metrics(revision, 4 + len(data))[:4] + data)
    for metrics in (found, full):
        if metrics is not None:
            assert metrics.busy_percent is None or 0 <= metrics.busy_percent <= 100
            assert metrics.edge_c is None or 0 <= metrics.edge_c <= 200
            assert metrics.clock_mhz is None or 0 <= metrics.clock_mhz <= 20_000


def test_compute_memory_is_of_now_and_of_other_gpus_within_half_a_minute(
    machine: DrmMachine, stepped_clock: SteppedClock
) -> None:
    machine.add_mi300x(compute="DPX", parts=2)
    kfd = KfdProcesses(machine.root, stepped_clock)
    kfd.find_nodes()

    def read(after_s: float) -> dict[int, int] | None:
        stepped_clock.now_s += after_s
        return kfd.read("0000:05:00.0")

    machine.add_computing(7, vram_5000=GIB, vram_5001=0)
    assert read(0.0) == {7: GIB}
    machine.add_computing(7, vram_5000=2 * GIB)
    assert read(2.0) == {7: 2 * GIB}
    machine.add_computing(7, vram_5001=4 * GIB)
    assert read(4.0) == {7: 6 * GIB}, "a process that has just begun"
    machine.add_computing(7, vram_5001=0)
    assert read(2.0) == {7: 2 * GIB}
    assert read(100.0) == {7: 2 * GIB}
    machine.add_computing(7, vram_5001=GIB)
    assert read(2.0) == {7: 2 * GIB}
    assert read(30.0) == {7: 3 * GIB}
    shutil.rmtree(machine.root / "sys/class/kfd/kfd/proc/7")
    assert read(2.0) == {}
    machine.add_computing(7, vram_5000=GIB // 2)
    assert read(2.0) == {7: GIB // 2}, "another process with the same number"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=80), st.binary(max_size=200), st.binary(max_size=80))
def test_compute_files_of_any_content_are_sizes(
    tmp_path_factory: pytest.TempPathFactory, gpu_id: bytes, properties: bytes, size: bytes
) -> None:
    machine = DrmMachine(tmp_path_factory.mktemp("kfd"))
    machine.add_mi300x(parts=2)
    node = "sys/class/kfd/kfd/topology/nodes/1"
    machine.write(f"{node}/gpu_id", gpu_id)
    machine.write(f"{node}/properties", b"location_id 1280\n" + properties)
    machine.write("sys/class/kfd/kfd/proc/7/vram_5001", size)
    machine.write("sys/class/kfd/kfd/proc/8/vram_5001", GIB)
    kfd = KfdProcesses(machine.root, lambda: 1.0)
    kfd.find_nodes()
    found = kfd.read("0000:05:00.0") or {}
    assert found[8] == GIB
    assert all(value > 0 for value in found.values())


_LINE = st.one_of(
    st.binary(max_size=40),
    st.builds(
        lambda key, value, unit: f"{key}:\t{value} {unit}".encode(),
        st.sampled_from(["drm-driver", "drm-pdev", "drm-client-id", "drm-resident-vram", "drm-memory-gtt"]),
        st.one_of(st.integers(), st.text(max_size=8)),
        st.sampled_from(["", "KiB", "MiB", "XiB"]),
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(_LINE, max_size=20))
def test_fdinfo_of_any_content_is_sizes_or_none(lines: list[bytes]) -> None:
    client = parse_fdinfo(b"\n".join([*lines, b"drm-driver: x", b"drm-pdev: 0000:03:00.0"]))
    assert client is not None
    assert all(size >= 0 for size in client.resident.values())
