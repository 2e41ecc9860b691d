"""State of several nodes together: findings across nodes, and a picture for screens and reports."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ...engine.model import Evidence, Finding, Sample, make_finding_id
from ...engine.viewer.snapshot import Snapshot
from ..balance import BOTTLENECK_FACTOR, find_bottlenecks, measure_balance
from ..divergence import GROWTH, WHAT, DivergenceAnalyzer
from ..findings.evidence import read_process
from ..findings.lifecycle import Crossing, OpenFinding, begin_finding, close_finding, restate
from ..risk import LEVELS
from ..stage_peaks import StagePeak, StagePeaks
from .jobs import JobMembers, SampleMerger, find_jobs, read_device_uuid
from .model import (
    ClusterPicture,
    ClusterRank,
    Diverging,
    JobState,
    NodeReading,
    RankKey,
    StageLoad,
    read_node,
)
from .statements import CLUSTER_OOM, Statement, state_imbalance, state_oom, state_skew

# How often conclusions are drawn; within a period the order of the nodes' messages does not matter.
PERIOD_S = 2.0
# With more nodes than so many, conclusions take longer, and are drawn more seldom, down to one in so long.
NODES_A_PERIOD = 256
LONGEST_PERIOD_S = 8.0
# How often ranks are compared: half a block of time of that comparison. Reports in between are joined, so
# that no step is left out.
COMPARED_EVERY_S = 5.0
# A node that was lost for so long no longer counts, except as one that is not seen.
FORGOTTEN_AFTER_S = 600.0
Signature = tuple[tuple[RankKey, str | None, int | None, int | None], ...]


@dataclass(slots=True)
class _Node:
    snapshot: Snapshot
    # When its newest sample came.
    arrived_s: float
    is_forgotten: bool = False
    _reading: NodeReading | None = None

    @property
    def is_live(self) -> bool:
        return self.snapshot.connection == "live" and self.snapshot.sample is not None

    @property
    def stamp(self) -> tuple[int, float] | None:
        sample = self.snapshot.sample
        return None if sample is None else (sample.seq, sample.time_s)

    @property
    def reading(self) -> NodeReading:
        if self._reading is None:
            self._reading = read_node(self.snapshot, self.arrived_s)
        return self._reading

    @property
    def signature(self) -> Signature:
        """Job and place of its processes."""
        return tuple((key, it.job, it.rank, it.world_size) for key, it in self.reading.ranks.items())


class ClusterState:
    """Collects snapshots of nodes, one after another; pure: the caller supplies the time.

    A plan is bytes for a rank of each pipeline stage; empty without one.
    """

    def __init__(self, planned: Sequence[int] = ()) -> None:
        self._planned = tuple(planned)
        self._nodes: dict[str, _Node] = {}
        self._merger = SampleMerger()
        self._book = FindingBook()
        self._watches: dict[str, JobWatch] = {}
        self._jobs: tuple[JobMembers, ...] = ()
        self._grouped: dict[str, Signature] = {}
        self._ends_s: float | None = None
        self._compared_s: float | None = None
        self.picture = ClusterPicture()
        """All nodes as of the newest conclusion."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        grown = [it for watch in self._watches.values() for it in watch.open]
        return tuple(sorted((*self._book.open, *grown), key=lambda it: (it.opened_s, it.id)))

    @property
    def period_s(self) -> float:
        return min(PERIOD_S * max(1, math.ceil(len(self._nodes) / NODES_A_PERIOD)), LONGEST_PERIOD_S)

    def hold_against(self, planned: Sequence[int]) -> None:
        """Compare stages with another plan (bytes for a rank of each), from the next conclusion on."""
        self._planned = tuple(planned)

    def observe(self, snapshot: Snapshot, received_s: float) -> list[Finding]:
        """Add the newest snapshot of its node; return what opened, changed or closed.

        `received_s` is by our own clock; clocks of nodes are never compared.
        """
        found: list[Finding] = []
        if self._ends_s is not None and not 0.0 < self._ends_s - received_s <= LONGEST_PERIOD_S:
            # The period is over, or our clock was set back: without this nothing would be concluded until it
            # is there again.
            found = self._conclude(self._ends_s)
            self._ends_s = None
        if self._ends_s is None:
            self._ends_s = (math.floor(received_s / self.period_s) + 1) * self.period_s
        self._store(snapshot, received_s)
        return found

    def conclude(self, now_s: float) -> list[Finding]:
        """Draw conclusions at once; return what opened, changed or closed."""
        self._ends_s = None
        return self._conclude(now_s)

    def note_outcome(self, rank: ClusterRank, job: str, outcome: str) -> Finding | None:
        """Return the finding on a job with the outcome of advice to a process, one sentence without its
        subject.

        None where none is open.
        """
        return self._book.note_outcome((CLUSTER_OOM, job), Evidence(f"{rank.name} was advised", outcome))

    def _store(self, snapshot: Snapshot, received_s: float) -> None:
        if snapshot.is_gone:
            self._nodes.pop(snapshot.node, None)
            self._merger.forget(snapshot.node)
            return
        known = self._nodes.get(snapshot.node)
        node = _Node(snapshot, received_s)
        self._nodes[snapshot.node] = node
        if known is not None and known.stamp == node.stamp:
            node.arrived_s = known.arrived_s
        elif snapshot.sample is not None:
            self._merger.take(snapshot.node, snapshot.sample)

    def _conclude(self, now_s: float) -> list[Finding]:
        for name, node in self._nodes.items():
            if not node.is_live and not node.is_forgotten and now_s - node.arrived_s > FORGOTTEN_AFTER_S:
                node.is_forgotten = True
                self._merger.forget(name)
        known = {name: it for name, it in sorted(self._nodes.items()) if not it.is_forgotten}
        ranks = {key: rank for it in known.values() for key, rank in it.reading.ranks.items()}
        self._group(known, ranks)
        found = [*self._end_jobs(now_s)]
        if self._compared_s is None or not 0 <= now_s - self._compared_s < COMPARED_EVERY_S:
            self._compared_s = now_s
            found += self._watch_jobs(ranks, now_s)
        self.picture = self._describe({name: it.reading for name, it in known.items()}, ranks, now_s)
        return found + self._book.observe(list(self._state()), now_s)

    def _group(self, nodes: Mapping[str, _Node], ranks: Mapping[RankKey, ClusterRank]) -> None:
        """Find jobs again where a process came, went or changed its place."""
        signatures = {name: it.signature for name, it in nodes.items()}
        if signatures != self._grouped:
            self._grouped = signatures
            self._jobs = find_jobs(ranks.values())

    def _end_jobs(self, now_s: float) -> Iterator[Finding]:
        present = {job.key for job in self._jobs}
        for key in [key for key in self._watches if key not in present]:
            yield from self._watches.pop(key).end(now_s)

    def _watch_jobs(self, ranks: Mapping[RankKey, ClusterRank], now_s: float) -> Iterator[Finding]:
        lost = {name for name, it in self._nodes.items() if not it.is_live}
        samples = self._merger.merge(self._jobs, lost, now_s, COMPARED_EVERY_S)
        for job, sample in zip(self._jobs, samples, strict=True):
            its = {key: ranks[key] for key in job.members if key in ranks}
            yield from self._watches.setdefault(job.key, JobWatch()).observe(sample, its)

    def _describe(
        self, nodes: Mapping[str, NodeReading], ranks: Mapping[RankKey, ClusterRank], now_s: float
    ) -> ClusterPicture:
        seen = {name: it for name, it in nodes.items() if self._nodes[name].is_live}
        shares = {name: list(it.shares.values()) for name, it in seen.items()}
        watches = ((job, self._watches.get(job.key, JobWatch())) for job in self._jobs)
        jobs = (describe_job(job, watch, ranks, nodes, self._planned) for job, watch in watches)
        placed = {key for job in self._jobs for key in job.members}
        return ClusterPicture(
            time_s=now_s,
            live=len(seen),
            total=len(self._nodes),
            balance=measure_balance([share for its in shares.values() for share in its]),
            nodes=tuple(it.load for it in nodes.values()),
            bottleneck_nodes=find_bottlenecks(shares),
            jobs=tuple(jobs),
            others=tuple(rank for key, rank in ranks.items() if key not in placed),
            devices_left_out=sum(it.devices_left_out for it in seen.values()),
        )

    def _state(self) -> Iterator[Statement]:
        for job in self.picture.jobs:
            for state in (state_oom, state_imbalance, state_skew):
                yield state(job, self.picture)


