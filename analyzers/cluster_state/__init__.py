"""Several nodes together: jobs over nodes, findings across them, and advice to processes."""

from .advice import Advice, Adviser
from .model import ClusterPicture, ClusterRank, JobState, NodeLoad, RankKey, StageLoad
from .state import CLUSTER_DIVERGENCE, ClusterState
from .statements import CLUSTER_IMBALANCE, CLUSTER_OOM, STAGE_SKEW

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
