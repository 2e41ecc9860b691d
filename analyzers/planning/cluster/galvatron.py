"""Clusters that Galvatron's hardware profiler measured."""

from collections.abc import Sequence

from ....engine.errors import UsageError
from ....engine.files.galvatron import HardwareFolder, HardwareProfile
from .device_catalog import find_device
from .link_catalog import NETWORK_LATENCY_S, NVLINK_LATENCY_S
from .model import Cluster, CollectiveTable, Link
from .short_form import make_node


def make_collective_table(folder: HardwareFolder, nodes: int, devices_per_node: int) -> CollectiveTable:
    """Return what was measured on a cluster of a shape, or on the nearest to it.

    Where none is of the shape, that is the largest cluster with as many devices in a node; where there is
    none either, the largest. Times by size are of one node, and may stand in another file.
    """
    alike = [each for each in folder.profiles if each.devices_per_node == devices_per_node]
    exact = [each for each in alike if each.nodes == nodes]
    profile = (exact or alike or folder.profiles)[0]
    timed = next((each for each in (profile, *alike) if each.allreduce_s or each.all_to_all_s), profile)
    return CollectiveTable(
        allreduce_bytes_per_s=profile.allreduce_bytes_per_s,
        point_to_point_bytes_per_s=profile.point_to_point_bytes_per_s,
        overlap_slowdown=folder.overlap_slowdown,
        allreduce_s=timed.allreduce_s,
        all_to_all_s=timed.all_to_all_s,
        measured_on=f"{profile.nodes} nodes of {profile.devices_per_node} devices",
    )


def make_measured_cluster(folder: HardwareFolder, device: str, name: str) -> Cluster:
    """Return the largest cluster that was measured, with devices of a name: the profiles do not tell them.

    Raises:
        UsageError: The device is not known, or no bandwidth was measured that a link could have.
    """
    model = find_device(device)
    largest = folder.profiles[0]
    single = [each for each in folder.profiles if each.nodes == 1] or [largest]
    link = _find_link(single, largest.devices_per_node, NVLINK_LATENCY_S, name)
    nodes = tuple(
        make_node(f"node{number}", largest.devices_per_node, model, link) for number in range(largest.nodes)
    )
    between = [each for each in folder.profiles if each.nodes > 1]
    network = _find_link(between, largest.devices_per_node, NETWORK_LATENCY_S, name) if between else None
    return Cluster(
        name=name,
        nodes=nodes,
        network=network,
        measured=make_collective_table(folder, largest.nodes, largest.devices_per_node),
    )


def _find_link(
    profiles: Sequence[HardwareProfile], devices_per_node: int, latency_s: float, name: str
) -> Link:
    """Return a link of the bandwidth between two pipeline stages, else of an all-reduce over all ranks."""
    profile = next((each for each in profiles if each.devices_per_node == devices_per_node), profiles[0])
    sent = profile.point_to_point_bytes_per_s
    reduced = {ranks: value for (ranks, _), value in sorted(profile.allreduce_bytes_per_s.items())}
    if sent:
        return Link(bytes_per_s=sent[min(sent)], latency_s=latency_s, kind="measured")
    if reduced:
        return Link(bytes_per_s=reduced[max(reduced)], latency_s=latency_s, kind="measured")
    raise UsageError(f"{name}: neither p2p_bandwidth_… nor allreduce_bandwidth_… is there; expected one")
