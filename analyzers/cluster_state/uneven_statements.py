"""What is said where a job is near an error on some stages or nodes, while others have room."""

from ...engine.model import Evidence
from ...engine.units import format_bytes
from ..balance.node_balance import BOTTLENECK_FACTOR
from ..finding_evidence import JOB
from ..risk import LEVELS
from .model import ClusterPicture, JobState, StageLoad
from .statement import Statement
from .threats import find_severity, is_grave, list_threatened

STAGE_SKEW = "stage_skew"
CLUSTER_IMBALANCE = "cluster_imbalance"
_HIGH = LEVELS.index("high")
_MEDIUM = LEVELS.index("medium")


def state_skew(job: JobState, picture: ClusterPicture) -> Statement:
    """Return whether one stage is near an error and peaks far above the others.

    Stages differ by nature: without an error that is foreseen at its ranks the difference is no finding.
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
        method="Highest peak of live bytes on a rank of each stage since it is watched, over the mean of all "
        f"stages, at {BOTTLENECK_FACTOR:g} or above; and an error is foreseen at a rank of that stage",
        advice=f"Give stage {worst.stage} fewer layers, or recompute activations there; "
        "`vramscope plan --measured` says how to split anew",
        news=(worst.stage,),
    )


def _list_stages(job: JobState, worst: StageLoad) -> tuple[Evidence, ...]:
    planned = [it for it in job.stages if it.planned_bytes is not None]
    return (
        Evidence(JOB, job.key),
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
    """Return whether ranks of one node are near an error and its devices are far fuller than the others."""
    threatened = list_threatened(job)
    its = [it for it in threatened if it.key.node in job.bottleneck_nodes]
    if not its:
        return Statement(CLUSTER_IMBALANCE, job.key, is_beyond=False, is_back=True)
    node = its[0].key.node
    share = next((it.mean_share for it in picture.nodes if it.node == node), None)
    others = [it.mean_share for it in picture.nodes if it.node in job.nodes and it.node != node]
    known = [it for it in others if it is not None]
    beside = f", where those of its other nodes are {max(known):.0%} full at most" if known else ""
    full = "" if share is None else f": its devices are {share:.0%} full on average{beside}"
    return Statement(
        kind=CLUSTER_IMBALANCE,
        about=job.key,
        is_beyond=is_grave(its) and find_severity(its) != "medium",
        is_back=False,
        node=node,
        severity="medium",
        title=f"{node} limits {job.label}{full}",
        evidence=(
            Evidence(JOB, job.key),
            Evidence("balance", _round(job.balance)),
            Evidence("bottleneck nodes", ", ".join(job.bottleneck_nodes)),
        ),
        method="Used share of the devices of each node of the job, on average, over that of all of them, "
        f"above {BOTTLENECK_FACTOR:g}; and an error is foreseen at a rank there",
        advice=f"Give the ranks of {node} less, or see what else uses its devices",
        news=(job.bottleneck_nodes,),
    )


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
