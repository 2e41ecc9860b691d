"""State of several nodes together. None means unmeasured; it is never 0 and never a guess."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from ...engine.model import (
    AllocatorReading,
    Assessment,
    DeviceSample,
    HeadroomEstimate,
    RankSample,
    RiskLevel,
    Sample,
)
from ...engine.unmeasured import most_known
from ...engine.viewer.snapshot import Snapshot
from ..findings.subjects import name_device
from ..risk import LEVELS
from ..sentence import count
from ..stage_peaks import JobStages


class RankKey(NamedTuple):
    """Identifies a training process among all of all nodes."""

    node: str
    pid: int
    started_s: float | None


class ClusterRank(msgspec.Struct, frozen=True, gc=False):
    """One training process of a node, with what threatens it."""

    key: RankKey
    # Its `vramscope run`, as reported by its node.
    job: str | None
    device_uuid: str | None
    # The name of its device in a sentence: `GPU 3`.
    device: str
    # Whether its values are old: its node is lost, or it does not report.
    is_old: bool = False
    # How long it had been running at its newest sample.
    age_s: float | None = None
    rank: int | None = None
    world_size: int | None = None
    pp: int | None = None
    level: RiskLevel = "unknown"
    # When an error is forecast, by our own clock; None without a forecast.
    oom_s: float | None = None
    # Probability of an out-of-memory error within the forecast's horizon, 0 to 1.
    probability: float | None = None
    allocated_bytes: int | None = None
    # Most that was allocated at once within its newest step or tick.
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    inactive_split_bytes: int | None = None
    # Most that its allocator can really reserve now.
    limit_bytes: int | None = None
    device_total_bytes: int | None = None
    device_free_bytes: int | None = None
    # The largest step that would fit, where the program reports its sizes.
    headroom: tuple[HeadroomEstimate, ...] = ()

    @property
    def name(self) -> str:
        """Its name in a sentence: `rank 37`, or `process 4711` where its rank is unknown."""
        return f"process {self.key.pid}" if self.rank is None else f"rank {self.rank}"

    @property
    def place(self) -> str:
        """Its place: `GPU 5 of n4`."""
        return f"{self.device} of {self.key.node}"


class NodeLoad(msgspec.Struct, frozen=True, gc=False):
    """How full the devices of a node are."""

    node: str
    # Whether its values are the last before it was lost.
    is_lost: bool
    # Devices whose memory is known.
    devices: int
    # Used share of their memory on average, 0 to 1.
    mean_share: float | None


class StageLoad(msgspec.Struct, frozen=True, gc=False):
    """The most that one pipeline stage of a job has needed while watched."""

    stage: int
    ranks: int
    """Ranks of the stage that were seen."""
    nodes: tuple[str, ...]
    peak_bytes: int
    """Most live bytes on one rank."""
    level: RiskLevel
    """Highest risk level of its ranks."""
    planned_bytes: int | None = None
    """What the plan expects of a rank of this stage."""

    @property
    def difference_bytes(self) -> int | None:
        return None if self.planned_bytes is None else self.peak_bytes - self.planned_bytes


class Diverging(msgspec.Struct, frozen=True):
    """The rank of a job that grew away from its peers first."""

    key: RankKey
    name: str
    place: str
    # When that was found, by our own clock.
    since_s: float


class JobState(msgspec.Struct, frozen=True):
    """One job over its nodes."""

    # The name of its `vramscope run`; if several were joined, that of the lowest rank.
    key: str
    nodes: tuple[str, ...]
    # In the order of their ranks.
    ranks: tuple[ClusterRank, ...]
    world_size: int | None = None
    # How evenly its devices are filled: 1 where all are equally full.
    balance: float | None = None
    # Nodes whose devices are 1.2 times as full as all of the job's, or more, on average.
    bottleneck_nodes: tuple[str, ...] = ()
    stages: tuple[StageLoad, ...] = ()
    # Highest peak of a stage over the mean of all stages; None with fewer than two.
    stage_skew: float | None = None
    # Stages that peak at 1.2 times the mean of all stages or more.
    bottleneck_stages: tuple[int, ...] = ()
    # The skew of the planned bytes.
    planned_skew: float | None = None
    first_diverging: Diverging | None = None
    # Most bytes of its stages, in parts and as a whole.
    measured: JobStages = JobStages()

    @property
    def label(self) -> str:
        """Its name in a sentence: `job gpt (16 ranks on 2 nodes)`."""
        ranks = self.world_size or len(self.ranks)
        return f"job {self.key} ({count(ranks, 'rank')} on {count(len(self.nodes), 'node')})"


class ClusterPicture(msgspec.Struct, frozen=True):
    """All nodes at one moment."""

    # By our own clock.
    time_s: float = 0.0
    live: int = 0
    # Nodes that are known; fewer may be live.
    total: int = 0
    # How evenly the devices of all live nodes are filled: 1 where all are equally full.
    balance: float | None = None
    nodes: tuple[NodeLoad, ...] = ()
    bottleneck_nodes: tuple[str, ...] = ()
    # Those of two ranks or more, by name.
    jobs: tuple[JobState, ...] = ()
    # Processes without such a job.
    others: tuple[ClusterRank, ...] = ()
    # Devices of live nodes that are not followed, because nobody asked for them.
    devices_left_out: int = 0

    @property
    def measured(self) -> JobStages:
        """Most bytes of the stages of the largest job."""
        return max(self.jobs, key=lambda job: len(job.ranks)).measured if self.jobs else JobStages()

    @property
    def coverage(self) -> str:
        """How much is seen, where that is not all: `118 of 128 nodes`; else empty."""
        return f"{self.live:,} of {self.total:,} nodes" if self.live < self.total else ""


# From the newest snapshot of a node to its training processes and how full its devices are.

_NOTHING = AllocatorReading()
_GRAVE = LEVELS.index("medium")
Words = Mapping[tuple[int | None, float | None], Assessment]


class NodeReading(NamedTuple):
    load: NodeLoad
    # Used share of each device whose memory is known, by UUID.
    shares: Mapping[str, float]
    # Processes that have not ended.
    ranks: Mapping[RankKey, ClusterRank]
    # Devices that are not followed.
    devices_left_out: int = 0


def read_node(snapshot: Snapshot, arrived_s: float) -> NodeReading:
    """Read a node from its newest snapshot, which arrived at `arrived_s` by our own clock.

    A lost node is read as of its last sample.
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
    """Return the valid level; for a process that is not heard only a severe one is."""
    if word is None or (is_old and LEVELS.index(word.level) < _GRAVE):
        return "unknown"
    return word.level


