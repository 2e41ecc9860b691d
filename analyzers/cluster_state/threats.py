"""Which ranks of a job are foreseen to run out of memory, and how grave that is."""

import math
from collections.abc import Sequence

from ...engine.model import SEVERITIES, Severity
from ..risk import LEVELS
from .model import ClusterRank, JobState

_HIGH = LEVELS.index("high")
_MEDIUM = LEVELS.index("medium")


def list_threatened(job: JobState) -> list[ClusterRank]:
    """Return the ranks of a job at `high` or worse, or else those at `medium`; the soonest first."""
    grave = [it for it in job.ranks if LEVELS.index(it.level) >= _HIGH]
    found = grave or [it for it in job.ranks if LEVELS.index(it.level) >= _MEDIUM]
    return sorted(found, key=_urgency)


def is_grave(ranks: Sequence[ClusterRank]) -> bool:
    """Return whether an error is foreseen at a rank of which figures are of now."""
    return any(LEVELS.index(it.level) >= _HIGH and not it.is_old for it in ranks)


def find_severity(ranks: Sequence[ClusterRank]) -> Severity:
    """Return the gravest level of some ranks as the severity of a finding."""
    gravest = max((LEVELS.index(it.level) for it in ranks), default=_MEDIUM)
    return SEVERITIES[max(1, gravest - _MEDIUM + 1)]


def _urgency(rank: ClusterRank) -> tuple[float, int, str, int]:
    soon = math.inf if rank.oom_s is None else rank.oom_s
    return soon, -LEVELS.index(rank.level), rank.key.node, rank.key.pid
