"""What is remembered of one job: what its stages needed at most, and who grew away from the others."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ...engine.model import Finding, Sample, make_finding_id
from ..balance.node_balance import BOTTLENECK_FACTOR, find_bottlenecks, measure_balance
from ..closing import close_finding
from ..divergence import DivergenceAnalyzer
from ..finding_evidence import read_evidence, read_process
from ..risk import LEVELS
from ..stage_peaks import StagePeak, StagePeaks
from .jobs import JobMembers
from .merging import read_device_uuid
from .model import ClusterRank, Diverging, JobState, RankKey, StageLoad
from .reading import NodeReading

CLUSTER_DIVERGENCE = "cluster_divergence"


@dataclass(slots=True)
class JobWatch:
    """One job, sample after sample."""

    divergence: DivergenceAnalyzer = field(default_factory=DivergenceAnalyzer)
    peaks: StagePeaks = field(default_factory=StagePeaks)
    grown: dict[str, tuple[Finding, RankKey]] = field(default_factory=dict)
    """Open findings on ranks that grew away from their peers, by id."""
    told: set[str] = field(default_factory=set)
    """Findings of which somebody was told."""

    @property
    def open(self) -> list[Finding]:
        """Findings on such ranks that somebody was told of."""
        return [told for told, _ in self.grown.values() if told.id in self.told]

    def observe(self, sample: Sample, ranks: Mapping[RankKey, ClusterRank]) -> Iterator[Finding]:
        """Take the job's part of a merged sample; yield findings that opened, changed or closed.

        Args:
            sample: With the ranks of this job alone.
            ranks: Those ranks, as they stand.
        """
        self.peaks.observe(sample)
        if len({key.node for key in ranks}) < 2:
            return  # the agent of its node says the same
        for finding in self.divergence.observe(sample):
            told, key = _translate(finding, ranks)
            if read_evidence(finding, "what") == "growth":
                self.grown[told.id] = (told, key)
            if told.id in self.told or not _is_local(key, ranks):
                self.told.add(told.id)
                yield told
            if not told.is_open:
                self.grown.pop(told.id, None)
                self.told.discard(told.id)

    def end(self, time_s: float) -> Iterator[Finding]:
        """Yield what is open as closed: the job has ended."""
        for told in self.open:
            yield close_finding(told, time_s, "its job has ended")

    def find_first(self, ranks: Mapping[RankKey, ClusterRank]) -> Diverging | None:
        """Return the rank that grew away first, of those that still do."""
        first = min(self.grown.values(), key=lambda it: (it[0].opened_s, it[1]), default=None)
        rank = None if first is None else ranks.get(first[1])
        return (
            None
            if first is None or rank is None
            else Diverging(rank.key, rank.name, rank.place, first[0].opened_s)
        )


def describe_job(
    members: JobMembers,
    watch: JobWatch,
    ranks: Mapping[RankKey, ClusterRank],
    nodes: Mapping[str, NodeReading],
    planned: Sequence[int],
) -> JobState:
    """Return a job as it stands.

    Args:
        members: Its ranks.
        watch: What is remembered of it.
        ranks: Every rank of it.
        nodes: Every node.
        planned: What a plan says of a rank of each stage in bytes; empty without a plan.
    """
    known = tuple(ranks[key] for key in members.members if key in ranks)
    shares = _list_shares(known, nodes)
    measured = watch.peaks.tell()
    peaks = [it for it in measured.stages if it.allocated_bytes]
    is_of_plan = bool(peaks) and all(0 <= it.stage < len(planned) for it in peaks)
    stages = tuple(_describe_stage(it, known, planned if is_of_plan else ()) for it in peaks)
    mean = math.fsum(it.peak_bytes for it in stages) / len(stages) if stages else 0.0
    return JobState(
        key=members.key,
        nodes=tuple(sorted({it.key.node for it in known})),
        ranks=known,
        world_size=members.world_size,
        balance=measure_balance([share for its in shares.values() for share in its]),
        bottleneck_nodes=tuple(sorted(find_bottlenecks(shares))),
        stages=stages,
        stage_skew=_measure_skew([it.peak_bytes for it in stages]),
        bottleneck_stages=tuple(
            it.stage for it in stages if len(stages) > 1 and it.peak_bytes >= BOTTLENECK_FACTOR * mean
        ),
        planned_skew=_measure_skew(planned) if is_of_plan else None,
        first_diverging=watch.find_first(ranks),
        measured=measured,
    )


def _measure_skew(sizes_bytes: Sequence[int]) -> float | None:
    """Return the most over the mean; None of fewer than two, or of nothing."""
    total = sum(sizes_bytes)
    return max(sizes_bytes) * len(sizes_bytes) / total if len(sizes_bytes) > 1 and total else None


def _list_shares(known: Sequence[ClusterRank], nodes: Mapping[str, NodeReading]) -> dict[str, list[float]]:
    """Return the used share of each device of a job, by node; those of nodes that are lost are not of now."""
    devices = sorted({(it.key.node, it.device_uuid or "") for it in known if not it.is_old})
    shares: dict[str, list[float]] = {}
    for node, uuid in devices:
        share = nodes[node].shares.get(uuid)
        if share is not None:
            shares.setdefault(node, []).append(share)
    return shares


def _describe_stage(peak: StagePeak, ranks: Sequence[ClusterRank], planned: Sequence[int]) -> StageLoad:
    its = [it for it in ranks if it.pp == peak.stage]
    return StageLoad(
        stage=peak.stage,
        ranks=peak.ranks,
        nodes=tuple(sorted({it.key.node for it in its})),
        peak_bytes=peak.allocated_bytes or 0,
        level=max((it.level for it in its), key=LEVELS.index, default="unknown"),
        planned_bytes=planned[peak.stage] if planned else None,
    )


def _is_local(key: RankKey, ranks: Mapping[RankKey, ClusterRank]) -> bool:
    """Return whether all peers of a rank are on its own node, whose agent says the same."""
    rank = ranks.get(key)
    stage = None if rank is None else rank.pp
    return len({it.key.node for it in ranks.values() if it.pp == stage}) < 2


def _translate(finding: Finding, ranks: Mapping[RankKey, ClusterRank]) -> tuple[Finding, RankKey]:
    """Return a finding on the merged sample as one on the rank's own node, with that rank."""
    node, uuid = read_device_uuid(finding.device_uuid or "")
    pid, started_s = read_process(finding)
    key = RankKey(node, pid or 0, started_s)
    about = f"{uuid}#{pid or ''}#{read_evidence(finding, 'what')}"
    rank = ranks.get(key)
    told = msgspec.structs.replace(
        finding,
        id=make_finding_id(CLUSTER_DIVERGENCE, node, about, finding.opened_s),
        kind=CLUSTER_DIVERGENCE,
        node=node,
        device_uuid=uuid or None,
        title=finding.title if rank is None else f"{finding.title} ({rank.place})",
    )
    return told, key
