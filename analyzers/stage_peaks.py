"""What each pipeline stage of a running job was measured to need at most."""

from collections.abc import Iterable

import msgspec

from ..engine.model import RankSample, Sample


class StagePeak(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The most that any rank of one stage had at once, since it is watched. None means unmeasured."""

    stage: int
    """Pipeline coordinate, from 0."""
    ranks: int
    """Processes of the stage that were seen."""
    allocated_bytes: int | None = None
    """Most bytes of live tensors on one rank."""
    reserved_bytes: int | None = None
    """Most bytes in segments of one rank's allocator."""
    allocated_rank: int | None = None
    """The rank that had most allocated."""
    is_simulated: bool = False
    """Whether a rank trains on a modelled card, so that its figures are not a device's."""


class StagePeaks:
    """Keeps the peaks of the stages of every job whose ranks tell their pipeline coordinate."""

    def __init__(self) -> None:
        self._jobs: dict[str | None, dict[int, StagePeak]] = {}
        self._seen: dict[tuple[str | None, int], set[tuple[str, int, float | None]]] = {}
        self.since_s: float | None = None
        """Time of the first sample."""

    def observe(self, sample: Sample) -> None:
        """Take a sample; one with ranks that tell no pipeline coordinate changes nothing."""
        self.since_s = sample.time_s if self.since_s is None else min(self.since_s, sample.time_s)
        for rank in sample.ranks:
            if rank.coordinates is not None and rank.coordinates.pp is not None:
                self._note(sample.node, rank, rank.coordinates.pp, rank.coordinates.rank)

    def _note(self, node: str, rank: RankSample, stage: int, number: int) -> None:
        seen = self._seen.setdefault((rank.job, stage), set())
        seen.add((node, rank.pid, rank.started_s))
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

    def list_stages(self) -> tuple[StagePeak, ...]:
        """Return the stages of the job of which most ranks were seen, in order; none where no rank tells."""
        if not self._jobs:
            return ()
        fullest = max(self._jobs.values(), key=lambda stages: sum(peak.ranks for peak in stages.values()))
        return tuple(fullest[stage] for stage in sorted(fullest))


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
