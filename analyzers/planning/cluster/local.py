"""The cluster that one node is, from what its driver tells."""

from collections import Counter

from ....engine.errors import UsageError
from ....engine.sources.source import NodeTopology, TopologyDevice, TopologyPair
from .device_catalog import recognise_device
from .link_catalog import NVLINK_LATENCY_S, PCIE_LATENCY_S
from .model import Cluster, ClusterDevice, ClusterNode, Link

_PCIE_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""Of a lane one way after encoding, by generation (PCI-SIG)."""
_NVLINK_LANE_GB_PER_S = {1: 20.0, 7: 50.0}
"""Of a lane one way, by NVML's number of the version; those between have 25 (NVIDIA's data sheets)."""


def make_local_cluster(topology: NodeTopology, node: str) -> Cluster:
    """Return the cluster of one node: memory and links as its driver tells, speed from the data sheets.

    Args:
        topology: What the driver tells.
        node: Name of the node.

    Raises:
        UsageError: The speed of a device is not known, or nothing tells what links two of them.
    """
    devices = tuple(_make_device(device, node, index) for index, device in enumerate(topology.devices))
    links = {(pair.first, pair.second): _make_link(topology, pair) for pair in topology.pairs}
    usual = Counter(links.values()).most_common(1)[0][0] if links else Link(bytes_per_s=float("inf"))
    own = {ends: link for ends, link in links.items() if link != usual}
    made = ClusterNode(name=node, devices=devices, link=usual)
    return Cluster(name=f"{node}, as its driver tells", nodes=(made,), links=own)


def _make_device(device: TopologyDevice, node: str, index: int) -> ClusterDevice:
    model = recognise_device(device.name)
    if model is None:
        raise UsageError(
            f"the speed of GPU {index} ({device.name}) is not known; write a cluster file with its memory "
            "and tflops"
        )
    return ClusterDevice(
        node=node,
        local_index=index,
        kind=device.name,
        memory_bytes=device.total_bytes,
        flops_per_s=model.flops_per_s,
        memory_bytes_per_s=model.memory_bytes_per_s,
    )


def _make_link(topology: NodeTopology, pair: TopologyPair) -> Link:
    ends = topology.devices[pair.first], topology.devices[pair.second]
    if pair.lanes:
        per_lane = min(_rate_lane(device) for device in ends)
        kind = f"NVLink, {pair.lanes} lanes"
        return Link(bytes_per_s=1e9 * per_lane * pair.lanes, latency_s=NVLINK_LATENCY_S, kind=kind)
    rates = [_rate_pcie(device) for device in ends]
    if None in rates:
        raise UsageError(
            f"nothing tells what links GPU {pair.first} and GPU {pair.second}; write a cluster file with link"
        )
    kind = "PCIe" if pair.meeting is None else f"PCIe, paths meet at the {pair.meeting}"
    return Link(bytes_per_s=min(rate for rate in rates if rate), latency_s=PCIE_LATENCY_S, kind=kind)


def _rate_lane(device: TopologyDevice) -> float:
    model = recognise_device(device.name)
    if model is not None and model.link == "nvlink5":
        return 50.0
    return _NVLINK_LANE_GB_PER_S.get(device.nvlink_version or 0, 25.0)


def _rate_pcie(device: TopologyDevice) -> float | None:
    per_lane = _PCIE_LANE_GB_PER_S.get(device.pcie_generation or 0)
    return None if per_lane is None or not device.pcie_lanes else 1e9 * per_lane * device.pcie_lanes
