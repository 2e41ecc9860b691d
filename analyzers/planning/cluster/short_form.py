"""Clusters in a few characters: `128x8xh100`, `16x8xl40s:ib-hdr`, `8xa100-80gb`."""

import re

from ....engine.errors import UsageError
from .device_catalog import DeviceModel, find_device
from .limits import check_counts
from .link_catalog import find_link
from .model import Cluster, ClusterDevice, ClusterNode, Link

_SHORT = re.compile(r"^(?:(\d{1,9})x)?(\d{1,9})x([a-z][\w.-]*)(?::(.+))?$", re.IGNORECASE)


def is_short_form(text: str) -> bool:
    """Tell whether a text is `NODESxDEVICESxNAME`, or `DEVICESxNAME` for one node."""
    return _SHORT.match(text.strip()) is not None


def parse_short_form(text: str) -> Cluster:
    """Return the cluster that a short form stands for; its links are those its devices' vendor builds.

    Args:
        text: `NODESxDEVICESxNAME`, and after a colon the network, where another one is meant.

    Raises:
        UsageError: It is no short form, a name is not known, the cluster is too large, or nothing tells the
            network of several nodes.
    """
    match = _SHORT.match(text.strip())
    if match is None:
        raise UsageError(
            f"cluster {text[:60]!r} is no file; expected one, or for example 128x8xh100: nodes, devices of "
            "each, name"
        )
    nodes, devices, name, network = match.groups()
    counts = int(nodes or 1), int(devices)
    check_counts(*counts, f"cluster {text}")
    model = find_device(name)
    between = None if counts[0] == 1 else _find_network(text, name, model, network)
    return Cluster(
        name=text.strip(),
        nodes=tuple(make_node(f"node{number}", counts[1], model) for number in range(counts[0])),
        network=between,
    )


def make_node(name: str, count: int, model: DeviceModel, link: Link | None = None) -> ClusterNode:
    """Return a node of devices that are alike; with the link their vendor builds where none is given."""
    return ClusterNode(
        name=name,
        devices=tuple(make_device(name, index, model) for index in range(count)),
        link=link or find_link(model.link),
    )


def make_device(node: str, index: int, model: DeviceModel) -> ClusterDevice:
    """Return one device of a node."""
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
            f"cluster {text}: node0 and node1 have no link: nothing tells the network of {name}; "
            f"write it behind a colon, for example {text}:ib-hdr or '{text}:25 GB/s'"
        )
    return find_link(model.network)
