"""Screens of many nodes: the fleet, the cluster, the list of nodes."""
