"""What is said of a job of which an error is foreseen: one rank's error ends all of it."""

from ...engine.model import Evidence
from ...engine.units import format_age
from ..finding_evidence import JOB
from .model import ClusterPicture, ClusterRank, JobState, count
from .statement import Statement
from .threats import find_severity, is_grave, list_threatened

CLUSTER_OOM = "cluster_oom"
MOST_LISTED = 16
"""Affected ranks that a finding lists one by one, those that are foreseen to fail first."""
MOST_NAMED = 3
METHOD = (
    "The forecasts of the agents of all nodes for the ranks of one job, held together; times are counted "
    "from the arrival of each sample, so that clocks of nodes need not agree"
)
ADVICE = (
    "An error of one rank ends the whole job: save a checkpoint now, then see the finding on the rank that "
    "is named first"
)


def state_oom(job: JobState, picture: ClusterPicture) -> Statement:
    """Return what the forecasts say of a job together.

    A job on one node of which one rank is threatened is left to the agent of that node.
    """
    threatened = list_threatened(job)
    is_beyond = is_grave(threatened) and (len(job.nodes) > 1 or len(threatened) > 1)
    if not threatened:
        return Statement(CLUSTER_OOM, job.key, is_beyond=False, is_back=True)
    first = threatened[0]
    return Statement(
        kind=CLUSTER_OOM,
        about=job.key,
        is_beyond=is_beyond,
        is_back=False,
        node=first.key.node,
        severity=find_severity(threatened),
        title=_word_title(job, picture, threatened),
        evidence=_list_evidence(job, picture, threatened),
        method=METHOD,
        advice=ADVICE,
        news=(first.key, *sorted(it.key.node for it in threatened), picture.coverage),
        at_s=first.oom_s,
        time_s=picture.time_s,
    )


def _word_title(job: JobState, picture: ClusterPicture, threatened: list[ClusterRank]) -> str:
    first = threatened[0]
    others = threatened[1:]
    told = f"{job.label[0].upper()}{job.label[1:]}"
    when = "may run out of memory" if first.oom_s is None else f"out of memory in {_left(first, picture)}"
    old = ", by its last word" if first.is_old else ""
    more = f", then {count(len(others), 'more rank')} on {_name_nodes(others)}" if others else ""
    seen = f"; seen are {picture.coverage}" if picture.coverage else ""
    return f"{told} {when}: {first.name} ({first.place}{old}) first{more}{seen}"


def _left(rank: ClusterRank, picture: ClusterPicture) -> str:
    return format_age(round(max(0.0, (rank.oom_s or 0.0) - picture.time_s)))


def _name_nodes(ranks: list[ClusterRank]) -> str:
    names = list(dict.fromkeys(it.key.node for it in ranks))
    more = f" and {len(names) - MOST_NAMED} others" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _list_evidence(
    job: JobState, picture: ClusterPicture, threatened: list[ClusterRank]
) -> tuple[Evidence, ...]:
    first = threatened[0]
    left_s = None if first.oom_s is None else round(first.oom_s - picture.time_s, 1)
    return (
        Evidence(JOB, job.key),
        Evidence("first rank", first.rank),
        Evidence("time to out of memory", left_s, "s"),
        Evidence("ranks affected", len(threatened)),
        Evidence("ranks seen", len(job.ranks)),
        Evidence("world size", job.world_size),
        Evidence("nodes affected", len({it.key.node for it in threatened})),
        Evidence("nodes seen", picture.live),
        Evidence("nodes known", picture.total),
        *(Evidence(it.name, _describe_rank(it, picture)) for it in threatened[:MOST_LISTED]),
    )


def _describe_rank(rank: ClusterRank, picture: ClusterPicture) -> str:
    left = "" if rank.oom_s is None else f" in {_left(rank, picture)}"
    old = ", last word" if rank.is_old else ""
    return f"{rank.level}{left}: {rank.place}, pid {rank.key.pid}{old}"
