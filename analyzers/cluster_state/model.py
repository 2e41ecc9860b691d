"""What is known of several nodes together. None means unmeasured; it is never 0 and never a guess."""

from typing import NamedTuple

import msgspec

from ...engine.model import HeadroomEstimate, RiskLevel
from ..stage_peaks import JobStages


class RankKey(NamedTuple):
    """What tells a training process from all others of all nodes."""

    node: str
    pid: int
    started_s: float | None


class ClusterRank(msgspec.Struct, frozen=True, gc=False):
    """One training process of a node, with what threatens it."""

    key: RankKey
    job: str | None
    """Which `vramscope run` it belongs to, as its node tells."""
    device_uuid: str | None
    device: str
    """What a sentence calls its device: `GPU 3`."""
    is_old: bool = False
    """Whether its figures are not of now: its node is lost, or it does not report."""
    age_s: float | None = None
    """How long it had been running at its newest sample."""
    rank: int | None = None
    world_size: int | None = None
    pp: int | None = None
    level: RiskLevel = "unknown"
    oom_s: float | None = None
    """When an error is foreseen, by our own clock; None where none is."""
    probability: float | None = None
    """Probability of an out-of-memory error within the forecast's horizon, 0 to 1."""
    allocated_bytes: int | None = None
    peak_bytes: int | None = None
    """Most that was allocated at once within its newest step or tick."""
    reserved_bytes: int | None = None
    inactive_split_bytes: int | None = None
    limit_bytes: int | None = None
    """Most that its allocator can really reserve now."""
    device_total_bytes: int | None = None
    device_free_bytes: int | None = None
    headroom: tuple[HeadroomEstimate, ...] = ()
    """The largest step that would fit, where the program tells its sizes."""

    @property
    def name(self) -> str:
        """What a sentence calls it: `rank 37`, or `process 4711` where it has told no rank."""
        return f"process {self.key.pid}" if self.rank is None else f"rank {self.rank}"

    @property
    def place(self) -> str:
        """Where it is: `GPU 5 of n4`."""
        return f"{self.device} of {self.key.node}"


class NodeLoad(msgspec.Struct, frozen=True, gc=False):
    """How full the devices of a node are."""

    node: str
    is_lost: bool
    """Whether its figures are the last that were heard."""
    devices: int
    """Devices whose memory is known."""
    mean_share: float | None
    """Used share of their memory on average, 0 to 1."""


class StageLoad(msgspec.Struct, frozen=True, gc=False):
    """What one pipeline stage of a job needed at most since it is watched."""

    stage: int
    ranks: int
    """Ranks of the stage that were seen."""
    nodes: tuple[str, ...]
    peak_bytes: int
    """Most live bytes on one rank."""
    level: RiskLevel
    """Gravest level of its ranks."""
    planned_bytes: int | None = None
    """What the plan says of a rank of this stage."""

    @property
    def difference_bytes(self) -> int | None:
        """Measured less planned."""
        return None if self.planned_bytes is None else self.peak_bytes - self.planned_bytes


class Diverging(msgspec.Struct, frozen=True):
    """The rank of a job that grew away from its peers first."""

    key: RankKey
    name: str
    place: str
    since_s: float
    """When that was found, by our own clock."""


class JobState(msgspec.Struct, frozen=True):
    """One job over its nodes."""

    key: str
    """The name of its `vramscope run`; of several that were joined, of the one with the lowest rank."""
    nodes: tuple[str, ...]
    ranks: tuple[ClusterRank, ...]
    """In the order of their ranks."""
    world_size: int | None = None
    balance: float | None = None
    """How evenly its devices are filled: 1 where all are equally full."""
    bottleneck_nodes: tuple[str, ...] = ()
    """Nodes whose devices are 1.2 times as full as all of the job's, or more, on average."""
    stages: tuple[StageLoad, ...] = ()
    stage_skew: float | None = None
    """Highest peak of a stage over the mean of all stages; None with fewer than two."""
    bottleneck_stages: tuple[int, ...] = ()
    """Stages that peak at 1.2 times the mean of all stages or more."""
    planned_skew: float | None = None
    """The same of the plan's figures."""
    first_diverging: Diverging | None = None
    measured: JobStages = JobStages()
    """What its stages needed at most, in parts and as a whole."""

    @property
    def label(self) -> str:
        """What a sentence calls it: `job gpt (16 ranks on 2 nodes)`."""
        ranks = self.world_size or len(self.ranks)
        return f"job {self.key} ({count(ranks, 'rank')} on {count(len(self.nodes), 'node')})"


class ClusterPicture(msgspec.Struct, frozen=True):
    """All nodes at one moment."""

    time_s: float = 0.0
    """By our own clock."""
    live: int = 0
    total: int = 0
    """Nodes that are known; fewer may be live."""
    balance: float | None = None
    """How evenly the devices of all live nodes are filled: 1 where all are equally full."""
    nodes: tuple[NodeLoad, ...] = ()
    bottleneck_nodes: tuple[str, ...] = ()
    jobs: tuple[JobState, ...] = ()
    """Those of two ranks or more, by name."""
    others: tuple[ClusterRank, ...] = ()
    """Processes that are of no such job."""
    devices_left_out: int = 0
    """Devices of live nodes that are not followed, because nobody asked for them."""

    @property
    def measured(self) -> JobStages:
        """What the stages of the largest job needed at most."""
        return max(self.jobs, key=lambda job: len(job.ranks)).measured if self.jobs else JobStages()

    @property
    def coverage(self) -> str:
        """How much is seen, where that is not all: `118 of 128 nodes`; else empty."""
        return f"{self.live:,} of {self.total:,} nodes" if self.live < self.total else ""


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 rank`, `1,024 ranks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
