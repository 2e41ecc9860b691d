"""Whom a verdict is about: each process that reports, or a device that is known only as a whole.

Live ranks come with the probe's steps; a recorded rank, an imported series and a device under NVML alone come
as a device. Analyzers look at both through a `Subject`, and decide only by what the history ring keeps.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...engine.model import AllocatorReading, DeviceSample, Finding, RankSample, Sample
from ...engine.units import format_bytes

# Node, UUID of the device, and process id and start time where it is a process.
SubjectKey = tuple[str, str, int | None, float | None]

_NOTHING = AllocatorReading()
# Marks a limit that has not been computed yet.
_UNASKED = -1


class Subject:
    """One process, or one device, in one sample; values that several analyzers use are computed once.

    Args:
        device: The device it is on; None where the process could not be matched to one.
        rank: The process; None where the device as a whole is the subject.
    """

    __slots__ = ("_key", "_limit_bytes", "allocator", "device", "rank", "sample")

    def __init__(self, sample: Sample, device: DeviceSample | None, rank: RankSample | None) -> None:
        self.sample = sample
        self.device = device
        self.rank = rank
        owner = device if rank is None else rank
        # Values of its allocator; all None where unknown.
        self.allocator: AllocatorReading = (None if owner is None else owner.allocator) or _NOTHING
        self._key: SubjectKey | None = None
        self._limit_bytes: int | None = _UNASKED

    @property
    def key(self) -> SubjectKey:
        if self._key is None:
            process = (None, None) if self.rank is None else (self.rank.pid, self.rank.started_s)
            self._key = (self.sample.node, self.device_uuid or "", *process)
        return self._key

    @property
    def device_uuid(self) -> str | None:
        if self.device is not None:
            return self.device.uuid
        return None if self.rank is None else self.rank.device_uuid

    @property
    def name(self) -> str:
        """Its name in a sentence: `rank 3`, `process 4711`, `GPU 0`."""
        if self.rank is not None:
            return name_rank(self.rank)
        return "the device" if self.device is None else name_device(self.device)

    @property
    def about(self) -> str | None:
        """Part of the id of a finding on it."""
        return self.device_uuid if self.rank is None else f"{self.device_uuid or ''}#{self.rank.pid}"

    @property
    def device_label(self) -> str | None:
        return None if self.device is None else self.device.label

    @property
    def step(self) -> int | None:
        """Number of the newest step that ended, or of the step in progress where only that is recorded."""
        if self.rank is not None:
            return None if self.rank.step is None else self.rank.step.index
        return None if self.device is None else self.device.step

    @property
    def limit_bytes(self) -> int | None:
        """Most bytes that its allocator can really reserve at this tick; None where that is unknown.

        Its reserved bytes and what is free, since an allocator gives its cache back before it fails and
        others keep theirs; at most what `set_per_process_memory_fraction` allows. Where free memory of the
        device
        is unknown, its capacity: an upper bound.
        """
        if self._limit_bytes == _UNASKED:
            self._limit_bytes = self._find_limit()
        return self._limit_bytes

    def _find_limit(self) -> int | None:
        cap = self.rank.capacity_bytes if self.rank is not None else None
        reachable = self._reachable_bytes()
        if cap is None or reachable is None:
            return reachable if cap is None else cap
        return min(cap, reachable)

    def _reachable_bytes(self) -> int | None:
        if self.device is None:
            return None
        memory = self.device.memory
        reserved = self.allocator.reserved_bytes
        if reserved is None or memory.free_bytes is None:
            return memory.total_bytes
        return reserved + memory.free_bytes


class _Newest(NamedTuple):
    sample: Sample | None
    subjects: tuple[Subject, ...]


# The newest sample asked about: every analyzer of a host asks about each sample in turn.
_newest = _Newest(None, ())


def subjects_of(sample: Sample) -> tuple[Subject, ...]:
    """Return the living processes that reported their memory, then the devices without any such process.

    Devices that are not well, whose values are old, are left out; so are ranks that are stale or have ended.
    """
    global _newest  # noqa: PLW0603 - one answer is remembered; samples are frozen, so it stays true
    newest = _newest
    if newest.sample is not sample:
        newest = _newest = _Newest(sample, tuple(_find_subjects(sample)))
    return newest.subjects


def _find_subjects(sample: Sample) -> Iterator[Subject]:
    devices = {device.uuid: device for device in sample.devices}
    inhabited = {rank.device_uuid for rank in sample.ranks if rank.state != "ended"}
    for rank in sample.ranks:
        if rank.state == "ok" and rank.allocator is not None:
            yield Subject(sample, devices.get(rank.device_uuid or ""), rank)
    for device in sample.devices:
        if device.state == "ok" and device.uuid not in inhabited:
            yield Subject(sample, device, None)


def name_device(device: DeviceSample) -> str:
    """Name a device in a sentence: `GPU 3`, `MIG 0:1`, `rank 3` or `CPU`."""
    return "CPU" if device.kind == "cpu" else f"{_noun(device)} {device.label}"


def name_found_device(finding: Finding, sample: Sample | None) -> str | None:
    """Name the device of a finding as its title does; None for a finding on the node as a whole."""
    if finding.device is None:
        return None
    devices = () if sample is None else sample.devices
    found = next((device for device in devices if device.uuid == finding.device_uuid), None)
    return f"GPU {finding.device}" if found is None else name_device(found)


def drop_name(sentence: str, name: str) -> str:
    """Return what a sentence says of a device, without the name that it begins with or that of a process."""
    return re.sub(rf"^{re.escape(name)}\s*(\([^)]*\))?\s*", "", sentence).rstrip(".")


def name_devices(devices: Sequence[DeviceSample]) -> str:
    """Name several devices in a sentence: `GPUs 0, 2 and 5`, or their number past four."""
    if len(devices) == 1:
        return name_device(devices[0])
    nouns = {_noun(device) for device in devices}
    noun = nouns.pop() if len(nouns) == 1 else "device"
    if len(devices) > 4:
        return f"{len(devices)} {noun}s"
    labels = [device.label for device in devices]
    return f"{noun}s {', '.join(labels[:-1])} and {labels[-1]}"


def _noun(device: DeviceSample) -> str:
    if device.kind == "trace":
        return "rank"
    return "MIG" if device.kind == "mig" else "GPU"


def name_rank(rank: RankSample) -> str:
    """Name a process in a sentence: `rank 3`, or `process 4711` where its rank is unknown."""
    return f"process {rank.pid}" if rank.coordinates is None else f"rank {rank.coordinates.rank}"


# What fills a device: live tensors, the allocators' cache and the rest, where a probe distinguishes them.

# Below this share of the device's total, giving the cache back makes no room worth naming.

LITTLE_CACHE_SHARE = 0.05


class Holdings(NamedTuple):
    """What the allocators on one device hold, in bytes."""

    # Live tensors of all processes that report.
    live_bytes: int
    # Reserved, not allocated, and free to be given back: without stranded bytes.
    cache_bytes: int
    # Free pieces of segments that are partly in use; the allocator cannot give them back.
    stranded_bytes: int
    # Device used less reserved: contexts, NCCL buffers, processes that do not report.
    outside_bytes: int | None

    @property
    def words(self) -> str:
        parts = [
            f"live tensors {format_bytes(self.live_bytes)}",
            f"cache that the allocator frees before it fails {format_bytes(self.cache_bytes)}",
        ]
        if self.stranded_bytes:
            parts.append(f"stranded {format_bytes(self.stranded_bytes)}")
        if self.outside_bytes is not None:
            parts.append(f"outside the allocators {format_bytes(self.outside_bytes)}")
        return ", ".join(parts)

    def advise(self, total_bytes: int) -> str:
        """Return what these parts mean for the job, and what to do, in one sentence."""
        largest = max(self.live_bytes, self.cache_bytes, self.stranded_bytes, self.outside_bytes or 0)
        if self.cache_bytes >= LITTLE_CACHE_SHARE * total_bytes:
            return (
                f"The job can still use {format_bytes(self.cache_bytes)} of its cache; to leave room "
                "for another process, cap the cache with "
                "torch.cuda.set_per_process_memory_fraction(0.95)"
            )
        if largest == self.outside_bytes:
            return (
                "Most is outside the reporting allocators: end other processes on the device, or start "
                "them with `vramscope run` to see what they use"
            )
        if largest == self.stranded_bytes:
            return "Most is stranded: try PYTORCH_ALLOC_CONF=expandable_segments:True"
        return "Little cache is left to free: lower the micro-batch, recompute activations or shard further"


def measure_holdings(sample: Sample, device: DeviceSample) -> Holdings | None:
    """Measure what the allocators on a device hold; None where none reports live and reserved bytes."""
    ranks = [it for it in sample.ranks if it.device_uuid == device.uuid and it.state == "ok"]
    readings = [it.allocator for it in ranks if it.allocator is not None]
    if not readings and device.allocator is not None:
        readings = [device.allocator]
    return _add_up(readings, device.memory.used_bytes)


def _add_up(readings: Iterable[AllocatorReading], used_bytes: int | None) -> Holdings | None:
    live = reserved = stranded = 0
    is_known = False
    for it in readings:
        if it.allocated_bytes is None or it.reserved_bytes is None:
            return None
        is_known = True
        live += it.allocated_bytes
        reserved += it.reserved_bytes
        stranded += it.inactive_split_bytes or 0
    if not is_known:
        return None
    free_bytes = max(0, reserved - live)
    stranded = min(stranded, free_bytes)
    outside = None if used_bytes is None else max(0, used_bytes - reserved)
    return Holdings(live, free_bytes - stranded, stranded, outside)