NEWS_S = 5.0
# Change of the time that is left that a person would notice.
NEWS_SHARE = 0.1
# Answers of advised processes that a finding keeps, the newest.
MOST_OUTCOMES = 16
Key = tuple[str, str]


class _Entry(OpenFinding):
    """One statement over time."""

    def __init__(self) -> None:
        super().__init__()
        self.crossing = Crossing()
        self.published: Statement | None = None
        self.outcomes: tuple[Evidence, ...] = ()

    def is_news(self, stated: Statement) -> bool:
        """Return whether a person would notice a change since the last statement."""
        published = self.published
        if stated.is_back:
            return False
        if published is None or published.severity != stated.severity or published.news != stated.news:
            return True
        if published.at_s is None or stated.at_s is None:
            return published.at_s is not stated.at_s
        before_s, left_s = (
            max(0.0, it.at_s - it.time_s) for it in (published, stated) if it.at_s is not None
        )
        return abs(left_s - before_s) > max(NEWS_S, NEWS_SHARE * before_s)


class FindingBook:
    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._now_s = float("-inf")

    @property
    def open(self) -> tuple[Finding, ...]:
        found = [it.finding for it in self._entries.values() if it.finding is not None]
        return tuple(sorted(found, key=lambda it: (it.opened_s, it.id)))

    def observe(self, statements: Sequence[Statement], now_s: float) -> list[Finding]:
        """Observe all statements of a moment, by our own clock; return findings that opened, changed or
        closed.

        Open findings without a statement belong to a job that is gone.
        """
        if now_s < self._now_s:
            for entry in self._entries.values():
                entry.crossing.restart()  # our clock was set back: how long things stood is unknown
        self._now_s = now_s
        stated = {it.key: it for it in statements}
        found: list[Finding] = []
        for key in sorted(stated.keys() | self._entries.keys()):
            found += self._follow(key, stated.get(key), now_s)
        return found

    def note_outcome(self, key: Key, outcome: Evidence) -> Finding | None:
        """Return an open finding with the answer of a process; None where it is not open."""
        entry = self._entries.get(key)
        if entry is None or entry.finding is None:
            return None
        others = [it for it in entry.outcomes if it.name != outcome.name]
        entry.outcomes = (*others, outcome)[-MOST_OUTCOMES:]
        before = [
            it for it in entry.finding.evidence if it.name not in {each.name for each in entry.outcomes}
        ]
        entry.finding = msgspec.structs.replace(entry.finding, evidence=(*before, *entry.outcomes))
        return entry.finding

    def _follow(self, key: Key, stated: Statement | None, now_s: float) -> Iterator[Finding]:
        if stated is not None and stated.is_beyond and key not in self._entries:
            self._entries[key] = _Entry()
        entry = self._entries.get(key)
        if entry is None:
            return
        is_beyond, is_back = (False, True) if stated is None else (stated.is_beyond, stated.is_back)
        entry.crossing.observe(now_s, is_beyond=is_beyond, is_back=is_back)
        if entry.finding is None and not entry.crossing.is_asked:
            del self._entries[key]
        elif entry.finding is None and stated is not None and entry.crossing.is_due:
            entry.crossing.flip()
            blank = begin_finding(stated.kind, stated.about, now_s)
            yield from _state(entry, msgspec.structs.replace(blank, node=stated.node), stated, now_s)
        elif entry.finding is not None and entry.crossing.is_due:
            del self._entries[key]
            because = "its job has ended" if stated is None else "no longer true"
            yield from entry.close(now_s, because)
        elif entry.finding is not None and stated is not None and entry.is_news(stated):
            yield from _state(entry, entry.finding, stated, now_s)


