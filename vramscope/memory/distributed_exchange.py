"""Exchange of reports between nodes: the master gathers them, workers send theirs."""

import math
import socket
import time
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple
from uuid import uuid4

import msgspec

from vramscope.analyzers.balance import judge_scope
from vramscope.analyzers.cluster_state import ClusterState
from vramscope.engine.clock import Clock, SystemClock
from vramscope.engine.cluster.distributed import (
    MAX_NAME_LENGTH,
    MOST_THREATS,
    Collector,
    NodeRoll,
    Reporter,
    open_reporter,
    prepare_gathering,
    trim_finding_to_report,
    trim_sample_to_report,
)
from vramscope.engine.errors import UsageError
from vramscope.engine.model import Finding
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.engine.wire.messages import NodeReport
from vramscope.exporters.reports.distributed import (
    ClusterOomEvent,
    DistributedReport,
    MasterInfo,
    MemoryAnalysis,
    SyncStatus,
    WorkerInfo,
    analyze_nodes,
    describe_node,
    detail_node,
    doubt_balance,
    judge_sync,
    recommend,
)
from vramscope.exporters.reports.frame import (
    KINDS,
    Provenance,
    describe_evidence,
    describe_findings,
    stamp,
    stamp_now,
)
from vramscope.exporters.reports.log import RunLog
from vramscope.exporters.status.guard import JobOverNodes, describe_job

DEFAULT_PORT = 29500


class DistributedRole(StrEnum):
    """Role of a node among others."""

    MASTER = "master"
    """Gathers the reports of all nodes."""
    WORKER = "worker"
    """Reports to the master."""
    STANDALONE = "standalone"
    """Watches only itself."""


class Meeting(NamedTuple):
    """Where nodes meet, and the role of this one."""

    role: DistributedRole
    # For a worker the host of the master; for the master the address to listen at, `*` for all. None for
    # this machine.
    host: str | None = None
    port: int = DEFAULT_PORT
    # Without keys, also beyond this machine.
    is_insecure: bool = False


