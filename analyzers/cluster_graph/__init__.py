"""The hardware that a plan is for: devices, and the links that data between them takes."""

from .device_catalog import DEVICES, DeviceModel, find_device
from .link_catalog import LINKS, find_link, parse_bandwidth
from .model import Cluster, ClusterDevice, ClusterNode, CollectiveTable, Link
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
    "find_device",
    "find_link",
    "is_short_form",
    "parse_bandwidth",
    "parse_short_form",
]
