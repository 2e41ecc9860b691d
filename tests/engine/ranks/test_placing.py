"""A rank is put on the device that something names for certain, and else on none."""

from pathlib import Path

import pytest

from vramscope.engine.model import DeviceSample, MemoryReading, ProcessReading
from vramscope.engine.ranks.messages import Hello, ProbedDevice
from vramscope.engine.ranks.roster import Placing
from vramscope.engine.ranks.track import RankTrack

from .probe_client import GIB, make_hello
from .rosters import make_device

PID = 4711
UUID = "GPU-0f1e2d3c-0000-1111-2222-333344445555"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Return an empty proc file system."""
    return tmp_path


def find(hello: Hello, devices: list[DeviceSample], proc: Path) -> str | None:
    """Return where a process is put."""
    return Placing("n", proc).find(RankTrack(PID, hello, 0.0), devices)


def on(index: int = 0, *, uuid: str | None = None, pci_bus_id: str | None = None) -> Hello:
    """Return the hello of a process on a CUDA device."""
    return make_hello(device=ProbedDevice(index=index, uuid=uuid, pci_bus_id=pci_bus_id))


def set_visible(proc: Path, value: str | None) -> None:
    """Give the process an environment."""
    (proc / str(PID)).mkdir()
    entries = [b"HOME=/x"] + ([] if value is None else [f"CUDA_VISIBLE_DEVICES={value}".encode()])
    (proc / str(PID) / "environ").write_bytes(b"\0".join(entries) + b"\0")


def holding(device: DeviceSample, pid: int = PID, location: str = "here") -> DeviceSample:
    """Return a device in whose process list a process stands."""
    process = ProcessReading(pid=pid, location=location)  # type: ignore[arg-type] # one of its literals
    return make_device(device.index, device.uuid, processes=(process,))


@pytest.mark.parametrize("told", [UUID, UUID.removeprefix("GPU-"), UUID.upper()])
def test_by_uuid_however_it_is_spelled(proc: Path, told: str) -> None:
    assert find(on(0, uuid=told), [make_device(0), make_device(1, UUID)], proc) == UUID


@pytest.mark.parametrize("told", ["0000:3b:00.0", "00000000:3B:00.0", "3b:00.0"])
def test_by_the_address_that_the_driver_knows(proc: Path, told: str) -> None:
    there = make_device(1, UUID, pci_address="0000:3b:00.0")
    instance = DeviceSample("MIG-a", 1, kind="mig", mig_index=0, pci_address="0000:3b:00.0")
    assert find(on(5, pci_bus_id=told), [make_device(0), instance, there], proc) == UUID


def test_by_the_one_process_list_in_which_it_stands(proc: Path) -> None:
    devices = [make_device(0), holding(make_device(1))]
    assert find(on(0), devices, proc) == "GPU-1"
    assert find(on(0, uuid="GPU-of-elsewhere"), devices, proc) == "GPU-1"


def test_a_pid_of_another_namespace_names_nothing(proc: Path) -> None:
    set_visible(proc, "7")
    assert find(on(0), [make_device(0), holding(make_device(1), location="outside")], proc) is None


def test_in_a_mig_instance_rather_than_on_its_gpu(proc: Path) -> None:
    instance = DeviceSample(
        "MIG-a", 0, kind="mig", parent_uuid=UUID, mig_index=0, processes=(ProcessReading(pid=PID),)
    )
    other = DeviceSample("MIG-b", 0, kind="mig", parent_uuid=UUID, mig_index=1, processes=())
    assert find(on(0, uuid=UUID), [make_device(0, UUID), instance, other], proc) == "MIG-a"


@pytest.mark.parametrize(
    ("visible", "ordinal", "expected"),
    [
        (None, 1, "GPU-1"),
        ("2,0", 0, "GPU-2"),
        ("2,0", 1, "GPU-0"),
        ("2,0", 2, None),
        ("9", 0, None),
        (UUID[:12], 0, UUID),
        ("", 0, None),
        ("NoDevFiles", 0, None),
    ],
)
def test_by_ordinal_as_cuda_counts(proc: Path, visible: str | None, ordinal: int, expected: str) -> None:
    set_visible(proc, visible)
    devices = [make_device(0), make_device(1), make_device(2), make_device(3, UUID)]
    assert find(on(ordinal), devices, proc) == expected


def test_unlike_cards_are_not_counted(proc: Path) -> None:
    set_visible(proc, None)
    other = make_device(1, memory=MemoryReading(total_bytes=24 * GIB))
    assert find(on(0), [make_device(0), other], proc) is None


def test_a_process_whose_environment_is_closed_is_put_nowhere(proc: Path) -> None:
    assert find(on(0), [make_device(0)], proc) is None


def test_ranks_without_a_card_of_the_driver(proc: Path) -> None:
    devices = [make_device(0)]
    assert find(make_hello(backend=None), devices, proc) is None
    assert find(make_hello(backend="cpu"), devices, proc) == "cpu-n"
    assert find(make_hello(backend="mps", device=ProbedDevice(index=0)), devices, proc) is None
    assert find(make_hello(is_simulated=True), devices, proc) == "sim-job-0"
