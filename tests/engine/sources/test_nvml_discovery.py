"""Which devices are found, under which names, and how they come and go."""

from pathlib import Path

import pytest

from tests.engine.sources.conftest import SteppedClock
from tests.engine.sources.machine import FakeMachine
from tests.pretend_nvml.driver import GIB, PretendDevice, PretendDriver
from tests.pretend_nvml.layout import FunctionClass
from vramscope.engine.errors import DeviceLostError, SourceUnavailableError
from vramscope.engine.sources.nvml import NvmlSource
from vramscope.engine.sources.nvml.missing import LostReader


def address_of(device: PretendDevice) -> str:
    return device.raw.bus_id.decode()[4:].lower()


def write_gpu_folders(root: Path, driver: PretendDriver, *, has_device_files: bool = False) -> None:
    """List the driver's GPUs in the fake /proc, as the kernel driver does."""
    for minor, device in enumerate(driver.devices):
        folder = root / "proc/driver/nvidia/gpus" / address_of(device)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "information").write_text(
            f"Model: \t\t {device.raw.name.decode()}\nIRQ:   \t\t 34\nGPU UUID: \t {device.uuid}\n"
            f"Bus Location: \t {address_of(device)}\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n"
        )
        if has_device_files:
            (root / "dev").mkdir(exist_ok=True)
            (root / f"dev/nvidia{minor}").touch()


