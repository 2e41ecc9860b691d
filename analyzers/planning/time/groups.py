"""The rings of each pipeline stage: who talks to whom, and how fast."""

from collections.abc import Sequence
from itertools import groupby, pairwise

import msgspec

from ..cluster import DEVICES, Cluster, ClusterDevice, Link
from ..cluster.model import recognise_device
from ..theory import ParallelLayout

# Assumptions of the time model, used where nothing was measured: shares of peaks, latencies, overlap.

# Share of a device's peak that large matrix products in 16 bits reach: from one layer of llama2-7b with which
# Galvatron profiled an A100 (`computation_profiling_bf16_llama2-7b_all.json`): 0.70 with one sequence of
# 2,048 tokens (4.40 ms forward), 0.77 with twelve (3.92 ms each).

PRODUCT_EFFICIENCY = 0.75
# Share of the peak that fused attention reaches: 50 to 73 % forward on A100 (FlashAttention-2, arXiv
# 2307.08691, section 4).
ATTENTION_EFFICIENCY = 0.5
# Share of a memory's bandwidth that kernels reach which do little but read and write.
BANDWIDTH_SHARE = 0.8
# Share of a link's bandwidth that collectives reach: rings of 8 A100 reach 231 of 300 GB/s in Galvatron's
# `sp_time` files (1 GiB all-reduced in 8.14 ms).
LINK_SHARE = 0.77
# For a device whose memory bandwidth is unknown: A100 has 153 FLOP a byte, H100 295.
FLOPS_PER_BYTE = 200.0
# Latency of an all-gather or a reduce-scatter, on top of the links' own latency at each hop; an all-reduce is
# both. 1 MiB takes 79 us among 8 A100 in Galvatron's `sp_time` files: 8 us its bytes, 48 us two times seven
# hops of NVLink.
PHASE_LATENCY_S = 10e-6
# Seconds to launch one operation on the host, without CUDA graphs.
LAUNCH_S = 10e-6
# How much longer computing takes while something is sent: `overlap_coefficient.json` of Galvatron, on A100.
OVERLAP_SLOWDOWN = 1.13


class TimeAssumptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a time model takes as given."""

    product_efficiency: float = PRODUCT_EFFICIENCY
    """Share of the peak that large matrix products reach; small ones reach less by their tiles and
    bytes.
    """
    attention_efficiency: float = ATTENTION_EFFICIENCY
    bandwidth_share: float = BANDWIDTH_SHARE
    link_share: float = LINK_SHARE
    """Not applied to bandwidths that were measured."""
    phase_latency_s: float = PHASE_LATENCY_S
    launch_s: float = LAUNCH_S
    overlaps_gradients: bool = True
    """Whether collectives of gradients and weights run while the device computes, as far as there is
    time."""
    overlap_slowdown: float = OVERLAP_SLOWDOWN
    factor: float = 1.0
    """All times are multiplied by this; learnt from runs, else 1."""
    calibration: str | None = None
    """What it was learnt from; None for nothing."""


# Dense matrix products in 16 bits, at most.


class DeviceSpeed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    flops_per_s: float
    memory_bytes_per_s: float
    # Tiles of a product that run at once; None where unknown.
    multiprocessors: int | None = None


def describe_speed(device: ClusterDevice) -> DeviceSpeed:
    kind = device.kind or ""
    model = next((it for it in DEVICES.values() if it.kind == kind), None) or recognise_device(kind)
    return DeviceSpeed(
        flops_per_s=device.flops_per_s,
        memory_bytes_per_s=device.memory_bytes_per_s or device.flops_per_s / FLOPS_PER_BYTE,
        multiprocessors=None if model is None else model.multiprocessors,
    )


# Seconds of collectives on a ring, and how fast the ring of a group of ranks is.

# A ring moves (n - 1) / n of a tensor in each of an all-gather and a reduce-scatter, and twice that in an
# all-reduce (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
# 69, 2009). Its bandwidth is what NCCL's tests call bus bandwidth.


class Ring(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A group of ranks that communicate."""

    ranks: int
    # Bus bandwidth.
    bytes_per_s: float
    phase_latency_s: float

    def time_phase(self, size_bytes: float, parts: int = 1) -> float:
        """Return the seconds of an all-gather to, or a reduce-scatter of, so many bytes, in some parts."""
        if self.ranks == 1:
            return 0.0
        return parts * self.phase_latency_s + (self.ranks - 1) / self.ranks * size_bytes / self.bytes_per_s

    def time_all_reduce(self, size_bytes: float) -> float:
        return 2 * self.time_phase(size_bytes)

    def time_all_to_all(self, size_bytes: float) -> float:
        return self.time_phase(size_bytes)

    def time_send(self, size_bytes: float) -> float:
        return 0.0 if self.ranks == 1 else self.phase_latency_s + size_bytes / self.bytes_per_s


