"""A cluster of what a cluster file says: names looked up, nodes counted out, every two devices linked."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import combinations
from math import inf, isfinite

from msgspec.structs import replace

from ....engine.errors import InputFileError, UsageError
from ....engine.files.base.toml_text import KeyLines
from ....engine.files.cluster_file import ClusterEntry, DeviceEntry, LinkEntry, NodeEntry, OwnLinkEntry
from ....engine.units import parse_bytes
from .device_catalog import DeviceModel, find_device
from .limits import MOST_DEVICES, check_counts
from .link_catalog import find_link, parse_bandwidth, parse_latency
from .model import Cluster, ClusterDevice, ClusterNode, Link

LONGEST_NAME = 100


def build_cluster(entry: ClusterEntry, source: KeyLines) -> Cluster:
    """Return the cluster that a file describes.

    Args:
        entry: What the file says.
        source: The file, as errors name it, and where its keys stand.

    Raises:
        InputFileError: A name is not known, a figure cannot be, two devices have no link, or there are too
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
    """Return a link by its name, its bandwidth, or its figures.

    Raises:
        UsageError: The name is not known, or a figure cannot be.
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
                    raise UsageError(f"more than {MOST_DEVICES:,} devices in all; expected at most so many")
    if not nodes:
        raise InputFileError(f"{source.place('nodes')}: expected at least one [[nodes]]")
    return tuple(nodes.values())


def _check_name(name: str, known: Collection[str]) -> None:
    if not 0 < len(name) <= LONGEST_NAME or not name.isprintable() or ":" in name:
        raise UsageError(
            f"node {name[:LONGEST_NAME]!r}: expected 1 to {LONGEST_NAME} printable characters without a colon"
        )
    if name in known:
        raise UsageError(f"node {name!r} is there twice; give each a name of its own")


def _list_names(group: NodeEntry, earlier: int) -> list[str]:
    if group.names is not None:
        if group.name is not None or group.count is not None:
            raise UsageError("names does not go with name or count: give the names alone")
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
        positions = {_name_device(device): at for at, device in enumerate(devices)}
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


def _name_device(device: ClusterDevice) -> str:
    return f"{device.node}:{device.local_index}"


def _explain_ends(ends: tuple[str, str], nodes: dict[str, int], devices: dict[str, int]) -> str:
    lost = [end for end in ends if end not in nodes and end not in devices]
    if not lost:
        return f"between {ends[0]} and {ends[1]}: one is a node and one a device; expected two alike"
    first = next(iter(nodes))
    return f"{lost[0]!r} is no node and no device; expected a node ({first}) or a device ({first}:0)"


def _check_linked(cluster: Cluster, source: KeyLines) -> None:
    """Refuse two nodes that nothing links; a network links all."""
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
    """Return the devices of a node, and the name of the link that they usually have.

    The link is None where devices have none in common, or no name.

    Raises:
        UsageError: A name is not known, or a figure is missing or cannot be.
    """
    devices: list[ClusterDevice] = []
    links: set[str | None] = set()
    for entry in _list_entries(group):
        check_counts(1, entry.count, "devices")
        model = None if entry.device is None else find_device(entry.device)
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
    beside = [name for name in alone if getattr(group, name) is not None]
    if beside:
        raise UsageError(f"{beside[0]} does not go with a list of devices: write it in the list")
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