def test_devices_come_in_index_order_with_uuid_and_name(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    devices = [pretend_nvml.add_device(name=f"Card {number}") for number in range(3)]
    found = [(r.identity.index, r.identity.uuid, r.identity.name) for r in nvml_source.discover()]
    assert found == [(i, device.uuid, f"Card {i}") for i, device in enumerate(devices)]


def test_128_devices_are_found(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    for number in range(128):
        pretend_nvml.add_device(used_bytes=number * 1024)
    readers = nvml_source.discover()
    assert [reader.read_memory().used_bytes for reader in readers] == [n * 1024 for n in range(128)]


def test_indices_shift_and_uuids_do_not(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    first, second = (pretend_nvml.add_device(used_bytes=n * GIB) for n in (1, 2))
    nvml_source.discover()
    first.detach()
    [reader] = nvml_source.discover()
    assert (reader.identity.index, reader.identity.uuid) == (0, second.uuid)
    assert reader.read_memory().used_bytes == 2 * GIB
    first.attach()
    assert [r.identity.uuid for r in nvml_source.discover()] == [first.uuid, second.uuid]


def test_a_guest_of_a_virtual_gpu_is_told_apart(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    device = pretend_nvml.add_device(name="GRID A100-10C", used_bytes=2 * GIB, total_bytes=10 * GIB)
    device.raw.virtualization_mode = 2
    for function_class in (FunctionClass.TEMPERATURE, FunctionClass.POWER, FunctionClass.FAN):
        device.fail(function_class, 3)
    [reader] = nvml_source.discover()
    details = reader.read_details()
    assert reader.identity.kind == "vgpu"
    assert (details.utilization_percent, details.temperature_c, details.power_w) == (50.0, None, None)


@pytest.mark.parametrize("mode", [0, 1, 3])
def test_a_gpu_passed_through_or_of_a_hypervisor_is_a_gpu(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, mode: int
) -> None:
    pretend_nvml.add_device().raw.virtualization_mode = mode
    assert nvml_source.discover()[0].identity.kind == "gpu"


def test_mig_instances_follow_their_gpu(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    parent = pretend_nvml.add_device(used_bytes=9 * GIB)
    instances = [parent.add_instance(used_bytes=n * GIB, total_bytes=20 * GIB, slices=2) for n in (3, 6)]
    pretend_nvml.add_device()
    readers = nvml_source.discover()
    assert [(r.identity.index, r.identity.mig_index, r.identity.kind) for r in readers] == [
        (0, None, "gpu"),
        (0, 0, "mig"),
        (0, 1, "mig"),
        (1, None, "gpu"),
    ]
    assert [r.identity.parent_uuid for r in readers] == [None, parent.uuid, parent.uuid, None]
    assert [r.identity.gpu_instance_id for r in readers] == [None, 7, 8, None]
    assert [r.identity.uuid for r in readers[1:3]] == [i.uuid.decode() for i in instances]
    whole = [r.read_memory().used_bytes for r in readers if r.identity.parent_uuid is None]
    parts = [r.read_memory().used_bytes for r in readers if r.identity.parent_uuid is not None]
    assert (whole, parts) == ([9 * GIB, 1 * GIB], [3 * GIB, 6 * GIB])
    assert readers[0].read_details().utilization_percent is None
    assert readers[1].read_details().power_w is None


def test_an_instance_that_was_destroyed_is_lost_and_its_gpu_is_not(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    parent = pretend_nvml.add_device()
    instance = parent.add_instance(used_bytes=1 * GIB)
    gpu, part = nvml_source.discover()
    part.read_memory()
    instance.present = 0
    with pytest.raises(DeviceLostError, match="removed"):
        part.read_memory()
    assert gpu.read_memory().used_bytes is not None
    assert [r.identity.kind for r in nvml_source.discover()] == ["gpu"]


def test_a_lost_device_comes_back_with_a_fresh_handle(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    device = pretend_nvml.add_device(used_bytes=3 * GIB)
    [reader] = nvml_source.discover()
    device.lose()
    with pytest.raises(DeviceLostError):
        reader.read_memory()
    [gone] = nvml_source.discover()
    assert gone.identity == reader.identity
    with pytest.raises(DeviceLostError, match="fell off the bus"):
        gone.read_memory()
    device.recover()
    device.raw.crash_on_dead_handle = 1
    [fresh] = nvml_source.discover()
    assert fresh.read_memory().used_bytes == 3 * GIB
    with pytest.raises(DeviceLostError):
        reader.read_memory()


def test_the_others_are_found_while_one_is_lost(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    pretend_nvml.add_device().lose()
    other = pretend_nvml.add_device()
    lost, reader = nvml_source.discover()
    assert (lost.identity.index, lost.identity.is_provisional) == (0, True)
    assert (reader.identity.uuid, reader.identity.index) == (other.uuid, 1)


def test_a_device_that_is_lost_from_the_start_has_a_row(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    lost = pretend_nvml.add_device(name="Card 0")
    pretend_nvml.add_device(name="Card 1")
    write_gpu_folders(fake_root, pretend_nvml)
    lost.lose()
    rows = {r.identity.uuid: r for r in nvml_source.discover()}
    assert (rows[lost.uuid].identity.index, rows[lost.uuid].identity.name) == (0, "Card 0")
    for call in (rows[lost.uuid].read_memory, rows[lost.uuid].read_details):
        with pytest.raises(DeviceLostError, match="fell off the bus"):
            call()


def test_a_gpu_that_nvml_does_not_count_is_listed_as_lost(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    devices = [pretend_nvml.add_device(name=f"Card {number}") for number in range(8)]
    write_gpu_folders(fake_root, pretend_nvml, has_device_files=True)
    devices[3].detach()
    *sound, lost = nvml_source.discover()
    assert [reader.identity.index for reader in sound] == list(range(7))
    assert (lost.identity.index, lost.identity.uuid, lost.identity.name) == (7, devices[3].uuid, "Card 3")
    assert lost.identity.pci_address == address_of(devices[3]) == "0000:04:00.0"
    with pytest.raises(DeviceLostError, match=r"0000:04:00\.0 \(/dev/nvidia3\), but NVML does not count it"):
        lost.read_memory()
    devices[3].attach()
    assert [reader.identity.index for reader in nvml_source.discover()] == list(range(8))


def test_gpus_of_both_kinds_of_loss_are_all_listed(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    devices = [pretend_nvml.add_device() for _ in range(4)]
    write_gpu_folders(fake_root, pretend_nvml, has_device_files=True)
    devices[1].lose()
    devices[2].detach()
    lost = [it.identity for it in nvml_source.discover() if isinstance(it, LostReader)]
    assert [(it.index, it.uuid) for it in lost] == [(3, devices[1].uuid), (4, devices[2].uuid)]


def test_a_node_whose_only_gpu_is_gone_lists_it(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    device = pretend_nvml.add_device()
    write_gpu_folders(fake_root, pretend_nvml, has_device_files=True)
    device.detach()
    [lost] = nvml_source.discover()
    assert lost.identity.uuid == device.uuid


def test_a_lost_gpu_whose_uuid_the_driver_never_read_is_known_by_its_address(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    device, _ = pretend_nvml.add_device(name="Card"), pretend_nvml.add_device()
    write_gpu_folders(fake_root, pretend_nvml, has_device_files=True)
    information = fake_root / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    lines = information.read_text().splitlines(keepends=True)
    information.write_text("".join(line for line in lines if "UUID" not in line))
    device.detach()
    *_, lost = nvml_source.discover()
    assert (lost.identity.uuid, lost.identity.name) == ("unknown-nvml-0000:01:00.0", "Card")
    assert lost.identity.is_provisional


@pytest.mark.parametrize("content", [b"", b"\xff\x00" * 4000, b"GPU UUID\nDevice Minor: x\n"])
def test_an_unreadable_folder_lists_nothing(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path, content: bytes
) -> None:
    device, other = pretend_nvml.add_device(), pretend_nvml.add_device()
    write_gpu_folders(fake_root, pretend_nvml, has_device_files=True)
    (fake_root / "proc/driver/nvidia/gpus/0000:01:00.0/information").write_bytes(content)
    device.detach()
    assert [reader.identity.uuid for reader in nvml_source.discover()] == [other.uuid]


def test_a_gpu_that_the_driver_was_told_to_leave_out_is_not_lost(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    excluded, other = pretend_nvml.add_device(), pretend_nvml.add_device()
    write_gpu_folders(fake_root, pretend_nvml, has_device_files=True)
    information = fake_root / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    information.write_text(information.read_text().replace("Excluded:\t No", "Excluded:\t Yes"))
    excluded.detach()
    assert [reader.identity.uuid for reader in nvml_source.discover()] == [other.uuid]


def write_pci_device(root: Path, address: str, *, driver: str | None, override: str = "(null)") -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, text in (("vendor", "0x10de"), ("device", "0x2330"), ("class", "0x030200")):
        (folder / name).write_text(f"{text}\n")
    (folder / "driver_override").write_text(f"{override}\n")
    if driver is not None:
        (folder / "driver").symlink_to(f"../../drivers/{driver}")


def test_a_gpu_that_the_driver_could_not_start_is_listed_as_lost(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    FakeMachine(fake_root)
    pretend_nvml.add_device()
    write_gpu_folders(fake_root, pretend_nvml, has_device_files=True)
    write_pci_device(fake_root, "0000:01:00.0", driver="nvidia")
    write_pci_device(fake_root, "0000:02:00.0", driver=None)
    write_pci_device(fake_root, "0000:03:00.0", driver="vfio-pci")
    write_pci_device(fake_root, "0000:04:00.0", driver=None, override="vfio-pci")
    sound, lost = nvml_source.discover()
    assert (sound.identity.index, lost.identity.index) == (0, 1)
    assert lost.identity.pci_address == "0000:02:00.0"
    with pytest.raises(DeviceLostError, match="no driver runs it"):
        lost.read_memory()


def test_a_container_is_shown_no_gpu_of_the_bus(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    FakeMachine(fake_root, is_container=True)
    pretend_nvml.add_device()
    write_gpu_folders(fake_root, pretend_nvml, has_device_files=True)
    write_pci_device(fake_root, "0000:02:00.0", driver=None)
    assert len(nvml_source.discover()) == 1


def test_gpus_that_this_user_may_not_see_are_not_called_lost(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    devices = [pretend_nvml.add_device() for _ in range(4)]
    write_gpu_folders(fake_root, pretend_nvml)
    for device in devices[2:]:
        device.detach()
    assert len(nvml_source.discover()) == 2


def test_who_is_lost_is_not_guessed_among_gpus_that_this_user_may_not_see(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, fake_root: Path
) -> None:
    lost, seen, *unseen = [pretend_nvml.add_device() for _ in range(4)]
    write_gpu_folders(fake_root, pretend_nvml)
    lost.lose()
    for device in unseen:
        device.detach()
    found = [reader.identity for reader in nvml_source.discover()]
    assert [(it.uuid, it.is_provisional) for it in found] == [("unknown-nvml-0", True), (seen.uuid, False)]


def test_nvml_is_started_anew_for_a_lost_device_ever_less_often(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, stepped_clock: SteppedClock
) -> None:
    pretend_nvml.add_device()
    lost = pretend_nvml.add_device()
    nvml_source.discover()
    lost.lose()
    starts_at_s = []
    for elapsed_s in range(5, 1000, 5):
        stepped_clock.now_s += 5.0
        inits = pretend_nvml.raw.inits
        nvml_source.discover()
        if pretend_nvml.raw.inits > inits:
            starts_at_s.append(elapsed_s)
    assert starts_at_s == [5, 35, 95, 215, 455, 755]


def test_nvml_is_not_started_anew_while_nothing_changes(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver, stepped_clock: SteppedClock, fake_root: Path
) -> None:
    pretend_nvml.add_device()
    write_gpu_folders(fake_root, pretend_nvml)
    for _ in range(5):
        stepped_clock.now_s += 60.0
        [reader] = nvml_source.discover()
        reader.read_memory()
    assert pretend_nvml.raw.inits == 1
    pretend_nvml.add_device()
    write_gpu_folders(fake_root, pretend_nvml)
    stepped_clock.now_s += 60.0
    assert len(nvml_source.discover()) == 2
    assert pretend_nvml.raw.inits == 2


def test_readers_from_before_a_restart_touch_nothing(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    sound, lost = pretend_nvml.add_device(), pretend_nvml.add_device()
    reader, _ = nvml_source.discover()
    lost.lose()
    nvml_source.discover()
    calls = sound.calls()
    with pytest.raises(DeviceLostError, match="shut down"):
        reader.read_memory()
    assert sound.calls() == calls


def test_discovering_again_keeps_older_readers_good_where_nvml_was_not_restarted(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    pretend_nvml.add_device(used_bytes=2 * GIB)
    [reader] = nvml_source.discover()
    nvml_source.discover()
    assert reader.read_memory().used_bytes == 2 * GIB


def test_closing_gives_nvml_back(nvml_source: NvmlSource, pretend_nvml: PretendDriver) -> None:
    pretend_nvml.add_device()
    nvml_source.discover()
    nvml_source.close()
    nvml_source.close()
    assert (pretend_nvml.raw.inits, pretend_nvml.raw.shutdowns) == (1, 1)


def test_a_count_that_fails_from_the_start_closes_nvml(
    nvml_source: NvmlSource, pretend_nvml: PretendDriver
) -> None:
    pretend_nvml.raw.driver_error = 999
    with pytest.raises(SourceUnavailableError):
        nvml_source.discover()
    assert pretend_nvml.raw.inits == pretend_nvml.raw.shutdowns
