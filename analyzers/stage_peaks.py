"""The most bytes that each pipeline stage of a running job was measured to need."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from ..engine.model import RankCoordinates, RankSample, Sample
from ..engine.unmeasured import most_known, sum_all

# Jobs that were seen within so many seconds run at once.
AT_ONCE_S = 30.0
# Jobs whose peaks are kept, or as many as run at once; the one not seen for the longest is dropped first.
MAX_JOBS = 64


class StagePeak(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The most that one stage had at once, since it is watched. None means unmeasured."""

    # Pipeline coordinate, from 0.
    stage: int
    # Ranks of the stage that were seen.
    ranks: int
    # Ranks that its layers are split over, as far as they were seen.
    tensor_ranks: int = 1
    # Most bytes of live tensors on one rank.
    allocated_bytes: int | None = None
    # Most bytes in segments of one rank's allocator.
    reserved_bytes: int | None = None
    # Peaks of live tensors of all tensor ranks of one copy of the stage, added up; None where copies cannot
    # be told apart.
    whole_allocated_bytes: int | None = None
    # The sum of reserved bytes.
    whole_reserved_bytes: int | None = None
    # Whether a rank trains on a modelled card, so that its values are not a device's.
    is_simulated: bool = False


class JobStages(msgspec.Struct, frozen=True, kw_only=True):
    # In order; stages with no rank seen are left out.
    stages: tuple[StagePeak, ...] = ()
    # How many stages the job has; None where ranks of it were not seen.
    pipeline: int | None = None
    # Time from which on it is watched.
    since_s: float | None = None
    clock: Literal["wall", "trace"] = "wall"


class _RankPeak(NamedTuple):
    """The most that one rank had, and which part of its stage it is."""

    tensor: int
    # Data and context coordinate: ranks of one copy of a stage share them.
    copy: tuple[int | None, int | None]
    allocated_bytes: int | None
    reserved_bytes: int | None
    is_simulated: bool

    def is_above(self, allocated_bytes: int | None, reserved_bytes: int | None) -> bool:
        """Return whether it had as much before."""
        pairs = (allocated_bytes, self.allocated_bytes), (reserved_bytes, self.reserved_bytes)
        return all(now is None or (most is not None and now <= most) for now, most in pairs)


def list_ranks(sample: Sample) -> Sequence[RankSample]:
    """Return the ranks of a sample; those recorded in a memory trace are devices in it."""
    return sample.ranks or [
        RankSample(
            pid=device.index,
            device_uuid=device.uuid,
            is_simulated=device.is_simulated,
            coordinates=device.rank,
            allocator=device.allocator,
        )
        for device in sample.devices
        if device.kind == "trace" and device.rank is not None
    ]


class _Job(NamedTuple):
    world_size: int | None
    by_stage: dict[int, dict[int, _RankPeak]]

    @property
    def ranks(self) -> list[int]:
        return [number for ranks in self.by_stage.values() for number in ranks]


