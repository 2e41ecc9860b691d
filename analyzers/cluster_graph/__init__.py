"""The hardware that a plan is for: devices, and the links that data between them takes."""

from .model import Cluster, ClusterDevice, ClusterNode, CollectiveTable, Link

__all__ = ["Cluster", "ClusterDevice", "ClusterNode", "CollectiveTable", "Link"]
