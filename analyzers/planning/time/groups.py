"""The rings of each pipeline stage: who talks to whom, and how fast."""

from collections.abc import Sequence

import msgspec

from ..cluster import Cluster
from ..theory import ParallelLayout
from .assumptions import TimeAssumptions
from .collectives import ALONE, Ring, find_neighbours, find_ring


class StageGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The slowest ring of each kind among the ranks of one stage."""

    tensor: Ring = ALONE
    context: Ring = ALONE
    data: Ring = ALONE
    """Data and context ranks, which hold the same weights."""
    expert: Ring = ALONE
    """Ranks that the experts are spread over."""
    expert_data: Ring = ALONE
    """Ranks that hold the same experts."""
    following: Ring = ALONE
    """To the next stage; ALONE of the last."""


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
    """Return the rings of each stage.

    Args:
        cluster: Where the ranks are.
        layout: Degrees.
        stages: Positions in the cluster of the ranks of each stage, tensor ranks fastest.
        assumptions: Shares and latencies.
    """
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
        return _find_slowest(cluster, own, stride, count, assumptions)

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


def _find_slowest(
    cluster: Cluster, devices: Sequence[int], stride: int, count: int, assumptions: TimeAssumptions
) -> Ring:
    """Return the slowest ring of so many ranks, each a stride apart, over all of a stage's."""
    if count == 1:
        return ALONE
    span = stride * count
    rings = (
        find_ring(cluster, devices[start + offset : start + span : stride], assumptions)
        for start in range(0, len(devices) - span + 1, span)
        for offset in range(stride)
    )
    return min(rings, key=lambda ring: ring.bytes_per_s)
