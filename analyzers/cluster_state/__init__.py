"""Several nodes together: jobs over nodes, findings across them, and what processes may be advised."""

from .advice import Advice, Adviser
from .job_watch import CLUSTER_DIVERGENCE
from .model import ClusterPicture, ClusterRank, JobState, NodeLoad, RankKey, StageLoad
from .oom_statement import CLUSTER_OOM
from .state import ClusterState
from .uneven_statements import CLUSTER_IMBALANCE, STAGE_SKEW

__all__ = [
    "CLUSTER_DIVERGENCE",
    "CLUSTER_IMBALANCE",
    "CLUSTER_OOM",
    "STAGE_SKEW",
    "Advice",
    "Adviser",
    "ClusterPicture",
    "ClusterRank",
    "ClusterState",
    "JobState",
    "NodeLoad",
    "RankKey",
    "StageLoad",
]
