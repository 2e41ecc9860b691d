"""A cluster as a graph of NetworkX, which is imported where one is made."""

from typing import Protocol

from .model import Cluster, ClusterDevice, Link

NETWORK = "network"
"""Vertex that stands for the network between all nodes."""

Vertex = int | tuple[str, str]


class Graph(Protocol):
    """What is used of NetworkX's graph of that name, which carries no types."""

    def add_node(self, vertex: Vertex, *, device: ClusterDevice | None = None) -> None:
        """Add a vertex."""

    def add_edge(self, first: Vertex, second: Vertex, *, link: Link, bytes_per_s: float) -> None:
        """Add an edge."""

    def __len__(self) -> int: ...


def make_networkx_graph(cluster: Cluster) -> Graph:
    """Return a cluster as an undirected `networkx.Graph`.

    Vertices are the devices, by position; `("node", NAME)` for what links the devices of a node; and
    `("network", NAME)` for what links nodes: stars, because an edge for each two of a thousand devices would
    be half a million. A device has the attribute `device`, an edge `link` and `bytes_per_s`; links of their
    own between two devices or two nodes are edges besides. `Cluster.link` says which one counts.
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
