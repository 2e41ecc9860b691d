"""One sample of all nodes together, so that what compares the ranks of a node can compare those of a cluster.

Its time is ours, its ranks bear the name of their whole job, and a device is named by its node as well.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

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


class SampleMerger:
    """Gathers the samples of nodes and makes one of them."""

    def __init__(self) -> None:
        self._known: dict[str, dict[RankKey, _Known]] = {}
        self._intervals_s: dict[str, float] = {}
        self._seq = 0

    def take(self, node: str, sample: Sample) -> None:
        """Take a sample that has not been taken yet.

        Args:
            node: What the node is called.
            sample: The sample.
        """
        devices, before = {it.uuid: it for it in sample.devices}, self._known.get(node, {})
        known = {}
        for rank in sample.ranks:
            if rank.state != "ended" and rank.coordinates is not None:
                key = RankKey(node, rank.pid, rank.started_s)
                known[key] = _join(before.get(key), rank, devices.get(rank.device_uuid or ""))
        self._known[node], self._intervals_s[node] = known, sample.interval_s

    def forget(self, node: str) -> None:
        """Leave out a node from now on."""
        self._known.pop(node, None)
        self._intervals_s.pop(node, None)

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
        merged = [self._merge_job(job, lost, time_s, interval_s) for job in jobs]
        self._known = {node: _age(known) for node, known in self._known.items()}
        return merged

    def _merge_job(self, job: JobMembers, lost: Collection[str], time_s: float, interval_s: float) -> Sample:
        found = [(key, known) for key in job.members if (known := self._find(key)) is not None]
        devices = {(key.node, it.device.uuid): it.device for key, it in found if it.device is not None}
        return Sample(
            node=CLUSTER,
            seq=self._seq,
            time_s=time_s,
            interval_s=max([interval_s, *(self._intervals_s[key.node] for key, _ in found)]),
            devices=tuple(_name_devices(devices)),
            ranks=tuple(_place(key, it, job.key, is_still=key.node in lost) for key, it in found),
        )

    def _find(self, key: RankKey) -> _Known | None:
        return self._known.get(key.node, {}).get(key)


def name_device_uuid(node: str, uuid: str) -> str:
    """Return the UUID of a device in a merged sample; those of modelled cards are alike on all nodes."""
    return f"{node}\n{uuid}"


def read_device_uuid(name: str) -> tuple[str, str]:
    """Return node and UUID of a device of a merged sample."""
    node, _, uuid = name.partition("\n")
    return node, uuid


def _join(before: _Known | None, rank: RankSample, device: DeviceSample | None) -> _Known:
    """Return what is known with a newer sample: least floor and highest peak since the last merging."""
    floor, peak = rank.floor_min_bytes, rank.peak_max_bytes
    if before is None:
        return _Known(rank, device, floor, floor, peak)
    newest = before.newest_floor_bytes if floor is None else floor
    least, most = before.floor_min_bytes, before.peak_max_bytes
    if least is not None and (floor is None or least < floor):
        floor = least
    if most is not None and (peak is None or most > peak):
        peak = most
    return _Known(rank, device, newest, floor, peak)


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
        allocator=rank.allocator or AllocatorReading(),
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


def _age(known: Mapping[RankKey, _Known]) -> dict[RankKey, _Known]:
    """Return processes without what they told of steps, which has been told on."""
    return {key: it._replace(floor_min_bytes=None, peak_max_bytes=None) for key, it in known.items()}
