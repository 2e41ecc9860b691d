"""Whom a verdict is about: each process that reports, or a device that is known only as a whole.

Live ranks come with the probe's steps; a recorded rank, an imported series and a device under NVML alone come
as a device. Analyzers look at both through a `Subject`, and decide only by what the history ring keeps.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..engine.model import AllocatorReading, DeviceSample, RankSample, Sample
from .device_names import name_device
from .rank_names import name_rank

SubjectKey = tuple[str, str, int | None, float | None]
"""Node, UUID of the device, and process id and start time where it is a process."""

_NOTHING = AllocatorReading()


class Subject(NamedTuple):
    """One process, or one device, in one sample."""

    sample: Sample
    device: DeviceSample | None
    """The device it is on; None where the process could not be matched to one."""
    rank: RankSample | None
    """The process; None where the device as a whole is the subject."""

    @property
    def key(self) -> SubjectKey:
        """What tells it from others, for as long as it lives."""
        rank, uuid = self.rank, self.device_uuid or ""
        if rank is None:
            return self.sample.node, uuid, None, None
        return self.sample.node, uuid, rank.pid, rank.started_s

    @property
    def device_uuid(self) -> str | None:
        """UUID of its device."""
        if self.device is not None:
            return self.device.uuid
        return None if self.rank is None else self.rank.device_uuid

    @property
    def name(self) -> str:
        """What a sentence calls it: `rank 3`, `process 4711`, `GPU 0`."""
        if self.rank is not None:
            return name_rank(self.rank)
        return "the device" if self.device is None else name_device(self.device)

    @property
    def allocator(self) -> AllocatorReading:
        """What its allocator says; all None where nobody tells."""
        owner = self.rank if self.rank is not None else self.device
        return (owner.allocator if owner is not None else None) or _NOTHING

    @property
    def step(self) -> int | None:
        """Number of the newest step that ended, or of the step in progress where only that is recorded."""
        if self.rank is not None:
            return None if self.rank.step is None else self.rank.step.index
        return None if self.device is None else self.device.step

    @property
    def limit_bytes(self) -> int | None:
        """Most bytes that its allocator can really reserve at this tick; None where that is unknown.

        What it has reserved and what is free, since an allocator gives its cache back before it fails and
        others keep theirs; at most what `set_per_process_memory_fraction` allows. Where the device does not
        tell what is free, its capacity: an upper bound.
        """
        cap = self.rank.capacity_bytes if self.rank is not None else None
        known = [limit for limit in (cap, self._reachable_bytes()) if limit is not None]
        return min(known, default=None)

    def _reachable_bytes(self) -> int | None:
        if self.device is None:
            return None
        memory, reserved = self.device.memory, self.allocator.reserved_bytes
        if reserved is None or memory.free_bytes is None:
            return memory.total_bytes
        return reserved + memory.free_bytes


def subjects_of(sample: Sample) -> Iterator[Subject]:
    """Yield the living processes that have told of their memory, then the devices without any such process.

    Devices that are not well, whose figures are old, are left out; so are ranks that are stale or have ended.
    """
    devices = {device.uuid: device for device in sample.devices}
    inhabited = {rank.device_uuid for rank in sample.ranks if rank.state != "ended"}
    for rank in sample.ranks:
        if rank.state == "ok" and rank.allocator is not None:
            yield Subject(sample, devices.get(rank.device_uuid or ""), rank)
    for device in sample.devices:
        if device.state == "ok" and device.uuid not in inhabited:
            yield Subject(sample, device, None)
