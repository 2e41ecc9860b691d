"""`DistributedMemoryMonitor`: memory of several nodes, gathered at one of them, from inside a program."""

import math
import socket
import time
from enum import StrEnum
from pathlib import Path

import msgspec

from vramscope.engine.cluster.collector import Collector
from vramscope.engine.cluster.node_report import NodeReport
from vramscope.engine.cluster.reporter import Reporter
from vramscope.engine.cluster.roll import NodeRoll
from vramscope.engine.errors import UsageError
from vramscope.exporters.reports.distributed import (
    MasterInfo,
    MemoryAnalysis,
    SyncStatus,
    WorkerInfo,
    analyze_nodes,
    build_distributed,
    describe_node,
    judge_sync,
    recommend,
)
from vramscope.exporters.reports.frame import KINDS, describe_evidence, describe_findings

from .cluster_events import ClusterEvents
from .monitor import MemoryMonitor, publish
from .node_view import describe_own_node

DEFAULT_PORT = 29500


class DistributedRole(StrEnum):
    """What a node does for the others."""

    MASTER = "master"
    """Gathers the reports of all."""
    WORKER = "worker"
    """Reports to the master."""
    STANDALONE = "standalone"
    """Watches itself alone."""


class DistributedMemoryMonitor(MemoryMonitor):
    """Watches this node, and tells another one or is told by others.

        monitor = DistributedMemoryMonitor(role="worker", master_address="localhost")
        monitor.start_monitoring()

    Reports travel on loopback only, for they are neither encrypted nor signed: between machines an ssh
    tunnel carries them. A master that is away is looked for again and again, and holds up nothing.

    Args:
        node_id: By which others know this node; by default the host's name and the time of the start.
        role: `master`, `worker` or `standalone`.
        master_address: Of a worker: where the master, or the tunnel to it, listens; on loopback.
        master_port: Port of the master.
        devices: Indices of the devices to watch; None for all.
        sampling_interval: Seconds from one sample to the next.
        heartbeat_interval: Most seconds from one report to the next.
        sync_timeout: Seconds without a report after which a node counts as silent.

    Raises:
        UsageError: An argument makes no sense.
    """

    def __init__(
        self,
        node_id: str | None = None,
        role: DistributedRole | str = DistributedRole.STANDALONE,
        master_address: str | None = None,
        master_port: int = DEFAULT_PORT,
        devices: list[int] | None = None,
        sampling_interval: float = 2.0,
        heartbeat_interval: float = 10.0,
        sync_timeout: float = 30.0,
    ) -> None:
        super().__init__(devices, sampling_interval)
        if not 0 < heartbeat_interval < sync_timeout < math.inf:
            raise UsageError(
                f"heartbeat_interval {heartbeat_interval}, sync_timeout {sync_timeout}: expected seconds, "
                "the first less than the second"
            )
        self.role = _read_role(role)
        self.node_id = node_id or f"{socket.gethostname()}_{int(time.time())}"
        self.master_address, self.master_port = master_address, master_port
        self._interval_s = min(sampling_interval, heartbeat_interval)
        self._roll = NodeRoll(sync_timeout)
        self._sync_timeout_s = sync_timeout
        self._events = ClusterEvents()
        self._collector: Collector | None = None
        self._reporter: Reporter | None = None
        self._reported_s = -math.inf

    def start_monitoring(self) -> None:
        """Begin to watch in the background; does nothing where that is so already.

        Raises:
            UsageError: The port is taken, or the address is not on loopback.
        """
        if self.is_monitoring:
            return
        if self.role is DistributedRole.MASTER:
            self._collector = Collector(self.master_address, self.master_port, self.node_id, self._roll)
        elif self.role is DistributedRole.WORKER:
            self._reporter = Reporter(self.master_address, self.master_port)
        super().start_monitoring()

    def get_cluster_status(self) -> dict[str, object]:
        """Return the cluster as the master sees it; of another node its own place in it."""
        with self._lock:
            built: dict[str, object] = msgspec.to_builtins(self._describe_cluster())
        return built

    def get_memory_distribution(self) -> dict[str, object]:
        """Return the devices of this node now, in GiB, and their sum; an `error` before the first sample."""
        with self._lock:
            built: dict[str, object] = msgspec.to_builtins(describe_node(self._own))
        return built

    def generate_distributed_report(self, output_file: str | Path | None = None) -> dict[str, object]:
        """Return the report of everything seen so far.

        Args:
            output_file: File to write it to as JSON.

        Raises:
            OutputFileError: It cannot be written.
        """
        with self._lock:
            analysis, events = self._analyze(), list(self._events.newest)
            report = build_distributed(
                self._describe_cluster(),
                self._own,
                self._roll.present,
                analysis,
                events=events,
                recommendations=recommend(analysis, self._roll.find("silent"), events),
                evidence=describe_evidence(self._log, self._provenance),
                findings=describe_findings(self._log, self._provenance, KINDS["oom"]),
            )
        return publish(report, output_file)

    @property
    def _own(self) -> NodeReport | None:
        return describe_own_node(self._log, self.node_id, self._interval_s)

    def _react(self) -> None:
        self._report()

    def _tend(self) -> None:
        with self._lock:
            if self._collector is not None:
                self._collector.collect()
                self._events.note(self._roll.present)
            if self._reporter is not None:
                self._reporter.receive()
        if time.monotonic() - self._reported_s >= self._interval_s:
            self._report()

    def _end(self) -> None:
        with self._lock:
            own = self._own
        if own is not None and self._reporter is not None:
            self._reporter.send(msgspec.structs.replace(own, is_leaving=True))
        for link in (self._reporter, self._collector):
            if link is not None:
                link.close()

    def _report(self) -> None:
        """Enter this node on the roll, and tell the master where there is one."""
        with self._lock:
            own = self._own
            if own is None:
                return
            self._reported_s = time.monotonic()
            self._roll.take(own)
            self._events.note(self._roll.present)
            if self._reporter is not None:
                self._reporter.send(own)

    def _analyze(self) -> MemoryAnalysis:
        return analyze_nodes(self._roll.present, self._judge_sync())

    def _judge_sync(self) -> SyncStatus:
        if self.role is not DistributedRole.WORKER:
            return judge_sync(self._roll, self.node_id)
        worker = self._describe_worker()
        if worker.last_answer_age_s is None:
            return "unknown"
        return "in_sync" if worker.is_connected else "communication_error"

    def _describe_cluster(self) -> MasterInfo | WorkerInfo:
        is_master = self.role is DistributedRole.MASTER
        return self._describe_master() if is_master else self._describe_worker()

    def _describe_master(self) -> MasterInfo:
        active = list(self._roll.find("here", "late"))
        others = [it.heard_wall_s for node, it in self._roll.nodes.items() if node != self.node_id]
        analysis = self._analyze()
        return MasterInfo(
            cluster_id=f"cluster_{self.node_id}",
            master_node=self.node_id,
            total_nodes=len(self._roll.nodes),
            active_nodes=len(active),
            inactive_nodes=len(self._roll.nodes) - len(active),
            active_node_list=active,
            inactive_node_list=list(self._roll.find("silent", "left")),
            left_node_list=list(self._roll.find("left")),
            total_gpus=sum(len(it.report.devices) for it in self._roll.nodes.values()),
            last_sync_time=max(others, default=None),
            global_step=analysis.global_step,
            memory_balance_ratio=analysis.memory_balance_ratio,
            sync_status=analysis.sync_status,
            bottleneck_nodes=analysis.bottleneck_nodes,
            total_memory_usage_gb=analysis.total_memory_usage_gb,
            refused_reports=self._roll.refused,
            rejected_messages=0 if self._collector is None else self._collector.rejected,
        )

    def _describe_worker(self) -> WorkerInfo:
        reporter = self._reporter
        age_s = math.inf if reporter is None else reporter.answer_age_s
        receipt = None if reporter is None else reporter.receipt
        return WorkerInfo(
            role=self.role.value,
            node_id=self.node_id,
            master_address=self.master_address if reporter is None else reporter.endpoint,
            master_node=None if receipt is None else receipt.master_id,
            is_connected=age_s <= self._sync_timeout_s and receipt is not None and receipt.is_accepted,
            last_answer_age_s=age_s if math.isfinite(age_s) else None,
            total_nodes=None if receipt is None else receipt.total_nodes,
        )


def _read_role(role: DistributedRole | str) -> DistributedRole:
    try:
        return DistributedRole(role)
    except ValueError:
        expected = ", ".join(it.value for it in DistributedRole)
        raise UsageError(f"role {role!r}: expected {expected}") from None
