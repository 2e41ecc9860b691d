"""Out-of-memory errors that were met, and refusals of the device that come before them: facts, no forecast.

A process counts both since its start (`num_ooms`, `num_alloc_retries` of PyTorch's allocator); here it
matters that a number rises. The rules stand in `docs/verdicts.md`.
"""

from collections.abc import Iterator, Sequence

from ..engine.model import DeviceSample, Finding, RankSample, Sample
from .out_of_memory_track import KINDS, PROCESS, STARTED, CountTrack, Sighting, read_evidence

_Key = tuple[str, int, float | None]


class OutOfMemoryAnalyzer:
    """Open one finding per process and kind when its count rises; close it once that is long past."""

    name = "out_of_memory"

    def __init__(self) -> None:
        self._tracks: dict[_Key, CountTrack] = {}

    def observe(self, sample: Sample) -> Sequence[Finding]:
        """Take one sample and return the findings it opened, updated or closed."""
        return [*self._observe_present(sample), *self._observe_absent(sample)]

    def restore(self, findings: Sequence[Finding]) -> None:
        """Adopt open findings of these kinds."""
        for finding in findings:
            pid, started_s = read_evidence(finding, PROCESS), read_evidence(finding, STARTED)
            if finding.kind in KINDS and finding.is_open and isinstance(pid, int):
                started = float(started_s) if isinstance(started_s, int | float) else None
                track = self._tracks.setdefault((finding.node, pid, started), CountTrack())
                track.adopt(finding)

    def _observe_present(self, sample: Sample) -> Iterator[Finding]:
        devices = {device.uuid: device for device in sample.devices}
        for rank in sample.ranks:
            if rank.allocator is None:
                continue
            track = self._tracks.setdefault((sample.node, *_identity(rank)), CountTrack())
            yield from track.observe(_sight(sample, rank, devices.get(rank.device_uuid or "")))

    def _observe_absent(self, sample: Sample) -> Iterator[Finding]:
        present = {_identity(rank) for rank in sample.ranks if rank.allocator is not None}
        for key in [key for key in self._tracks if key[0] == sample.node and key[1:] not in present]:
            track = self._tracks[key]
            yield from track.observe_absence(sample.time_s)
            if not track.is_open:
                del self._tracks[key]


def _identity(rank: RankSample) -> tuple[int, float | None]:
    return rank.pid, rank.started_s


def _sight(sample: Sample, rank: RankSample, device: DeviceSample | None) -> Sighting:
    return Sighting(
        sample.node,
        sample.time_s,
        sample.interval_s,
        rank,
        None if device is None else device.label,
        None if device is None else device.step,
    )
