"""What each pipeline stage of a running job was measured to need at most."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from ..engine.model import RankSample, Sample


class StagePeak(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The most that any rank of one stage had at once, since it is watched. None means unmeasured."""

    stage: int
    """Pipeline coordinate, from 0."""
    ranks: int
    """Ranks of the stage that were seen."""
    allocated_bytes: int | None = None
    """Most bytes of live tensors on one rank."""
    reserved_bytes: int | None = None
    """Most bytes in segments of one rank's allocator."""
    allocated_rank: int | None = None
    """The rank that had most allocated."""
    is_simulated: bool = False
    """Whether a rank trains on a modelled card, so that its figures are not a device's."""


class JobStages(msgspec.Struct, frozen=True, kw_only=True):
    """The stages of one job, as far as its ranks were seen."""

    stages: tuple[StagePeak, ...] = ()
    """In order; those of which no rank was seen are left out."""
    pipeline: int | None = None
    """How many stages the job has; None where ranks of it were not seen."""
    since_s: float | None = None
    """Time from which on it is watched."""
    clock: Literal["wall", "trace"] = "wall"
    """Which clock that time is of."""


class StagePeaks:
    """Keeps the peaks of the stages of every job whose ranks tell their pipeline coordinate."""

    def __init__(self) -> None:
        self._jobs: dict[str | None, dict[int, StagePeak]] = {}
        self._seen: dict[tuple[str | None, int], set[int]] = {}
        self._world_sizes: dict[str | None, int | None] = {}
        self._since_s: float | None = None
        self._clock: Literal["wall", "trace"] = "wall"

    def observe(self, sample: Sample) -> None:
        """Take a sample; one with ranks that tell no pipeline coordinate changes nothing."""
        self._since_s = sample.time_s if self._since_s is None else min(self._since_s, sample.time_s)
        self._clock = sample.clock
        for rank in sample.ranks:
            where = rank.coordinates
            if where is not None and where.pp is not None:
                self._world_sizes[rank.job] = where.world_size
                self._note(rank, where.pp, where.rank)

    def _note(self, rank: RankSample, stage: int, number: int) -> None:
        seen = self._seen.setdefault((rank.job, stage), set())
        seen.add(number)
        stages = self._jobs.setdefault(rank.job, {})
        known = stages.get(stage) or StagePeak(stage=stage, ranks=0)
        reserved = None if rank.allocator is None else rank.allocator.reserved_bytes
        allocated = _peak_allocated(rank)
        is_most = allocated is not None and allocated > (known.allocated_bytes or -1)
        stages[stage] = StagePeak(
            stage=stage,
            ranks=len(seen),
            allocated_bytes=allocated if is_most else known.allocated_bytes,
            reserved_bytes=_most((known.reserved_bytes, reserved)),
            allocated_rank=number if is_most else known.allocated_rank,
            is_simulated=known.is_simulated or rank.is_simulated,
        )

    def tell(self) -> JobStages:
        """Return the stages of the job of which most ranks were seen; none where no rank tells its own."""
        if not self._jobs:
            return JobStages(since_s=self._since_s, clock=self._clock)
        job = max(self._jobs, key=self._count_ranks)
        stages = tuple(self._jobs[job][stage] for stage in sorted(self._jobs[job]))
        is_whole = self._count_ranks(job) == self._world_sizes[job]
        return JobStages(
            stages=stages,
            pipeline=stages[-1].stage + 1 if is_whole else None,
            since_s=self._since_s,
            clock=self._clock,
        )

    def _count_ranks(self, job: str | None) -> int:
        return sum(peak.ranks for peak in self._jobs[job].values())


def _peak_allocated(rank: RankSample) -> int | None:
    """Return the most that a rank is known to have had allocated: at a moment, or within a step."""
    values = [rank.peak_max_bytes]
    if rank.allocator is not None:
        values += [rank.allocator.allocated_bytes, rank.allocator.allocated_max_bytes]
    if rank.step is not None:
        values.append(rank.step.peak_bytes)
    return _most(values)


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
