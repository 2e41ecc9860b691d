"""Which training processes of several nodes are one job.

Every `vramscope run` has a name of its own, unless `--job` sets it; under torchrun each node has a run,
under srun each rank. Processes of one name are one job, unless two of them claim the same rank.
Runs that have fewer ranks than the size of their world are parts: those of one size that began within ten
minutes are one job, unless they share a rank. What stays ambiguous stays apart.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from ...engine.model import AllocatorReading, DeviceSample, RankSample, Sample
from .model import ClusterRank, RankKey

# Parts of one job begin within so long; ages are compared, since clocks of nodes may differ.
START_TOGETHER_S = 600.0


class JobMembers(NamedTuple):
    """One job of two ranks or more."""

    key: str
    world_size: int | None
    # In the order of their ranks.
    members: tuple[RankKey, ...]


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
    """Return the jobs of some processes, by name; processes without a known rank belong to none."""
    placed = [it for it in ranks if it.rank is not None]
    parts = [part for same in _group_by_name(placed) for part in _join_or_part(same)]
    whole: list[_Part] = []
    incomplete: list[_Part] = []
    for part in parts:
        (incomplete if part.is_incomplete and part.age_s is not None else whole).append(part)
    for alike in _group_by_start(incomplete):
        # Parts in which two processes claim one rank are of different jobs.
        joined = _make_part([rank for part in alike for rank in part.ranks])
        has_twice = len({*joined.numbers}) < len(joined.numbers)
        whole += alike if has_twice else [joined]
    jobs = [part for part in whole if len(part.ranks) > 1]
    names = Counter(part.name for part in jobs)
    described = []
    for part in jobs:
        node = f" on {part.ranks[0].key.node}" if names[part.name] > 1 else ""
        members = tuple(it.key for it in part.ranks)
        described.append(JobMembers(f"{part.name}{node}", part.world_size, members))
    return tuple(sorted(described, key=lambda job: (job.key, job.members)))


def _group_by_name(ranks: Sequence[ClusterRank]) -> list[list[ClusterRank]]:
    """Return processes by the name of their job and the size of their world.

    Attached processes have no name; on one node the size of their world is used instead.
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


def _make_part(ranks: Sequence[ClusterRank]) -> _Part:
    ordered = tuple(sorted(ranks, key=lambda it: (it.rank or 0, it.key.node, it.key.pid)))
    first = ordered[0]
    return _Part(first.job or f"world of {first.world_size}", first.world_size, ordered)


# One sample of all nodes together, so that analyzers that compare the ranks of a node can compare those of a
# cluster.

# Its time is ours, its ranks have the name of their whole job, and a device is named by its node as well.

# Name of the merged sample's node.

CLUSTER = "cluster"


class _Known(NamedTuple):
    """One process in the newest sample of its node, and its device."""

    rank: RankSample
    device: DeviceSample | None
    # From the newest step that reported one.
    newest_floor_bytes: int | None
    # Least floor since the last merging; None where no step ended.
    floor_min_bytes: int | None
    # Highest peak since the last merging.
    peak_max_bytes: int | None
    # Most that was allocated at once since then, where its allocator reports it.
    allocated_max_bytes: int | None


@dataclass(slots=True)
class _RankExtremes:
    key: RankKey
    newest_floor_bytes: int | None = None
    floor_min_bytes: int | None = None
    peak_max_bytes: int | None = None
    allocated_max_bytes: int | None = None

    def add(self, rank: RankSample) -> None:
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
        self.floor_min_bytes = self.peak_max_bytes = self.allocated_max_bytes = None

    def to_known(self, rank: RankSample, device: DeviceSample | None) -> _Known:
        extremes = (self.newest_floor_bytes, self.floor_min_bytes, self.peak_max_bytes)
        return _Known(rank, device, *extremes, self.allocated_max_bytes)


@dataclass(slots=True)
class _NodeExtremes:
    """The newest sample of a node, and the extremes of its processes since the last merging."""

    sample: Sample
    # One for each of the comparable ranks of the sample, in their order.
    processes: list[_RankExtremes]

    def find(self) -> Iterator[tuple[RankKey, _Known]]:
        devices = {it.uuid: it for it in self.sample.devices}
        for rank, it in zip(_choose_ranks(self.sample), self.processes, strict=True):
            yield it.key, it.to_known(rank, devices.get(rank.device_uuid or ""))


class SampleMerger:
    """Collects the samples of nodes and merges them into one."""

    def __init__(self) -> None:
        self._nodes: dict[str, _NodeExtremes] = {}
        self._seq = 0

    def take(self, node: str, sample: Sample) -> None:
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
        self._nodes.pop(node, None)

    def merge(
        self, jobs: Iterable[JobMembers], lost: Collection[str], time_s: float, interval_s: float
    ) -> list[Sample]:
        """Return a sample for each job, in their order.

        A rank without a message since the last merging has no step. One of a lost node stands still: its last
        floor is repeated, so that its peers go on being compared. `lost` are nodes that are not heard; times
        are of our own clock.
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
    """Return the comparable processes: those that run and have reported their coordinates."""
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
    allocator = rank.allocator or AllocatorReading()
    most = known.allocated_max_bytes
    if most is not None and most != allocator.allocated_max_bytes:
        allocator = replace(allocator, allocated_max_bytes=most)
    return RankSample(
        pid=rank.pid,
        started_s=rank.started_s,
        job=job,
        device_uuid=None if rank.device_uuid is None else name_device_uuid(key.node, rank.device_uuid),
        is_simulated=rank.is_simulated,
        coordinates=rank.coordinates,
        state=rank.state,
        allocator=allocator,
        capacity_bytes=rank.capacity_bytes,
        step=rank.step,
        floor_min_bytes=floor,
        peak_max_bytes=known.peak_max_bytes,
    )


def _name_devices(devices: Mapping[tuple[str, str], DeviceSample]) -> Iterator[DeviceSample]:
    for (node, uuid), device in devices.items():
        yield DeviceSample(
            name_device_uuid(node, uuid),
            device.index,
            kind=device.kind,
            state=device.state,
            memory=device.memory,
        )
