"""Builds a cluster from a cluster file: names looked up, nodes counted out, every two devices linked."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from math import inf, isfinite
from typing import Protocol

from msgspec.structs import replace

from ....engine.errors import InputFileError, UsageError
from ....engine.files.base.toml_text import KeyLines
from ....engine.files.cluster_file import ClusterEntry, DeviceEntry, LinkEntry, NodeEntry, OwnLinkEntry
from ....engine.files.galvatron import HardwareFolder, HardwareProfile
from ....engine.sources.source import NodeTopology, TopologyDevice, TopologyPair
from ....engine.units import parse_bytes
from .model import (
    MOST_DEVICES,
    NETWORK_LATENCY_S,
    NVLINK_LATENCY_S,
    PCIE_LATENCY_S,
    Cluster,
    ClusterDevice,
    ClusterNode,
    CollectiveTable,
    DeviceModel,
    Link,
    check_counts,
    find_device,
    find_link,
    parse_bandwidth,
    parse_latency,
    recognise_device,
)

LONGEST_NAME = 100


def build_cluster(entry: ClusterEntry, source: KeyLines) -> Cluster:
    """Build the cluster that a file describes.

    Raises:
        InputFileError: A name is not known, a number is impossible, two devices have no link, or there are
            too
            many devices; the text has the file and the key.
    """
    nodes = _make_nodes(entry, source)
    with _at(source, "network"):
        network = None if entry.network is None else read_link(entry.network)
    links, node_links = _read_own_links(entry.links, nodes, source)
    cluster = Cluster(
        name=entry.name or source.shown,
        nodes=nodes,
        network=network,
        links=links,
        node_links=node_links,
    )
    _check_linked(cluster, source)
    return cluster


def read_link(entry: str | LinkEntry) -> Link:
    """Read a link from its name, its bandwidth, or its numbers.

    Raises:
        UsageError: The name is not known, or a number is impossible.
    """
    if isinstance(entry, str):
        return find_link(entry)
    latency_s = 0.0 if entry.latency is None else parse_latency(entry.latency)
    return Link(bytes_per_s=parse_bandwidth(entry.bandwidth), latency_s=latency_s, kind=entry.kind)


def _make_nodes(entry: ClusterEntry, source: KeyLines) -> tuple[ClusterNode, ...]:
    nodes: dict[str, ClusterNode] = {}
    devices = 0
    for number, group in enumerate(entry.nodes):
        with _at(source, f"nodes[{number}]"):
            for name in _list_names(group, len(nodes)):
                _check_name(name, nodes)
                nodes[name] = node = _make_node(group, name)
                devices += len(node.devices)
                if devices > MOST_DEVICES:
                    raise UsageError(
                        f"more than {MOST_DEVICES:,} devices in total; expected at most that many"
                    )
    if not nodes:
        raise InputFileError(f"{source.place('nodes')}: expected at least one [[nodes]]")
    return tuple(nodes.values())


def _check_name(name: str, known: Collection[str]) -> None:
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or ":" in name:
        raise UsageError(
            f"node {name[:LONGEST_NAME]!r}: expected 1 to {LONGEST_NAME} printable characters without a colon"
        )
    if name in known:
        raise UsageError(f"node {name!r} appears twice; give each a unique name")


def _list_names(group: NodeEntry, earlier: int) -> list[str]:
    if group.names is not None:
        if group.name is not None or group.count is not None:
            raise UsageError("names cannot be combined with name or count: give only names")
        return list(group.names)
    count = 1 if group.count is None else group.count
    if not 1 <= count <= MOST_DEVICES:
        raise UsageError(f"count is {count:,}; expected 1 to {MOST_DEVICES:,}")
    if group.name is None:
        return [f"node{earlier + number}" for number in range(count)]
    return [group.name] if group.count is None else [f"{group.name}{number}" for number in range(count)]


def _make_node(group: NodeEntry, name: str) -> ClusterNode:
    devices, usual = make_devices(group, name)
    if group.link is not None:
        return ClusterNode(name=name, devices=devices, link=read_link(group.link))
    if usual is not None:
        return ClusterNode(name=name, devices=devices, link=find_link(usual))
    if len(devices) == 1:
        return ClusterNode(name=name, devices=devices, link=Link(bytes_per_s=inf))
    raise UsageError(
        f'{name}:0 and {name}:1 have no link: write link, for example link = "pcie4" or link = "25 GB/s"'
    )


def _read_own_links(
    entries: tuple[OwnLinkEntry, ...], nodes: tuple[ClusterNode, ...], source: KeyLines
) -> tuple[dict[tuple[int, int], Link], dict[tuple[str, str], Link]]:
    """Return links of their own between devices, by position, and between nodes, by name."""
    order = {node.name: number for number, node in enumerate(nodes)}
    positions: dict[str, int] = {}
    if entries:
        devices = [device for node in nodes for device in node.devices]
        positions = {f"{device.node}:{device.local_index}": at for at, device in enumerate(devices)}
    links: dict[tuple[int, int], Link] = {}
    node_links: dict[tuple[str, str], Link] = {}
    for number, entry in enumerate(entries):
        with _at(source, f"links[{number}]"):
            first, second = entry.between
            link = read_link(entry.link)
            if first == second:
                raise UsageError(f"between {first} and itself; expected two different ends")
            if first in order and second in order:
                first, second = sorted((first, second), key=order.__getitem__)
                node_links[first, second] = link
            elif first in positions and second in positions:
                low, high = sorted((positions[first], positions[second]))
                links[low, high] = link
            else:
                raise UsageError(_explain_ends((first, second), order, positions))
    return links, node_links


def _explain_ends(ends: tuple[str, str], nodes: dict[str, int], devices: dict[str, int]) -> str:
    lost = [end for end in ends if end not in nodes and end not in devices]
    if not lost:
        return f"between {ends[0]} and {ends[1]}: one is a node and one a device; expected two alike"
    first = next(iter(nodes))
    return f"{lost[0]!r} is neither a node nor a device; expected a node ({first}) or a device ({first}:0)"


def _check_linked(cluster: Cluster, source: KeyLines) -> None:
    """Refuse two nodes without a link; a network links all."""
    if cluster.network is not None:
        return
    for first, second in combinations(cluster.nodes, 2):
        pair = (first.name, second.name)
        if pair not in cluster.node_links:
            raise InputFileError(
                f'{source.shown}: {pair[0]} and {pair[1]} have no link: write network = "ib-ndr" or a '
                f'bandwidth for all nodes, or [[links]] with between = ["{pair[0]}", "{pair[1]}"] and link'
            )


@contextmanager
def _at(source: KeyLines, key: str) -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise InputFileError(f"{source.place(key)}: {error}") from None


MOST_TFLOPS = 1e6
MOST_MEMORY_BYTES = 1 << 50


def make_devices(group: NodeEntry, node: str) -> tuple[tuple[ClusterDevice, ...], str | None]:
    """Return the devices of a node, and the name of their usual link.

    The link is None where devices have none in common, or no name.

    Raises:
        UsageError: A name is not known, or a number is missing or impossible.
    """
    devices: list[ClusterDevice] = []
    links: set[str | None] = set()
    for entry in _list_entries(group):
        check_counts(1, entry.count, "devices")
        model = None if entry.device is None else find_device(entry.device, can_describe=True)
        links.add(None if model is None else model.link)
        first = len(devices)
        kind = _make_device(entry, model, node)
        devices += [replace(kind, local_index=first + number) for number in range(entry.count)]
    check_counts(1, len(devices), "devices")
    return tuple(devices), links.pop() if len(links) == 1 else None


def _list_entries(group: NodeEntry) -> tuple[DeviceEntry, ...]:
    if isinstance(group.devices, int):
        return (
            DeviceEntry(
                device=group.device,
                count=group.devices,
                memory=group.memory,
                tflops=group.tflops,
                memory_bandwidth=group.memory_bandwidth,
                kind=group.kind,
            ),
        )
    alone = ("device", "memory", "tflops", "memory_bandwidth", "kind")
    clashing = [name for name in alone if getattr(group, name) is not None]
    if clashing:
        raise UsageError(f"{clashing[0]} cannot be combined with a list of devices: write it in the list")
    return group.devices


def _make_device(entry: DeviceEntry, model: DeviceModel | None, node: str) -> ClusterDevice:
    memory = model.memory_bytes if model else None
    flops = model.flops_per_s if model else None
    bandwidth = model.memory_bytes_per_s if model else None
    if entry.memory is not None:
        memory = entry.memory if isinstance(entry.memory, int) else parse_bytes(entry.memory)
    if entry.tflops is not None:
        flops = entry.tflops * 1e12
    if entry.memory_bandwidth is not None:
        bandwidth = parse_bandwidth(entry.memory_bandwidth)
    if memory is None or flops is None:
        missing = "memory" if memory is None else "tflops"
        raise UsageError(
            f'neither device nor {missing} is given: write device = "h100", or memory and tflops'
        )
    _check_figures(memory, flops)
    return ClusterDevice(
        node=node,
        local_index=0,
        kind=entry.kind or (model.kind if model else None),
        memory_bytes=memory,
        flops_per_s=flops,
        memory_bytes_per_s=bandwidth,
    )


def _check_figures(memory: int, flops: float) -> None:
    if not 0 < memory <= MOST_MEMORY_BYTES:
        raise UsageError(f"memory is {memory:,} bytes; expected above 0 and at most 1 PiB")
    if not (isfinite(flops) and 0 < flops <= MOST_TFLOPS * 1e12):
        raise UsageError(f"tflops is {flops / 1e12:g}; expected above 0 and at most {MOST_TFLOPS:,.0f}")


# Clusters in a few characters: `128x8xh100`, `16x8xl40s:ib-hdr`, `8xa100-80gb`.

_SHORT = re.compile(r"^(?:(\d{1,9})x)?(\d{1,9})x([a-z][\w.-]*)(?::(.+))?$", re.IGNORECASE)


def is_short_form(text: str) -> bool:
    """Return whether a text is `NODESxDEVICESxNAME`, or `DEVICESxNAME` for one node."""
    return _SHORT.match(text.strip()) is not None


def parse_short_form(text: str) -> Cluster:
    """Return the cluster of a short form; its links are those its devices' vendor builds.

    Args:
        text: `NODESxDEVICESxNAME`, and after a colon the network, where it is not the vendor's.

    Raises:
        UsageError: It is no short form, a name is not known, the cluster is too large, or the network of
            several nodes is unknown.
    """
    match = _SHORT.match(text.strip())
    if match is None:
        raise UsageError(
            f"cluster {text[:60]!r} is not a file; expected one, or for example 128x8xh100: nodes, "
            "devices of each, name"
        )
    nodes, devices, name, network = match.groups()
    counts = int(nodes or 1), int(devices)
    check_counts(*counts, f"cluster {text}")
    model = find_device(name, can_describe=True)
    between = None if counts[0] == 1 else _find_network(text, name, model, network)
    return Cluster(
        name=text.strip(),
        nodes=tuple(make_node(f"node{number}", counts[1], model) for number in range(counts[0])),
        network=between,
    )


def make_node(name: str, count: int, model: DeviceModel, link: Link | None = None) -> ClusterNode:
    """Make a node of devices that are alike; link None is the one that their vendor builds."""
    return ClusterNode(
        name=name,
        devices=tuple(make_device(name, index, model) for index in range(count)),
        link=link or find_link(model.link),
    )


def make_device(node: str, index: int, model: DeviceModel) -> ClusterDevice:
    return ClusterDevice(
        node=node,
        local_index=index,
        kind=model.kind,
        memory_bytes=model.memory_bytes,
        flops_per_s=model.flops_per_s,
        memory_bytes_per_s=model.memory_bytes_per_s,
    )


def _find_network(text: str, name: str, model: DeviceModel, network: str | None) -> Link:
    if network is not None:
        return find_link(network)
    if model.network is None:
        raise UsageError(
            f"cluster {text}: node0 and node1 have no link: the network of {name} is unknown; write it "
            f"after a colon, for example {text}:ib-hdr or '{text}:25 GB/s'"
        )
    return find_link(model.network)


# Clusters that Galvatron's hardware profiler measured.


def make_collective_table(folder: HardwareFolder, nodes: int, devices_per_node: int) -> CollectiveTable:
    """Return the measurements of a cluster of a shape, or of the nearest to it.

    The nearest is the largest cluster with as many devices in a node, else the largest. Times by size are of
    one
    node, and may be in a different file.
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
    """Return the largest cluster that was measured; the profiles do not name its devices.

    Raises:
        UsageError: The device is not known, or no bandwidth was measured that a link could have.
    """
    model = find_device(device, can_describe=True)
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
    """Return a link with the bandwidth between two pipeline stages, else of an all-reduce over all ranks."""
    profile = next((each for each in profiles if each.devices_per_node == devices_per_node), profiles[0])
    sent = profile.point_to_point_bytes_per_s
    reduced = {ranks: value for (ranks, _), value in sorted(profile.allreduce_bytes_per_s.items())}
    if sent:
        return Link(bytes_per_s=sent[min(sent)], latency_s=latency_s, kind="measured")
    if reduced:
        return Link(bytes_per_s=reduced[max(reduced)], latency_s=latency_s, kind="measured")
    raise UsageError(f"{name}: neither p2p_bandwidth_… nor allreduce_bandwidth_… is there; expected one")