def _state(entry: _Entry, finding: Finding, stated: Statement, now_s: float) -> tuple[Finding]:
    entry.published = stated
    return entry.state(
        restate(
            finding,
            now_s,
            severity=stated.severity,
            title=stated.title,
            evidence=(*stated.evidence, *entry.outcomes),
            method=stated.method,
            advice=stated.advice,
        )
    )


# One job over time: the most bytes of its stages, and who grew away from the others.

CLUSTER_DIVERGENCE = "cluster_divergence"


@dataclass(slots=True)
class JobWatch:
    divergence: DivergenceAnalyzer = field(default_factory=DivergenceAnalyzer)
    peaks: StagePeaks = field(default_factory=StagePeaks)
    # Open findings on ranks that grew away from their peers, by id.
    grown: dict[str, tuple[Finding, RankKey]] = field(default_factory=dict)
    # Ids of published findings.
    told: set[str] = field(default_factory=set)

    @property
    def open(self) -> list[Finding]:
        return [it for it, _ in self.grown.values() if it.id in self.told]

    def observe(self, sample: Sample, ranks: Mapping[RankKey, ClusterRank]) -> Iterator[Finding]:
        """Observe the job's part of a merged sample; yield findings that opened, changed or closed."""
        self.peaks.observe(sample)
        if len({key.node for key in ranks}) < 2:
            return  # the agent of its node says the same
        for finding in self.divergence.observe(sample):
            told, key = _translate(finding, ranks)
            if WHAT.read(finding) == GROWTH:
                self.grown[told.id] = (told, key)
            if told.id in self.told or not _is_local(key, ranks):
                self.told.add(told.id)
                yield told
            if not told.is_open:
                self.grown.pop(told.id, None)
                self.told.discard(told.id)

    def end(self, time_s: float) -> Iterator[Finding]:
        for finding in self.open:
            yield close_finding(finding, time_s, "its job has ended")

    def find_first(self, ranks: Mapping[RankKey, ClusterRank]) -> Diverging | None:
        """Return the rank that grew away first, among those that still do."""
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
    """Describe the present state of a job; `planned` is bytes for a rank of each stage, empty
    without a plan.
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
    """Return the most over the mean; None for fewer than two, or if all are 0."""
    total = sum(sizes_bytes)
    return max(sizes_bytes) * len(sizes_bytes) / total if len(sizes_bytes) > 1 and total else None


def _list_shares(known: Sequence[ClusterRank], nodes: Mapping[str, NodeReading]) -> dict[str, list[float]]:
    """Return the used share of each device of a job, by node; lost nodes are left out."""
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
    about = f"{uuid}#{pid or ''}#{WHAT.read(finding)}"
    rank = ranks.get(key)
    updated = msgspec.structs.replace(
        finding,
        id=make_finding_id(CLUSTER_DIVERGENCE, node, about, finding.opened_s),
        kind=CLUSTER_DIVERGENCE,
        node=node,
        device_uuid=uuid or None,
        title=finding.title if rank is None else f"{finding.title} ({rank.place})",
    )
    return updated, key
