"""Which training processes of several nodes are one job.

Every `vramscope run` has a name of its own, unless `--job` gives it one; under torchrun each node has a run,
under srun each rank. Processes of one name are one job, unless two of them say that they are the same rank.
Runs that have fewer ranks than the size of their world are parts: those of one size that began within ten
minutes of one another are one job, unless they share a rank. What cannot be told apart so stays apart.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .model import ClusterRank, RankKey

START_TOGETHER_S = 600.0
"""Parts of one job begin within so long; ages are compared, since clocks of nodes may differ."""


class JobMembers(NamedTuple):
    """One job of two ranks or more."""

    key: str
    world_size: int | None
    members: tuple[RankKey, ...]
    """In the order of their ranks."""


class _Part(NamedTuple):
    name: str
    world_size: int | None
    ranks: tuple[ClusterRank, ...]

    @property
    def numbers(self) -> list[int]:
        return [it.rank for it in self.ranks if it.rank is not None]

    @property
    def is_incomplete(self) -> bool:
        return self.world_size is not None and len(self.ranks) < self.world_size

    @property
    def age_s(self) -> float | None:
        return max((it.age_s for it in self.ranks if it.age_s is not None), default=None)


def find_jobs(ranks: Iterable[ClusterRank]) -> tuple[JobMembers, ...]:
    """Return the jobs of some processes, by name; processes that tell no rank belong to none.

    Args:
        ranks: Of all nodes, in any order.
    """
    placed = [it for it in ranks if it.rank is not None]
    parts = [part for same in _group_by_name(placed) for part in _join_or_part(same)]
    incomplete = [part for part in parts if part.is_incomplete and part.age_s is not None]
    whole = [part for part in parts if part not in incomplete]
    for alike in _group_by_start(incomplete):
        whole += _join(alike)
    jobs = [part for part in whole if len(part.ranks) > 1]
    names = [part.name for part in jobs]
    described = (_describe(part, is_shared=names.count(part.name) > 1) for part in jobs)
    return tuple(sorted(described, key=lambda job: (job.key, job.members)))


def _group_by_name(ranks: Sequence[ClusterRank]) -> list[list[ClusterRank]]:
    """Return processes by the name of their job and the size of their world.

    Those that were attached to have no name; on one node the size of their world stands for it.
    """
    groups: dict[tuple[str, int | None], list[ClusterRank]] = {}
    for it in ranks:
        if it.job is not None:
            groups.setdefault((it.job, it.world_size), []).append(it)
        elif it.world_size is not None and it.world_size > 1:
            groups.setdefault((f"world of {it.world_size} on {it.key.node}", it.world_size), []).append(it)
    return list(groups.values())


def _join_or_part(same: Sequence[ClusterRank]) -> list[_Part]:
    """Return processes of one name as one part, or as one a node where two are the same rank."""
    one = _make_part(same)
    if len({*one.numbers}) == len(one.numbers):
        return [one]
    nodes: dict[str, list[ClusterRank]] = {}
    for it in same:
        nodes.setdefault(it.key.node, []).append(it)
    return [_make_part(ranks) for ranks in nodes.values()]


def _group_by_start(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Return parts by the size of their world and by when they began."""
    groups: list[list[_Part]] = []
    ordered = sorted(parts, key=lambda it: (it.world_size or 0, it.age_s or 0.0, it.ranks[0].key.node))
    for part in ordered:
        if groups and _began_together(groups[-1][-1], part):
            groups[-1].append(part)
        else:
            groups.append([part])
    return groups


def _began_together(one: _Part, later: _Part) -> bool:
    is_alike = one.world_size == later.world_size
    return is_alike and (later.age_s or 0.0) - (one.age_s or 0.0) <= START_TOGETHER_S


def _join(parts: Sequence[_Part]) -> list[_Part]:
    """Return parts as one, where no two have the same rank."""
    one = _make_part([it for part in parts for it in part.ranks])
    return [one] if len({*one.numbers}) == len(one.numbers) else list(parts)


def _make_part(ranks: Sequence[ClusterRank]) -> _Part:
    ordered = tuple(sorted(ranks, key=lambda it: (it.rank or 0, it.key.node, it.key.pid)))
    first = ordered[0]
    return _Part(first.job or f"world of {first.world_size}", first.world_size, ordered)


def _describe(part: _Part, *, is_shared: bool) -> JobMembers:
    key = f"{part.name} on {part.ranks[0].key.node}" if is_shared else part.name
    return JobMembers(key, part.world_size, tuple(it.key for it in part.ranks))
