"""The hardware that a plan is for: devices, and the links that data between them takes."""

from .building import (
    build_cluster,
    is_short_form,
    make_collective_table,
    make_measured_cluster,
    make_networkx_graph,
    parse_short_form,
)
from .model import (
    DEVICES,
    LINKS,
    Cluster,
    ClusterDevice,
    ClusterNode,
    CollectiveTable,
    DeviceModel,
    Link,
    find_device,
    find_link,
    parse_bandwidth,
)

__all__ = [
    "DEVICES",
    "LINKS",
    "Cluster",
    "ClusterDevice",
    "ClusterNode",
    "CollectiveTable",
    "DeviceModel",
    "Link",
    "build_cluster",
    "find_device",
    "find_link",
    "is_short_form",
    "make_collective_table",
    "make_measured_cluster",
    "make_networkx_graph",
    "parse_bandwidth",
    "parse_short_form",
]
