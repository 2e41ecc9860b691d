"""A job over several nodes as it is printed: its stages, and who limits it."""

import msgspec

from ...analyzers.cluster_state import JobState, StageLoad


class JobOverNodes(msgspec.Struct, frozen=True, kw_only=True):
    """One job over its nodes."""

    job: str
    nodes: tuple[str, ...]
    ranks_seen: int
    world_size: int | None
    balance: float | None
    """How evenly its devices are filled: 1 where all are equally full."""
    bottleneck_nodes: tuple[str, ...]
    stages: tuple[StageLoad, ...]
    stage_skew: float | None
    """Highest peak of a stage over the mean of all stages."""
    planned_skew: float | None
    bottleneck_stages: tuple[int, ...]
    first_diverging: str | None
    """The rank that grew away from its peers first, and where it is."""


def describe_job(job: JobState) -> JobOverNodes:
    """Return a job without its single ranks."""
    first = job.first_diverging
    return JobOverNodes(
        job=job.key,
        nodes=job.nodes,
        ranks_seen=len(job.ranks),
        world_size=job.world_size,
        balance=job.balance,
        bottleneck_nodes=job.bottleneck_nodes,
        stages=job.stages,
        stage_skew=job.stage_skew,
        planned_skew=job.planned_skew,
        bottleneck_stages=job.bottleneck_stages,
        first_diverging=None if first is None else f"{first.name} ({first.place})",
    )
