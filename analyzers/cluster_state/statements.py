"""Statements about a cluster at one moment, before they have held for long enough to be findings."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from ...engine.model import SEVERITIES, Evidence, Severity
from ...engine.units import format_bytes, format_left, format_share
from ..balance import BOTTLENECK_FACTOR
from ..findings.evidence import JOB, TIME_LEFT
from ..risk import LEVELS
from ..sentence import count
from .model import ClusterPicture, ClusterRank, JobState, StageLoad


class Statement(NamedTuple):
    """One thing that holds, nearly holds, or holds no longer."""

    kind: str
    about: str
    # Whether it holds.
    is_beyond: bool
    # Whether it holds no longer; between the two neither.
    is_back: bool
    # Node where it strikes first.
    node: str = ""
    severity: Severity = "low"
    title: str = ""
    evidence: tuple[Evidence, ...] = ()
    method: str = ""
    advice: str = ""
    # A change here is worth publishing; numbers may change without.
    news: tuple[object, ...] = ()
    # When it is expected to strike, by our own clock.
    at_s: float | None = None
    # Time of the statement.
    time_s: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.about


# Which ranks of a job are forecast to run out of memory, and how severe that is.

_HIGH = LEVELS.index("high")
_MEDIUM = LEVELS.index("medium")


def list_threatened(job: JobState) -> list[ClusterRank]:
    """Return the ranks of a job at `high` or worse, or else those at `medium`; the soonest first."""
    grave = [it for it in job.ranks if LEVELS.index(it.level) >= _HIGH]
    found = grave or [it for it in job.ranks if LEVELS.index(it.level) >= _MEDIUM]
    return sorted(found, key=_urgency)


def is_grave(ranks: Sequence[ClusterRank]) -> bool:
    """Return whether an error is forecast at a rank with current values."""
    return any(LEVELS.index(it.level) >= _HIGH and not it.is_old for it in ranks)


def find_severity(ranks: Sequence[ClusterRank]) -> Severity:
    """Return the highest level of some ranks as the severity of a finding."""
    worst = max((LEVELS.index(it.level) for it in ranks), default=_MEDIUM)
    return SEVERITIES[max(1, worst - _MEDIUM + 1)]


def _urgency(rank: ClusterRank) -> tuple[float, int, str, int]:
    soon = math.inf if rank.oom_s is None else rank.oom_s
    return soon, -LEVELS.index(rank.level), rank.key.node, rank.key.pid


# Statement on a job with a forecast error: one rank's error ends all of it.

CLUSTER_OOM = "cluster_oom"
# Affected ranks that a finding lists one by one, those with the soonest forecast first.
MOST_LISTED = 16
MOST_NAMED = 3
METHOD = (
    "The forecasts of all nodes' agents for the ranks of one job, combined; times count from the "
    "arrival of each sample, so the nodes' clocks may differ"
)
ADVICE = (
    "One rank's error ends the whole job: save a checkpoint now, then see the finding on the rank named first"
)


def state_oom(job: JobState, picture: ClusterPicture) -> Statement:
    """Join the forecasts for a job into one statement.

    A job on one node with one threatened rank is left to the agent of that node.
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
    label = f"{job.label[0].upper()}{job.label[1:]}"
    when = "may run out of memory" if first.oom_s is None else f"out of memory in {_left(first, picture)}"
    old = ", by its last report" if first.is_old else ""
    more = f", then {count(len(others), 'more rank')} on {_name_nodes(others)}" if others else ""
    seen = f"; visible: {picture.coverage}" if picture.coverage else ""
    return f"{label} {when}: {first.name} ({first.place}{old}) first{more}{seen}"


def _left(rank: ClusterRank, picture: ClusterPicture) -> str:
    return format_left((rank.oom_s or 0.0) - picture.time_s)


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
        JOB(job.key),
        Evidence("first rank", first.rank),
        TIME_LEFT(left_s),
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
    old = ", last report" if rank.is_old else ""
    return f"{rank.level}{left}: {rank.place}, pid {rank.key.pid}{old}"


# Statements on a job that is near an error on some stages or nodes, while others have room.

