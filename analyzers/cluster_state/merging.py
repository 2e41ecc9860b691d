"""One sample of all nodes together, so that what compares the ranks of a node can compare those of a cluster.

Its time is ours, its ranks bear the name of their whole job, and a device is named by its node as well.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from ...engine.model import AllocatorReading, DeviceSample, RankSample, Sample
from .jobs import JobMembers
from .model import RankKey

CLUSTER = "cluster"
"""What the merged sample calls its node."""


class _Known(NamedTuple):
    """One process as its node told it last, and its device."""

    rank: RankSample
    device: DeviceSample | None
    newest_floor_bytes: int | None
    """Of the newest step that told one."""
    floor_min_bytes: int | None
    """Least floor since the last merging; None where no step ended."""
    peak_max_bytes: int | None
    """Highest peak since the last merging."""
    allocated_max_bytes: int | None
    """Most that was allocated at once since then, where its allocator tells."""


@dataclass(slots=True)
class _RankExtremes:
    """What a process told of its steps, sample after sample."""

    key: RankKey
    newest_floor_bytes: int | None = None
    floor_min_bytes: int | None = None
    peak_max_bytes: int | None = None
    allocated_max_bytes: int | None = None

    def add(self, rank: RankSample) -> None:
        """Take a newer sample of it."""
        floor = rank.floor_min_bytes
        peak = rank.peak_max_bytes
        if floor is not None:
            self.newest_floor_bytes = floor
            if self.floor_min_bytes is None or floor < self.floor_min_bytes:
                self.floor_min_bytes = floor
        if peak is not None and (self.peak_max_bytes is None or peak > self.peak_max_bytes):
            self.peak_max_bytes = peak
        most = None if rank.allocator is None else rank.allocator.allocated_max_bytes
        if most is not None and (self.allocated_max_bytes is None or most > self.allocated_max_bytes):
            self.allocated_max_bytes = most

    def forget(self) -> None:
        """Begin anew; what was told has been told on."""
        self.floor_min_bytes = self.peak_max_bytes = self.allocated_max_bytes = None

    def tell(self, rank: RankSample, device: DeviceSample | None) -> _Known:
        """Return it with the newest sample of it."""
        extremes = (self.newest_floor_bytes, self.floor_min_bytes, self.peak_max_bytes)
        return _Known(rank, device, *extremes, self.allocated_max_bytes)


@dataclass(slots=True)
class _NodeExtremes:
    """The newest sample of a node, and what its processes told since the last merging."""

    sample: Sample
    processes: list[_RankExtremes]
    """One for each of the ranks of the sample that count, in their order."""

    def find(self) -> Iterator[tuple[RankKey, _Known]]:
        """Yield its processes."""
        devices = {it.uuid: it for it in self.sample.devices}
        for rank, it in zip(_choose_ranks(self.sample), self.processes, strict=True):
            yield it.key, it.tell(rank, devices.get(rank.device_uuid or ""))


class SampleMerger:
    """Gathers the samples of nodes and makes one of them."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeExtremes] = {}
        self._seq = 0

    def take(self, node: str, sample: Sample) -> None:
        """Take a sample that has not been taken yet.

        Args:
            node: What the node is called.
            sample: The sample.
        """
        ranks = _choose_ranks(sample)
        before = self._nodes.get(node)
        processes = [] if before is None else before.processes
        if [(it.pid, it.started_s) for it in ranks] != [it.key[1:] for it in processes]:
            known = {it.key: it for it in processes}
            keys = [RankKey(node, it.pid, it.started_s) for it in ranks]
            processes = [known.get(key) or _RankExtremes(key) for key in keys]
        for rank, process in zip(ranks, processes, strict=True):
            process.add(rank)
        self._nodes[node] = _NodeExtremes(sample, processes)

    def forget(self, node: str) -> None:
        """Leave out a node from now on."""
        self._nodes.pop(node, None)

    def merge(
        self, jobs: Iterable[JobMembers], lost: Collection[str], time_s: float, interval_s: float
    ) -> list[Sample]:
        """Return a sample for each job, in their order.

        A rank of which nothing was heard since the last merging tells no step. One of a lost node stands
        still: its last floor is told again, so that its peers go on being compared.

        Args:
            jobs: Whose ranks they are.
            lost: Nodes that are not heard.
            time_s: Now, by our own clock.
            interval_s: From one merging to the next.
        """
        self._seq += 1
        known = {key: it for node in self._nodes.values() for key, it in node.find()}
        merged = [self._merge_job(job, known, lost, time_s, interval_s) for job in jobs]
        for node in self._nodes.values():
            for process in node.processes:
                process.forget()
        return merged

    def _merge_job(
        self,
        job: JobMembers,
        all_known: Mapping[RankKey, _Known],
        lost: Collection[str],
        time_s: float,
        interval_s: float,
    ) -> Sample:
        found = [(key, known) for key in job.members if (known := all_known.get(key)) is not None]
        devices = {(key.node, it.device.uuid): it.device for key, it in found if it.device is not None}
        nodes = {key.node for key, _ in found}
        return Sample(
            node=CLUSTER,
            seq=self._seq,
            time_s=time_s,
            interval_s=max([interval_s, *(self._nodes[node].sample.interval_s for node in nodes)]),
            devices=tuple(_name_devices(devices)),
            ranks=tuple(_place(key, it, job.key, is_still=key.node in lost) for key, it in found),
        )


def _choose_ranks(sample: Sample) -> list[RankSample]:
    """Return the processes that can be compared: those that run and have told their place."""
    return [rank for rank in sample.ranks if rank.state != "ended" and rank.coordinates is not None]


def name_device_uuid(node: str, uuid: str) -> str:
    """Return the UUID of a device in a merged sample; those of modelled cards are alike on all nodes."""
    return f"{node}\n{uuid}"


def read_device_uuid(name: str) -> tuple[str, str]:
    """Return node and UUID of a device of a merged sample."""
    node, _, uuid = name.partition("\n")
    return node, uuid


def _place(key: RankKey, known: _Known, job: str, *, is_still: bool) -> RankSample:
    rank = known.rank
    floor = known.newest_floor_bytes if is_still else known.floor_min_bytes
    return RankSample(
        pid=rank.pid,
        started_s=rank.started_s,
        job=job,
        device_uuid=None if rank.device_uuid is None else name_device_uuid(key.node, rank.device_uuid),
        is_simulated=rank.is_simulated,
        coordinates=rank.coordinates,
        state=rank.state,
        allocator=_raise_peak(rank.allocator or AllocatorReading(), known.allocated_max_bytes),
        capacity_bytes=rank.capacity_bytes,
        step=rank.step,
        floor_min_bytes=floor,
        peak_max_bytes=known.peak_max_bytes,
    )


def _raise_peak(allocator: AllocatorReading, most_bytes: int | None) -> AllocatorReading:
    """Return what an allocator told last, with the most that it told."""
    if most_bytes is None or most_bytes == allocator.allocated_max_bytes:
        return allocator
    return replace(allocator, allocated_max_bytes=most_bytes)


def _name_devices(devices: Mapping[tuple[str, str], DeviceSample]) -> Iterator[DeviceSample]:
    for (node, uuid), device in devices.items():
        yield DeviceSample(
            name_device_uuid(node, uuid),
            device.index,
            kind=device.kind,
            state=device.state,
            memory=device.memory,
        )
