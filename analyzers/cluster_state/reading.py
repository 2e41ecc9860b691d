"""From the newest snapshot of a node to its training processes and how full its devices are."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from ...engine.model import AllocatorReading, Assessment, DeviceSample, RankSample, RiskLevel, Sample
from ...engine.viewer.snapshot import Snapshot
from ..device_names import name_device
from ..risk import LEVELS
from .model import ClusterRank, NodeLoad, RankKey

_NOTHING = AllocatorReading()
_GRAVE = LEVELS.index("medium")
Words = Mapping[tuple[int | None, float | None], Assessment]


class NodeReading(NamedTuple):
    """One node as it was last heard."""

    load: NodeLoad
    shares: Mapping[str, float]
    """Used share of each device whose memory is known, by UUID."""
    ranks: Mapping[RankKey, ClusterRank]
    """Processes that have not ended."""
    devices_left_out: int = 0
    """Devices that are not followed."""


def read_node(snapshot: Snapshot, arrived_s: float) -> NodeReading:
    """Return what a node tells.

    Args:
        snapshot: Its newest; a lost node's is read as of its last sample.
        arrived_s: When that sample came, by our own clock.
    """
    sample = snapshot.sample
    is_lost = snapshot.connection == "lost"
    if sample is None:
        return NodeReading(NodeLoad(snapshot.node, is_lost, 0, None), {}, {})
    shares = {it.uuid: share for it in sample.devices if (share := _find_share(it)) is not None}
    mean = math.fsum(shares.values()) / len(shares) if shares else None
    return NodeReading(
        NodeLoad(snapshot.node, is_lost, len(shares), mean),
        shares,
        _read_ranks(snapshot, sample, arrived_s),
        sample.devices_left_out,
    )


def _find_share(device: DeviceSample) -> float | None:
    memory = device.memory
    if device.state != "ok" or memory.used_bytes is None or not memory.total_bytes:
        return None
    return memory.used_bytes / memory.total_bytes


def _read_ranks(snapshot: Snapshot, sample: Sample, arrived_s: float) -> dict[RankKey, ClusterRank]:
    devices = {device.uuid: device for device in sample.devices}
    words: Words = {(it.pid, it.started_s): it for it in snapshot.assessments if it.pid is not None}
    found = {}
    for rank in sample.ranks:
        if rank.state != "ended":
            key = RankKey(snapshot.node, rank.pid, rank.started_s)
            word = words.get((rank.pid, rank.started_s))
            device = devices.get(rank.device_uuid or "")
            is_old = snapshot.connection == "lost" or rank.state == "stale"
            found[key] = _read_rank(key, rank, device, word, is_old, sample.time_s, arrived_s)
    return found


def _read_rank(
    key: RankKey,
    rank: RankSample,
    device: DeviceSample | None,
    word: Assessment | None,
    is_old: bool,
    time_s: float,
    arrived_s: float,
) -> ClusterRank:
    allocator = rank.allocator or _NOTHING
    place = rank.coordinates
    memory = None if device is None else device.memory
    return ClusterRank(
        key=key,
        job=rank.job,
        device_uuid=rank.device_uuid,
        device="its device" if device is None else name_device(device),
        is_old=is_old,
        age_s=_find_age(rank, time_s),
        rank=None if place is None else place.rank,
        world_size=None if place is None else place.world_size,
        pp=None if place is None else place.pp,
        level=_find_level(word, is_old),
        oom_s=_find_time(word, time_s, arrived_s),
        probability=None if word is None else word.probability,
        allocated_bytes=allocator.allocated_bytes,
        peak_bytes=_find_peak(rank, allocator),
        reserved_bytes=allocator.reserved_bytes,
        inactive_split_bytes=allocator.inactive_split_bytes,
        limit_bytes=_find_limit(rank, allocator, device),
        device_total_bytes=None if memory is None else memory.total_bytes,
        device_free_bytes=None if memory is None else memory.free_bytes,
        headroom=() if word is None else word.headroom,
    )


def _find_level(word: Assessment | None, is_old: bool) -> RiskLevel:
    """Return the level that stands; of a process that is not heard only a grave one does."""
    if word is None or (is_old and LEVELS.index(word.level) < _GRAVE):
        return "unknown"
    return word.level


def _find_time(word: Assessment | None, time_s: float, arrived_s: float) -> float | None:
    """Return when an error is foreseen, by our clock: both times of the node are of its own clock."""
    if word is None or word.oom_in_s is None:
        return None
    at_s = arrived_s + word.oom_in_s - max(0.0, time_s - word.time_s)
    return at_s if math.isfinite(at_s) else None


def _find_age(rank: RankSample, time_s: float) -> float | None:
    age_s = None if rank.started_s is None else time_s - rank.started_s
    return age_s if age_s is not None and math.isfinite(age_s) else None


def _find_peak(rank: RankSample, allocator: AllocatorReading) -> int | None:
    step = None if rank.step is None else rank.step.peak_bytes
    known = (allocator.allocated_bytes, allocator.allocated_max_bytes, rank.peak_max_bytes, step)
    return max([it for it in known if it is not None], default=None)


def _find_limit(rank: RankSample, allocator: AllocatorReading, device: DeviceSample | None) -> int | None:
    known = [] if rank.capacity_bytes is None else [rank.capacity_bytes]
    if device is not None:
        memory = device.memory
        is_told = allocator.reserved_bytes is not None and memory.free_bytes is not None
        reachable = (allocator.reserved_bytes or 0) + (memory.free_bytes or 0)
        known += [reachable] if is_told else [] if memory.total_bytes is None else [memory.total_bytes]
    return min(known, default=None)
