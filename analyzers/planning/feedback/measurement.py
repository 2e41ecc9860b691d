"""What the stages of a job were measured to need, from samples: the job of which most ranks were seen."""

import msgspec
from msgspec.structs import replace

from ....engine.model import MemoryReading, RankSample, Sample
from ...stage_peaks import StagePeak, StagePeaks, list_ranks


class MeasuredStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a job."""

    peak: StagePeak
    used_bytes: int | None = None
    """Most that was in use on a device of its ranks."""


class MeasuredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose ranks tell their pipeline coordinate."""

    job: str | None
    stages: tuple[MeasuredStage, ...]
    """In order; those of which no rank was seen are left out."""
    pipeline: int
    """Stages of the job, as far as ranks were seen."""
    is_whole: bool
    """Whether all its ranks were seen."""
    has_steps: bool
    """Whether a training step had ended on any of its ranks."""
    tensor: int
    """Ranks that share a layer, as far as they were seen."""


class JobMeasurement:
    """Takes samples in any order, of one node or several."""

    def __init__(self) -> None:
        self._jobs: dict[str | None, _Job] = {}

    def observe(self, sample: Sample) -> None:
        """Take a sample. Recorded ranks of a trace, which are devices in it, count as ranks."""
        by_job: dict[str | None, list[RankSample]] = {}
        for rank in list_ranks(sample):
            if rank.coordinates is not None and rank.coordinates.pp is not None:
                by_job.setdefault(rank.job, []).append(rank)
        for name, ranks in by_job.items():
            self._jobs.setdefault(name, _Job()).observe(sample, ranks)

    def tell(self) -> MeasuredJob | None:
        """Return what was measured; None where no rank tells its pipeline coordinate."""
        if not self._jobs:
            return None
        name = max(self._jobs, key=lambda each: self._jobs[each].count_ranks())
        return self._jobs[name].tell(name)


class _Job:
    def __init__(self) -> None:
        self._peaks = StagePeaks()
        self._used: dict[int, int] = {}
        self._has_steps = False

    def observe(self, sample: Sample, ranks: list[RankSample]) -> None:
        self._peaks.observe(replace(sample, ranks=tuple(ranks)))
        devices = {device.uuid: device for device in sample.devices}
        for rank in ranks:
            where = rank.coordinates
            if where is None or where.pp is None:
                continue
            device = devices.get(rank.device_uuid or "")
            if rank.step is not None or (device is not None and device.step):
                self._has_steps = True
            size = None if device is None else _find_used(device.memory)
            if size is not None:
                self._used[where.pp] = max(self._used.get(where.pp, 0), size)

    def count_ranks(self) -> int:
        return sum(peak.ranks for peak in self._peaks.tell().stages)

    def tell(self, name: str | None) -> MeasuredJob:
        told = self._peaks.tell()
        return MeasuredJob(
            job=name,
            stages=tuple(
                MeasuredStage(peak=peak, used_bytes=self._used.get(peak.stage)) for peak in told.stages
            ),
            pipeline=told.pipeline or told.stages[-1].stage + 1,
            is_whole=told.pipeline is not None,
            has_steps=self._has_steps,
            tensor=max(peak.tensor_ranks for peak in told.stages),
        )


def _find_used(memory: MemoryReading) -> int | None:
    return memory.used_bytes if memory.used_max_bytes is None else memory.used_max_bytes
