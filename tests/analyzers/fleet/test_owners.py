"""Whose the devices of a fleet are: groups and filters by job, pod, namespace and user."""

import msgspec
import pytest

from tests.analyzers.fleet.nodes import make_node
from vramscope.analyzers.fleet.fleet import read_devices, read_node
from vramscope.analyzers.fleet.model import FleetDevice, compile_filter, group_devices
from vramscope.engine.model import DeviceAllocation, DeviceSample, ProcessOwner, ProcessReading
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.cells import trim_to_cells

POD = ProcessOwner("ml", "llama-0", "trainer")
JOB = ProcessOwner(slurm_job_name="pretrain", slurm_partition="h100")
GIVEN = DeviceAllocation("ml", "idle-0", "main", "nvidia.com/gpu")
LISTS: tuple[tuple[ProcessReading, ...] | None, ...] = (
    (ProcessReading(1, "ada", pod="8a7b", owner=POD), ProcessReading(2, "ada", pod="8a7b", owner=POD)),
    (ProcessReading(3, "bo", pod="9c00-unnamed"), ProcessReading(4, "ada", pod="8a7b", owner=POD)),
    (ProcessReading(5, "bo", slurm_job="812", slurm_step="0", owner=JOB),),
    (),
    None,
)


def make_owned() -> Snapshot:
    """Return a node whose devices have these processes; the fourth is given to a pod that does not use it."""
    snapshot = make_node("n1", len(LISTS))
    assert snapshot.sample is not None
    devices = [
        msgspec.structs.replace(
            device, processes=processes, allocations=(GIVEN,) if processes == () else None
        )
        for device, processes in zip(snapshot.sample.devices, LISTS, strict=True)
    ]
    return msgspec.structs.replace(
        snapshot, sample=msgspec.structs.replace(snapshot.sample, devices=tuple(devices), ranks=())
    )


def groups(devices: tuple[FleetDevice, ...], grouping: str) -> dict[str, list[str]]:
    found = group_devices(devices, grouping, "name")  # type: ignore[arg-type]
    return {group.name: [device.label for device in group.devices] for group in found}


@pytest.mark.parametrize("is_cells", [False, True])
def test_devices_are_grouped_by_whose_they_are(is_cells: bool) -> None:
    snapshot = make_owned()
    assert snapshot.sample is not None
    if is_cells:
        snapshot = msgspec.structs.replace(snapshot, sample=trim_to_cells(snapshot.sample))
    devices = read_devices(snapshot)
    assert groups(devices, "pod") == {
        "ml/llama-0": ["0"],
        "9c00-unnamed+ml/llama-0": ["1"],
        "ml/idle-0": ["3"],
        "no pod": ["2", "4"],
    }
    assert groups(devices, "namespace") == {"ml": ["0", "1", "3"], "no namespace": ["2", "4"]}
    assert groups(devices, "user") == {"ada": ["0"], "ada+bo": ["1"], "bo": ["2"], "no user": ["3", "4"]}
    assert groups(devices, "job") == {"812": ["2"], "no job": ["0", "1", "3", "4"]}


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("pod:ml/llama-*", "01"),
        ("pod:llama-0", "01"),
        ("pod:9c00*", "1"),
        ("pod:idle-?", "3"),
        ("ns:ml", "013"),
        ("user:bo", "12"),
        ("user:ada !user:bo", "0"),
        ("job:812", "2"),
        ("job:pre*", "2"),
        ("llama", "01"),
        ("pretrain", "2"),
    ],
)
def test_a_filter_names_whose_devices_it_wants(text: str, labels: str) -> None:
    wanted = compile_filter(text)
    assert "".join(it.label for it in read_devices(make_owned()) if wanted(it)) == labels


def test_a_pod_that_comes_to_a_device_is_seen_though_nothing_else_changes() -> None:
    before = read_node(make_node("n1", 2))
    snapshot = before.snapshot
    assert snapshot.sample is not None
    given = msgspec.structs.replace(snapshot.sample.devices[1], allocations=(GIVEN,))
    sample = msgspec.structs.replace(snapshot.sample, devices=(snapshot.sample.devices[0], given))
    after = read_node(msgspec.structs.replace(snapshot, sample=sample), before)
    assert after.devices[1].pods == ("ml/idle-0",)


def test_the_owners_of_a_shared_device_are_bounded() -> None:
    many = tuple(ProcessReading(pid, f"user{pid}") for pid in range(100))
    assert len(DeviceSample("GPU-1", 0, processes=many).find_owners()) == 8
    assert DeviceSample("GPU-1", 0, processes=(ProcessReading(1),)).find_owners() == ()
