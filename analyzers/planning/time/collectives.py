"""Seconds of collectives on a ring, and how fast the ring of a group of ranks is.

A ring moves (n - 1) / n of a tensor in each of an all-gather and a reduce-scatter, and twice that in an
all-reduce (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
69, 2009). Its bandwidth is what NCCL's tests call bus bandwidth.
"""

from collections.abc import Sequence
from itertools import groupby, pairwise

import msgspec

from ..cluster import Cluster, Link
from .assumptions import TimeAssumptions


class Ring(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group of ranks that communicate."""

    ranks: int
    bytes_per_s: float
    """Bus bandwidth."""
    phase_latency_s: float

    def time_phase(self, size_bytes: float, parts: int = 1) -> float:
        """Return the seconds of an all-gather to, or a reduce-scatter of, so many bytes, in some parts."""
        if self.ranks == 1:
            return 0.0
        return parts * self.phase_latency_s + (self.ranks - 1) / self.ranks * size_bytes / self.bytes_per_s

    def time_all_reduce(self, size_bytes: float) -> float:
        """Return the seconds of an all-reduce."""
        return 2 * self.time_phase(size_bytes)

    def time_all_to_all(self, size_bytes: float) -> float:
        """Return the seconds in which each rank sends all but its own share of so many bytes."""
        return self.time_phase(size_bytes)

    def time_send(self, size_bytes: float) -> float:
        """Return the seconds in which a rank hands so many bytes to its neighbour."""
        return 0.0 if self.ranks == 1 else self.phase_latency_s + size_bytes / self.bytes_per_s


ALONE = Ring(ranks=1, bytes_per_s=float("inf"), phase_latency_s=0.0)


def find_ring(cluster: Cluster, positions: Sequence[int], assumptions: TimeAssumptions) -> Ring:
    """Return the ring through some devices in the order of their positions.

    Within a node it is as fast as the slowest link. Across nodes, every member on a node brings its own
    share of the network, so that the ring has as many shares as the node with the fewest members:
    Galvatron's table of two nodes has 8.1, 16.2, 20.8 and 44.7 GB/s for 1, 2, 4 and 8 members a node
    (`allreduce_bandwidth_2nodes_8gpus_per_node.json`). Bandwidths that were measured win.
    """
    ranks = len(positions)
    if ranks == 1:
        return ALONE
    if (measured := _find_measured(cluster, positions, assumptions)) is not None:
        return measured
    slowest = cluster.slowest_link(positions)
    return Ring(
        ranks=ranks,
        bytes_per_s=_count_shares(cluster, positions, slowest) * assumptions.link_share,
        phase_latency_s=assumptions.phase_latency_s + _count_latency(cluster, positions),
    )


def find_neighbours(
    cluster: Cluster, first: int, second: int, stages: int, assumptions: TimeAssumptions
) -> Ring:
    """Return the link between a rank and the one that has the same work in the next stage."""
    table = cluster.measured
    measured = None if table is None else table.point_to_point_bytes_per_s.get(stages)
    link = cluster.link(first, second)
    return Ring(
        ranks=2,
        bytes_per_s=link.bytes_per_s * assumptions.link_share if measured is None else measured,
        phase_latency_s=assumptions.phase_latency_s + link.latency_s,
    )


def _find_measured(cluster: Cluster, positions: Sequence[int], assumptions: TimeAssumptions) -> Ring | None:
    """Return the ring as it was measured: its bandwidth, and what a small all-reduce took beyond that."""
    ranks = len(positions)
    table = cluster.measured
    is_consecutive = positions[-1] - positions[0] == ranks - 1
    speed = None if table is None else table.allreduce_bytes_per_s.get((ranks, is_consecutive))
    if table is None or speed is None:
        return None
    latency_s = assumptions.phase_latency_s
    if is_consecutive and (timed := table.allreduce_s.get(ranks)):
        size_bytes, seconds = min(timed)
        latency_s = max(latency_s, seconds / 2 - (ranks - 1) / ranks * size_bytes / speed)
    return Ring(ranks=ranks, bytes_per_s=speed, phase_latency_s=latency_s)


def _count_latency(cluster: Cluster, positions: Sequence[int]) -> float:
    """Return the seconds in which the first byte goes round: all hops but the one that closes the ring."""
    return sum(cluster.link(first, second).latency_s for first, second in pairwise(positions))


def _count_shares(cluster: Cluster, positions: Sequence[int], slowest: Link) -> float:
    """Return the bandwidth of the ring: of the slowest link, or of all members' shares of the network."""
    names = [cluster.devices[at].node for at in positions]
    members = min(len(list(group)) for _, group in groupby(names))
    if names[0] == names[-1] or members == 1:
        return slowest.bytes_per_s
    inner = [
        cluster.link(first, second).bytes_per_s
        for first, second in pairwise(positions)
        if cluster.devices[first].node == cluster.devices[second].node
    ]
    return min(members * slowest.bytes_per_s, *inner)