# The cluster of this one node, from what its driver reports.

# GB/s of a lane one way after encoding, by generation (PCI-SIG).

_PCIE_LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# GB/s of a lane one way, by NVML's number of the version; those between have 25 (NVIDIA's data sheets).
_NVLINK_LANE_GB_PER_S = {1: 20.0, 7: 50.0}


def make_local_cluster(topology: NodeTopology, node: str) -> Cluster:
    """Return the cluster of one node: memory and links from its driver, speed from the data sheets.

    Raises:
        UsageError: The speed of a device, or the link between two, is unknown.
    """
    devices = tuple(_make_local_device(device, node, index) for index, device in enumerate(topology.devices))
    links = {(pair.first, pair.second): _make_link(topology, pair) for pair in topology.pairs}
    usual = Counter(links.values()).most_common(1)[0][0] if links else Link(bytes_per_s=float("inf"))
    own = {ends: link for ends, link in links.items() if link != usual}
    made = ClusterNode(name=node, devices=devices, link=usual)
    return Cluster(name=f"{node}, as reported by its driver", nodes=(made,), links=own)


def _make_local_device(device: TopologyDevice, node: str, index: int) -> ClusterDevice:
    model = recognise_device(device.name)
    if model is None:
        raise UsageError(
            f"the speed of GPU {index} ({device.name}) is unknown; write a cluster file with its "
            "memory and tflops"
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
            f"the link of GPU {pair.first} and GPU {pair.second} is unknown; write a cluster file with link"
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


# A cluster as a graph of NetworkX, which is imported where one is made.

# Vertex of the network between all nodes.

NETWORK = "network"

Vertex = int | tuple[str, str]


class Graph(Protocol):
    """The used part of NetworkX's graph of that name, which carries no types."""

    def add_node(self, vertex: Vertex, *, device: ClusterDevice | None = None) -> None: ...

    def add_edge(self, first: Vertex, second: Vertex, *, link: Link, bytes_per_s: float) -> None: ...

    def __len__(self) -> int: ...


def make_networkx_graph(cluster: Cluster) -> Graph:
    """Return a cluster as an undirected `networkx.Graph`.

    Vertices are the devices, by position; `("node", NAME)` for the links inside a node; and
    `("network", NAME)` for the links between nodes: stars, because an edge for each two of a thousand devices
    would be half a million. A device has the attribute `device`, an edge `link` and `bytes_per_s`; links of
    their
    own between two devices or two nodes are additional edges. `Cluster.link` says which one counts.
    """
    import networkx

    graph: Graph = networkx.Graph(name=cluster.name)
    position = 0
    for node in cluster.nodes:
        hub = ("node", node.name)
        graph.add_node(hub)
        for device in node.devices:
            graph.add_node(position, device=device)
            _link(graph, position, hub, node.link)
            position += 1
        if cluster.network is not None and len(cluster.nodes) > 1:
            _link(graph, hub, (NETWORK, cluster.name), cluster.network)
    for (first, second), link in cluster.links.items():
        _link(graph, first, second, link)
    for (source, target), link in cluster.node_links.items():
        _link(graph, ("node", source), ("node", target), link)
    return graph


def _link(graph: Graph, first: Vertex, second: Vertex, link: Link) -> None:
    graph.add_edge(first, second, link=link, bytes_per_s=link.bytes_per_s)