class StagePeaks:
    """Keeps the peaks of the stages of every job whose ranks report their pipeline coordinate."""

    def __init__(self) -> None:
        self._jobs: dict[str | None, dict[int, dict[int, _RankPeak]]] = {}
        self._world_sizes: dict[str | None, int | None] = {}
        self._last_s: dict[str | None, float] = {}
        self._since_s: float | None = None
        self._clock: Literal["wall", "trace"] = "wall"

    def observe(self, sample: Sample) -> None:
        self._since_s = sample.time_s if self._since_s is None else min(self._since_s, sample.time_s)
        self._clock = sample.clock
        for rank in list_ranks(sample):
            where = rank.coordinates
            if where is not None and where.pp is not None:
                self._world_sizes[rank.job] = where.world_size
                self._last_s[rank.job] = max(sample.time_s, self._last_s.get(rank.job, sample.time_s))
                self._note(rank, where, where.pp)
        if len(self._jobs) > MAX_JOBS:
            # Drop jobs that are over, where there were too many.
            present_s = max(self._last_s.values()) - AT_ONCE_S
            over = sorted(
                (name for name in self._jobs if self._last_s[name] < present_s), key=self._last_s.__getitem__
            )
            for name in over[: len(self._jobs) - MAX_JOBS]:
                del self._jobs[name], self._last_s[name], self._world_sizes[name]

    def _note(self, rank: RankSample, where: RankCoordinates, stage: int) -> None:
        ranks = self._jobs.setdefault(rank.job, {}).setdefault(stage, {})
        known = ranks.get(where.rank)
        reserved = None if rank.allocator is None else rank.allocator.reserved_bytes
        allocated = _peak_allocated(rank)
        place = where.tp or 0, (where.dp, where.cp)
        if known is not None and known[:2] == place and known.is_above(allocated, reserved):
            return  # as of most ranks at most times
        ranks[where.rank] = _RankPeak(
            *place,
            allocated_bytes=most_known((known.allocated_bytes if known else None, allocated)),
            reserved_bytes=most_known((known.reserved_bytes if known else None, reserved)),
            is_simulated=rank.is_simulated,
        )

    def tell(self) -> JobStages:
        """Return the stages of the job that was seen last; if several run at once, of that with most ranks.

        Empty where no rank reports its pipeline coordinate.
        """
        if not self._jobs:
            return JobStages(since_s=self._since_s, clock=self._clock)
        present_s = max(self._last_s.values()) - AT_ONCE_S
        present = [name for name in self._jobs if self._last_s[name] >= present_s]
        jobs = _join_parts([_Job(self._world_sizes[name], self._jobs[name]) for name in present])
        job = max(jobs, key=lambda each: len(each.ranks))
        stages = tuple(_add_up(stage, ranks) for stage, ranks in sorted(job.by_stage.items()))
        is_whole = len(job.ranks) == job.world_size
        return JobStages(
            stages=stages,
            pipeline=stages[-1].stage + 1 if is_whole else None,
            since_s=self._since_s,
            clock=self._clock,
        )


def _join_parts(jobs: Sequence[_Job]) -> list[_Job]:
    """Join jobs that were started rank by rank, as mpirun and srun do.

    Such parts report more ranks than each of them has, all report the same number, and none has another's.
    """
    whole = [job for job in jobs if job.world_size is None or len(job.ranks) >= job.world_size]
    by_size: dict[int, list[_Job]] = {}
    for job in jobs:
        if job not in whole and job.world_size is not None:
            by_size.setdefault(job.world_size, []).append(job)
    for size, parts in by_size.items():
        numbers = [number for part in parts for number in part.ranks]
        whole += [_merge(size, parts)] if len(numbers) == len({*numbers}) else parts
    return whole


def _merge(world_size: int, parts: Sequence[_Job]) -> _Job:
    by_stage: dict[int, dict[int, _RankPeak]] = {}
    for part in parts:
        for stage, ranks in part.by_stage.items():
            by_stage.setdefault(stage, {}).update(ranks)
    return _Job(world_size, by_stage)


def _add_up(stage: int, ranks: Mapping[int, _RankPeak]) -> StagePeak:
    copies: dict[tuple[int | None, int | None], list[_RankPeak]] = {}
    for peak in ranks.values():
        copies.setdefault(peak.copy, []).append(peak)
    tensor_ranks = len({peak.tensor for peak in ranks.values()})
    whole = [parts for parts in copies.values() if len(parts) == tensor_ranks]
    is_told_apart = len(whole) == len(copies)
    return StagePeak(
        stage=stage,
        ranks=len(ranks),
        tensor_ranks=tensor_ranks,
        allocated_bytes=most_known(peak.allocated_bytes for peak in ranks.values()),
        reserved_bytes=most_known(peak.reserved_bytes for peak in ranks.values()),
        whole_allocated_bytes=most_known(sum_all([it.allocated_bytes for it in parts]) for parts in whole)
        if is_told_apart
        else None,
        whole_reserved_bytes=most_known(sum_all([it.reserved_bytes for it in parts]) for parts in whole)
        if is_told_apart
        else None,
        is_simulated=any(peak.is_simulated for peak in ranks.values()),
    )


def _peak_allocated(rank: RankSample) -> int | None:
    """Return the most that a rank is known to have had allocated: at a moment, or within a step."""
    values = [rank.peak_max_bytes]
    if rank.allocator is not None:
        values += [rank.allocator.allocated_bytes, rank.allocator.allocated_max_bytes]
    if rank.step is not None:
        values.append(rank.step.peak_bytes)
    return most_known(values)
