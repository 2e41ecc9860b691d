"""The hardware that a plan is for: devices, and the links that data between them takes."""

from .building import build_cluster
from .device_catalog import DEVICES, DeviceModel, find_device
from .galvatron import make_collective_table, make_measured_cluster
from .link_catalog import LINKS, find_link, parse_bandwidth
from .model import Cluster, ClusterDevice, ClusterNode, CollectiveTable, Link
from .networkx_view import make_networkx_graph
from .short_form import is_short_form, parse_short_form

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
