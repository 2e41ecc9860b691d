"""A cluster as a graph: nodes of devices, links within a node, links between nodes."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import msgspec


class Link(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What one device gets on its way to another."""

    bytes_per_s: float
    """One way, of one device."""
    latency_s: float = 0.0
    """Before the first byte arrives."""
    kind: str | None = None
    """For example `NVLink`, `PCIe`, `InfiniBand`; None where nobody tells."""


class ClusterDevice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One device."""

    node: str
    """Name of the node that it is in."""
    local_index: int
    """Among the devices of its node."""
    kind: str | None = None
    """For example `H100 80GB`; None where nobody tells."""
    memory_bytes: int
    flops_per_s: float
    """Dense matrix products in 16 bits, at most."""
    memory_bytes_per_s: float | None = None
    """Of its own memory, at most; None where nobody tells."""


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    name: str
    devices: tuple[ClusterDevice, ...]
    link: Link
    """Between two devices of the node that have no link of their own in `Cluster.links`."""


class CollectiveTable(msgspec.Struct, frozen=True, kw_only=True):
    """Bandwidths that were measured with groups of devices, as Galvatron's profiler has them."""

    allreduce_bytes_per_s: Mapping[tuple[int, bool], float]
    """By number of ranks n, and whether they are consecutive: bus bandwidth as nccl-tests tells it, which is
    2 (n - 1) / n of the tensor's bytes over the seconds that it took."""
    point_to_point_bytes_per_s: Mapping[int, float]
    """By number of pipeline stages."""
    overlap_slowdown: float | None = None
    """How much longer computing takes while something is sent (1.1: a tenth longer)."""
    allreduce_s: Mapping[int, tuple[tuple[int, float], ...]] = {}
    """By number of consecutive ranks: bytes of the tensor and seconds, the smaller tensors first."""
    all_to_all_s: Mapping[int, tuple[tuple[int, float], ...]] = {}
    """The same of an all-to-all."""
    measured_on: str | None = None
    """Cluster that it is of, for example `2 nodes of 8 devices`."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The devices of a cluster in the order of ranks: node by node, device by device."""

    name: str
    nodes: tuple[ClusterNode, ...]
    network: Link | None = None
    """Between devices of two nodes that have no link of their own; None where there is one node only."""
    links: Mapping[tuple[int, int], Link] = {}
    """Links of their own between two devices, by their positions in `devices`, the smaller first."""
    node_links: Mapping[tuple[str, str], Link] = {}
    """Links of their own between two nodes, by name, in the order of `nodes`."""
    measured: CollectiveTable | None = None

    @cached_property
    def devices(self) -> tuple[ClusterDevice, ...]:
        """All devices, in the order of ranks."""
        return tuple(device for node in self.nodes for device in node.devices)

    @cached_property
    def is_uniform(self) -> bool:
        """Whether any two devices could change places: alike, in nodes alike, all links alike."""
        kinds = {(each.kind, each.memory_bytes, each.flops_per_s) for each in self.devices}
        shapes = {(len(node.devices), node.link) for node in self.nodes}
        return len(kinds) == 1 and len(shapes) == 1 and not self.links and not self.node_links

    def link(self, first: int, second: int) -> Link:
        """Return the link between two devices, by their positions.

        Raises:
            KeyError: There is none; a cluster that was read has one between any two (`read_cluster`).
        """
        low = min(first, second)
        high = max(first, second)
        if (own := self.links.get((low, high))) is not None:
            return own
        source = self.devices[low].node
        target = self.devices[high].node
        if source == target:
            return self._nodes_by_name[source].link
        between = self.node_links.get((source, target), self.network)
        if between is None:
            raise KeyError(f"{source} and {target} have no link")
        return between

    def slowest_link(self, positions: Sequence[int]) -> Link:
        """Return the slowest link of a ring through some devices in their order; of two or more."""
        ring = [*pairwise(positions), (positions[-1], positions[0])]
        return min((self.link(first, second) for first, second in ring), key=lambda link: link.bytes_per_s)

    @cached_property
    def _nodes_by_name(self) -> dict[str, ClusterNode]:
        return {node.name: node for node in self.nodes}
