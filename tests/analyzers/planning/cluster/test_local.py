"""The cluster that this machine is, from a pretend driver."""

import pytest

from tests.pretend_nvml.driver import GIB, PretendDriver
from tests.pretend_nvml.layout import FunctionClass
from vramscope.engine.errors import SourceUnavailableError, UsageError
from vramscope.planning.joint import read_cluster

H100 = "NVIDIA H100 80GB HBM3"


def test_devices_behind_a_switch_have_all_lanes_to_each_other(
    pretend_nvml: PretendDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRAMSCOPE_NODE", "here")
    for _ in range(4):
        device = pretend_nvml.add_device(name=H100, total_bytes=79 * GIB)
        device.link(6, [None] * 18)
    cluster = read_cluster("local")
    assert cluster.is_uniform
    assert [(each.node, each.memory_bytes, each.flops_per_s) for each in cluster.devices] == [
        ("here", 79 * GIB, 989.4e12)
    ] * 4
    assert (cluster.link(0, 3).bytes_per_s, cluster.link(0, 3).kind) == (450e9, "NVLink, 18 lanes")


def test_bridges_and_sockets_are_links_of_their_own(pretend_nvml: PretendDriver) -> None:
    for number in range(4):
        device = pretend_nvml.add_device(name="NVIDIA A100-PCIE-40GB", total_bytes=40 * GIB)
        device.raw.numa_node = number // 2
        device.link(4, [number ^ 1] * 12)
    cluster = read_cluster("local")
    assert cluster.link(0, 1).bytes_per_s == cluster.link(2, 3).bytes_per_s == 300e9
    assert cluster.link(1, 2).kind == "PCIe, paths meet at the sockets"
    assert cluster.link(1, 2).bytes_per_s == pytest.approx(63e9, rel=0.001)
    assert not cluster.is_uniform


def test_a_driver_that_tells_no_lanes_leaves_pci_express(pretend_nvml: PretendDriver) -> None:
    for _ in range(2):
        device = pretend_nvml.add_device(name="NVIDIA L40S")
        device.fail(FunctionClass.TOPOLOGY, 3)
    assert read_cluster("local").link(0, 1).kind == "PCIe"


def test_what_cannot_be_planned_for_is_told(pretend_nvml: PretendDriver) -> None:
    with pytest.raises(SourceUnavailableError, match="reports no device"):
        read_cluster("local")
    device = pretend_nvml.add_device(name="Pretend GPU 80GB")
    with pytest.raises(UsageError, match=r"speed of GPU 0 \(Pretend GPU 80GB\) is unknown; write a cluster"):
        read_cluster("local")
    device.add_instance(GIB)
    with pytest.raises(UsageError, match="GPU 0 is split by MIG"):
        read_cluster("local")