ALONE = Ring(ranks=1, bytes_per_s=float("inf"), phase_latency_s=0.0)


def find_ring(cluster: Cluster, positions: Sequence[int], assumptions: TimeAssumptions) -> Ring:
    """Return the ring through some devices in the order of their positions.

    Within a node it is as fast as the slowest link. Across nodes, every member on a node brings its own
    share of the network, so that the ring has as many shares as the node with the fewest members:
    Galvatron's table of two nodes has 8.1, 16.2, 20.8 and 44.7 GB/s for 1, 2, 4 and 8 members a node
    (`allreduce_bandwidth_2nodes_8gpus_per_node.json`). Measured bandwidths win.
    """
    ranks = len(positions)
    if ranks == 1:
        return ALONE
    if (measured := _find_measured(cluster, positions, assumptions)) is not None:
        return measured
    slowest = cluster.slowest_link(positions)
    # The first byte goes round over all hops but the one that closes the ring.
    latency_s = sum(cluster.link(first, second).latency_s for first, second in pairwise(positions))
    return Ring(
        ranks=ranks,
        bytes_per_s=_count_shares(cluster, positions, slowest) * assumptions.link_share,
        phase_latency_s=assumptions.phase_latency_s + latency_s,
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
    """Return the ring as measured: its bandwidth, and what a small all-reduce took beyond that."""
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


def _count_shares(cluster: Cluster, positions: Sequence[int], slowest: Link) -> float:
    """Return the bandwidth of the ring: that of the slowest link, or all members' shares of the network."""
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


class StageGroups(msgspec.Struct, frozen=True, kw_only=True):
    tensor: Ring = ALONE
    context: Ring = ALONE
    # Data and context ranks, which hold the same weights.
    data: Ring = ALONE
    # Ranks that the experts are spread over.
    expert: Ring = ALONE
    # Ranks that hold the same experts.
    expert_data: Ring = ALONE
    # To the next stage; ALONE for the last.
    following: Ring = ALONE


def place_stages(layout: ParallelLayout) -> list[tuple[int, ...]]:
    """Return the devices of each stage in the order of Megatron-LM: TP fastest, then CP, DP, PP."""
    ranks = layout.world_size // layout.pipeline
    return [tuple(range(stage * ranks, (stage + 1) * ranks)) for stage in range(layout.pipeline)]


def find_groups(
    cluster: Cluster,
    layout: ParallelLayout,
    stages: Sequence[Sequence[int]],
    assumptions: TimeAssumptions,
) -> tuple[StageGroups, ...]:
    """Return the rings of each stage; `stages` are positions in the cluster, tensor ranks fastest."""
    return tuple(
        _find_stage(cluster, layout, stages, number, assumptions) for number in range(layout.pipeline)
    )


def _find_stage(
    cluster: Cluster,
    layout: ParallelLayout,
    stages: Sequence[Sequence[int]],
    number: int,
    assumptions: TimeAssumptions,
) -> StageGroups:
    own = stages[number]
    tensor = layout.tensor
    shards = layout.expert_shards

    def find(stride: int, count: int) -> Ring:
        # The slowest ring of so many ranks, each a stride apart, over all ranks of a stage.
        if count == 1:
            return ALONE
        span = stride * count
        rings = (
            find_ring(cluster, own[start + offset : start + span : stride], assumptions)
            for start in range(0, len(own) - span + 1, span)
            for offset in range(stride)
        )
        return min(rings, key=lambda ring: ring.bytes_per_s)

    following = ALONE
    if number + 1 < layout.pipeline:
        following = find_neighbours(cluster, own[0], stages[number + 1][0], layout.pipeline, assumptions)
    return StageGroups(
        tensor=find(1, tensor),
        context=find(tensor, layout.context),
        data=find(tensor, layout.data * layout.context),
        expert=find(shards, layout.expert),
        expert_data=find(shards * layout.expert, layout.expert_data) if layout.expert > 1 else ALONE,
        following=following,
    )