class NodeExchange:
    """The nodes that this one knows; use from one thread at a time.

    Args:
        node_id: Name of this node for others; by default the host name and the time of the start.
        interval_s: Most seconds between reports.
        timeout_s: Seconds without a report after which a node counts as silent.
    """

    def __init__(
        self,
        node_id: str | None,
        meeting: Meeting,
        *,
        interval_s: float,
        timeout_s: float,
        clock: Clock | None = None,
    ) -> None:
        self.node_id = node_id or f"{socket.gethostname()}_{int(time.time())}"
        if not self.node_id.isprintable() or len(self.node_id) > MAX_NAME_LENGTH:
            raise UsageError(f"name {self.node_id!r}: expected up to {MAX_NAME_LENGTH} printable characters")
        self.meeting = meeting
        self.interval_s = interval_s
        self.timeout_s = timeout_s
        self.roll = NodeRoll(timeout_s, clock)
        self.events = ClusterEvents()
        self.jobs = ClusterJobs(clock or SystemClock())
        # On the master, while it is open.
        self.collector: Collector | None = None
        # On a worker, while it is open.
        self.reporter: Reporter | None = None
        # Number of nodes to wait for, this one included; 0 to wait for none.
        self.wanted = 0
        self._session = uuid4().hex
        self._reported_s = -math.inf

    def open(self) -> None:
        """Start to listen or to connect; looks up host names, which may take long."""
        role, host, port, is_insecure = self.meeting
        if role is DistributedRole.MASTER:
            listening = prepare_gathering(host, port, is_insecure=is_insecure)
            self.collector = Collector(listening, self.node_id, self.roll)
        elif role is DistributedRole.WORKER:
            self.reporter = open_reporter(host, port, is_insecure=is_insecure)

    def report(self, log: RunLog) -> None:
        """Enter this node on the roll, and send its report to the master, if there is one."""
        own = self.describe_own(log)
        if own is None:
            return
        self._reported_s = time.monotonic()
        self.roll.take(own)
        self.events.note(self.roll.present)
        self.jobs.note(self.roll)
        if self.reporter is not None:
            self.reporter.send(own)

    def tend(self, log: RunLog) -> None:
        """Process received reports, and send one if it is due; call this several times a second."""
        is_new = False
        if self.collector is not None:
            self.collector.collect()
            self.events.note(self.roll.present)
            self.jobs.note(self.roll)
        if self.reporter is not None:
            is_new = self.reporter.receive()
        if is_new or time.monotonic() - self._reported_s >= self.interval_s:
            self.report(log)

    def close(self, log: RunLog) -> None:
        """Report to the master that this node leaves, and close the connection."""
        own = self.describe_own(log)
        if own is not None and self.reporter is not None:
            self.reporter.send(msgspec.structs.replace(own, is_leaving=True))
        for link in (self.reporter, self.collector):
            if link is not None:
                link.close()

    def describe_own(self, log: RunLog) -> NodeReport | None:
        """Return this node's report to others; None before its first sample."""
        return describe_own_node(log, self.node_id, self.interval_s, self._session)

    def build(self, log: RunLog, provenance: Provenance) -> DistributedReport:
        """Return the report so far."""
        analysis = self._analyze()
        events = list(self.events.newest)
        ages_s = self.roll.ages_s
        return DistributedReport(
            timestamp=stamp_now(),
            cluster_info=self.describe_cluster(),
            node_details=describe_node(self.describe_own(log)),
            nodes={it.node_id: detail_node(it) for it in self.roll.present},
            memory_analysis=analysis,
            oom_events=events,
            recommendations=recommend(
                analysis,
                {it: ages_s[it] for it in self.roll.find("silent")},
                events,
                doubt=self._doubt_balance(),
                whole="the devices of this node"
                if self.meeting.role is DistributedRole.STANDALONE
                else "the cluster",
            ),
            evidence=describe_evidence(log, provenance),
            findings=describe_findings(log, provenance, KINDS["oom"]),
            jobs=self.jobs.describe(),
        )

    def describe_cluster(self) -> MasterInfo | WorkerInfo:
        """Return the cluster as the master sees it; on other nodes, the state of their own connection."""
        is_master = self.meeting.role is DistributedRole.MASTER
        return self._describe_master() if is_master else self._describe_worker()

    def _doubt_balance(self) -> str | None:
        """Return why the report does not judge the balance of the nodes; None if it does."""
        if self.meeting.role is DistributedRole.STANDALONE:
            return None
        if self.meeting.role is DistributedRole.MASTER:
            known = max(len(self.roll.nodes), self.wanted)
            return doubt_balance(len(self.roll.present), known, self._count_refused())
        worker = self._describe_worker()
        if worker.is_connected:
            return (
                f"This report covers only this node; that of {worker.master_node} judges the balance of all"
            )
        return f"The balance is unknown: the master is not connected ({worker.trouble or 'no answer'})"

    def _count_refused(self) -> int:
        rejected = 0 if self.collector is None else self.collector.rejected + self.collector.turned_away
        return self.roll.refused + self.roll.twins + rejected

    def _analyze(self) -> MemoryAnalysis:
        return analyze_nodes(self.roll.present, self._judge_sync())

    def _judge_sync(self) -> SyncStatus:
        if self.meeting.role is not DistributedRole.WORKER:
            return judge_sync(self.roll, self.node_id)
        worker = self._describe_worker()
        if worker.last_answer_age_s is None:
            return "unknown"
        return "in_sync" if worker.is_connected else "communication_error"

    def _describe_master(self) -> MasterInfo:
        active = list(self.roll.find("here", "late"))
        ages_s = self.roll.ages_s
        others = [it.heard_wall_s for node, it in self.roll.nodes.items() if node != self.node_id]
        analysis = self._analyze()
        return MasterInfo(
            cluster_id=f"cluster_{self.node_id}",
            master_node=self.node_id,
            total_nodes=len(self.roll.nodes),
            active_nodes=len(active),
            inactive_nodes=len(self.roll.nodes) - len(active),
            active_node_list=active,
            inactive_node_list=list(self.roll.find("silent", "left")),
            left_node_list=list(self.roll.find("left")),
            node_ages_s=dict(ages_s),
            total_gpus=sum(len(it.report.sample.devices) for it in self.roll.nodes.values()),
            last_sync_time=max(others, default=None),
            global_step=analysis.global_step,
            memory_balance_ratio=analysis.memory_balance_ratio,
            sync_status=analysis.sync_status,
            bottleneck_nodes=analysis.bottleneck_nodes,
            total_memory_usage_gb=analysis.total_memory_usage_gb,
            refused_reports=self.roll.refused,
            duplicate_reports=self.roll.twins,
            turned_away=0 if self.collector is None else self.collector.turned_away,
            rejected_messages=0 if self.collector is None else self.collector.rejected,
        )

    def _describe_worker(self) -> WorkerInfo:
        reporter = self.reporter
        age_s = math.inf if reporter is None else reporter.answer_age_s
        receipt = None if reporter is None else reporter.receipt
        trouble = None if reporter is None else reporter.trouble
        return WorkerInfo(
            role=self.meeting.role.value,
            node_id=self.node_id,
            master_address=self.meeting.host if reporter is None else reporter.endpoint,
            master_node=None if receipt is None else receipt.master_id,
            is_connected=(
                age_s <= self.timeout_s and receipt is not None and receipt.is_accepted and trouble is None
            ),
            last_answer_age_s=age_s if math.isfinite(age_s) else None,
            total_nodes=None if receipt is None else receipt.total_nodes,
            trouble=trouble,
        )