STAGE_SKEW = "stage_skew"
CLUSTER_IMBALANCE = "cluster_imbalance"


def state_skew(job: JobState, picture: ClusterPicture) -> Statement:
    """State whether one stage is near an error and peaks far above the others.

    Stages differ by nature: without a forecast error at its ranks the difference is no finding.
    """
    worst = max(job.stages, key=lambda it: (LEVELS.index(it.level), it.peak_bytes, -it.stage), default=None)
    is_near = worst is not None and LEVELS.index(worst.level) >= _MEDIUM
    if worst is None or not is_near or worst.stage not in job.bottleneck_stages:
        return Statement(STAGE_SKEW, job.key, is_beyond=False, is_back=True)
    is_beyond = LEVELS.index(worst.level) >= _HIGH and is_grave(
        [it for it in job.ranks if it.pp == worst.stage]
    )
    others = max(it.peak_bytes for it in job.stages if it is not worst)
    return Statement(
        kind=STAGE_SKEW,
        about=job.key,
        is_beyond=is_beyond,
        is_back=False,
        node=min(worst.nodes, default=""),
        severity="medium",
        title=f"Stage {worst.stage} limits {job.label}: a rank of it peaks at "
        f"{format_bytes(worst.peak_bytes)}, those of all other stages at {format_bytes(others)} at most"
        f"{_word_plan(worst)}",
        evidence=_list_stages(job, worst),
        method="Highest peak of live bytes on a rank of each stage while watched, divided by the mean of "
        f"all stages, is {BOTTLENECK_FACTOR:g} or more; and a rank of that stage is forecast to "
        "run out of memory",
        advice=f"Give stage {worst.stage} fewer layers, or recompute activations there; `vramscope plan "
        "--measured` computes a new split",
        news=(worst.stage,),
    )


def _list_stages(job: JobState, worst: StageLoad) -> tuple[Evidence, ...]:
    planned = [it for it in job.stages if it.planned_bytes is not None]
    return (
        JOB(job.key),
        Evidence("stage", worst.stage),
        Evidence("skew", _round(job.stage_skew)),
        Evidence("planned skew", _round(job.planned_skew)),
        *(Evidence(f"peak of stage {it.stage}", it.peak_bytes, "bytes") for it in job.stages),
        *(Evidence(f"plan of stage {it.stage}", it.planned_bytes, "bytes") for it in planned),
    )


def _word_plan(stage: StageLoad) -> str:
    difference = stage.difference_bytes
    if difference is None:
        return ""
    way = "above" if difference >= 0 else "below"
    return f"; that is {format_bytes(abs(difference))} {way} its plan"


def state_imbalance(job: JobState, picture: ClusterPicture) -> Statement:
    """State whether ranks of one node are near an error and its devices are far fuller than the others."""
    threatened = list_threatened(job)
    its = [it for it in threatened if it.key.node in job.bottleneck_nodes]
    if not its:
        return Statement(CLUSTER_IMBALANCE, job.key, is_beyond=False, is_back=True)
    node = its[0].key.node
    share = next((it.mean_share for it in picture.nodes if it.node == node), None)
    others = [it.mean_share for it in picture.nodes if it.node in job.nodes and it.node != node]
    known = [it for it in others if it is not None]
    elsewhere = f", those of its other nodes at most {format_share(max(known))} full" if known else ""
    full = "" if share is None else f": its devices are {format_share(share)} full on average{elsewhere}"
    return Statement(
        kind=CLUSTER_IMBALANCE,
        about=job.key,
        is_beyond=is_grave(its) and find_severity(its) != "medium",
        is_back=False,
        node=node,
        severity="medium",
        title=f"{node} limits {job.label}{full}",
        evidence=(
            JOB(job.key),
            Evidence("balance", _round(job.balance)),
            Evidence("bottleneck nodes", ", ".join(job.bottleneck_nodes)),
        ),
        method="Mean used share of each node's devices, divided by the mean of all nodes of the job, is "
        f"above {BOTTLENECK_FACTOR:g}; and a rank there is forecast to run out of memory",
        advice=f"Give the ranks of {node} less work, or check what else uses its devices",
        news=(job.bottleneck_nodes,),
    )


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