def _find_time(word: Assessment | None, time_s: float, arrived_s: float) -> float | None:
    """Return when an error is forecast, by our clock: both times of the node are of its own clock."""
    if word is None or word.oom_in_s is None:
        return None
    at_s = arrived_s + word.oom_in_s - max(0.0, time_s - word.time_s)
    return at_s if math.isfinite(at_s) else None


def _find_age(rank: RankSample, time_s: float) -> float | None:
    age_s = None if rank.started_s is None else time_s - rank.started_s
    return age_s if age_s is not None and math.isfinite(age_s) else None


def _find_peak(rank: RankSample, allocator: AllocatorReading) -> int | None:
    step = None if rank.step is None else rank.step.peak_bytes
    return most_known((allocator.allocated_bytes, allocator.allocated_max_bytes, rank.peak_max_bytes, step))


def _find_limit(rank: RankSample, allocator: AllocatorReading, device: DeviceSample | None) -> int | None:
    known = [] if rank.capacity_bytes is None else [rank.capacity_bytes]
    if device is not None:
        memory = device.memory
        is_told = allocator.reserved_bytes is not None and memory.free_bytes is not None
        reachable = (allocator.reserved_bytes or 0) + (memory.free_bytes or 0)
        known += [reachable] if is_told else [] if memory.total_bytes is None else [memory.total_bytes]
    return min(known, default=None)