class ClusterJobs:
    """Jobs over the nodes of the roll."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state = ClusterState()
        self._taken: dict[str, tuple[float, bool]] = {}

    def note(self, roll: NodeRoll) -> None:
        """Process what is new on the roll."""
        silent = {*roll.find("silent", "left")}
        for node, known in roll.nodes.items():
            stamp = (known.heard_s, node in silent)
            if self._taken.get(node) != stamp:
                self._taken[node] = stamp
                connection: Literal["live", "lost"] = "lost" if node in silent else "live"
                snapshot = Snapshot(connection, sample=known.report.sample, node=node)
                self._state.observe(snapshot, self._clock.monotonic_s())

    def describe(self) -> tuple[JobOverNodes, ...]:
        """Return the jobs now, by name."""
        self._state.conclude(self._clock.monotonic_s())
        return tuple(describe_job(job) for job in self._state.picture.jobs)


KEPT_EVENTS = 10
_MOST_KNOWN = 10_000


class ClusterEvents:
    """The newest out-of-memory events of all nodes; bounded."""

    def __init__(self) -> None:
        self.newest: deque[ClusterOomEvent] = deque(maxlen=KEPT_EVENTS)
        self._known: dict[tuple[str, str], None] = {}

    def note(self, reports: Sequence[NodeReport]) -> None:
        """Take the nodes as they are, and keep the threats that were not known."""
        threatened = [
            (node.node_id, _find_index(node, finding), finding)
            for node in reports
            for finding in node.findings
        ]
        scope = judge_scope([(node_id, index) for node_id, index, _ in threatened])
        affected = list(dict.fromkeys(node_id for node_id, _, _ in threatened))
        for node_id, index, finding in threatened:
            if (node_id, finding.id) not in self._known:
                self._known[(node_id, finding.id)] = None
                if len(self._known) > _MOST_KNOWN:
                    del self._known[next(iter(self._known))]
                self.newest.append(
                    ClusterOomEvent(
                        timestamp=stamp(finding.opened_s, "wall") or "",
                        node_id=node_id,
                        device_id=index,
                        oom_type=scope,
                        affected_nodes=affected,
                        recovery_actions=[finding.advice] if finding.advice else [],
                        kind=finding.kind,
                        severity=finding.severity,
                        title=finding.title,
                    )
                )


def _find_index(node: NodeReport, finding: Finding) -> int | None:
    devices = node.sample.devices
    return next((it.index for it in devices if it.uuid == finding.device_uuid), None)


# Kinds of findings in reports: an error is forecast, or has happened.
THREATS = ("oom", "oom_met")


def describe_own_node(log: RunLog, node_id: str, interval_s: float, session: str) -> NodeReport | None:
    """Return the report of this node; None before its first sample.

    Args:
        interval_s: Seconds until the next report.
    """
    last = log.last
    if last is None:
        return None
    threats = (it.finding for it in log.findings.values() if it.finding.kind in THREATS)
    found = [trim_finding_to_report(it) for it in threats if it.is_open]
    return NodeReport(
        sample=trim_sample_to_report(last, node_id, time.time(), interval_s),
        findings=tuple(found[:MOST_THREATS]),
        step=min((it.step.index for it in last.ranks if it.step is not None), default=None),
        session=session,
    )
