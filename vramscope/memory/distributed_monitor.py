"""`DistributedMemoryMonitor`: memory of several nodes, gathered at one of them, from inside a program."""

import math
from pathlib import Path

import msgspec

from vramscope.engine.errors import UsageError
from vramscope.exporters.reports.distributed import describe_node

from .distributed_exchange import DEFAULT_PORT, DistributedRole, Meeting, NodeExchange
from .monitor import MemoryMonitor, publish


class DistributedMemoryMonitor(MemoryMonitor):
    """Watches this node, and sends reports to another node or gathers those of others.

        monitor = DistributedMemoryMonitor(role="worker", master_address="n1")
        monitor.start_monitoring()

    Between machines reports are encrypted with the keys of `vramscope keys`. A worker keeps trying to reach a
    missing master, without blocking the program.

    Args:
        node_id: Name of this node for others; by default the host name and the time of the start.
        role: `master`, `worker` or `standalone`.
        master_address: For a worker the host of the master; for the master the address to listen at, `*` for
            all addresses. By default loopback.
        master_port: Port of the master.
        devices: Indices of the devices to watch; None for all.
        sampling_interval: Seconds between samples.
        heartbeat_interval: Most seconds between reports.
        sync_timeout: Seconds without a report after which a node counts as silent.
        insecure: Send and accept reports without keys, also beyond this machine; everybody on the way can
            read and report.

    Raises:
        UsageError: An argument is invalid.
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
        *,
        insecure: bool = False,
    ) -> None:
        super().__init__(devices, sampling_interval)
        if not 0 < heartbeat_interval < sync_timeout < math.inf:
            raise UsageError(
                f"heartbeat_interval {heartbeat_interval}, sync_timeout {sync_timeout}: expected seconds, "
                "the first less than the second"
            )
        self.role = _read_role(role)
        self.master_address = master_address
        self.master_port = master_port
        self._exchange = NodeExchange(
            node_id,
            Meeting(self.role, master_address, master_port, insecure),
            interval_s=min(sampling_interval, heartbeat_interval),
            timeout_s=sync_timeout,
        )
        self.node_id = self._exchange.node_id

    def start_monitoring(self) -> None:
        """Start to watch in the background; does nothing if it runs already.

        Raises:
            UsageError: The port is in use, the address is invalid, or a key is missing beyond loopback.
            InputFileError: The keys cannot be used.
        """
        if self.is_monitoring:
            return
        self._exchange.open()
        super().start_monitoring()

    def get_cluster_status(self) -> dict[str, object]:
        """Return the cluster as the master sees it; on other nodes, the state of their own connection."""
        with self._lock:
            built: dict[str, object] = msgspec.to_builtins(self._exchange.describe_cluster())
        return built

    def get_memory_distribution(self) -> dict[str, object]:
        """Return the memory of this node's devices in GiB, and the sum; `error` before the first sample."""
        with self._lock:
            own = self._exchange.describe_own(self._log)
            built: dict[str, object] = msgspec.to_builtins(describe_node(own))
        return built

    def generate_distributed_report(self, output_file: str | Path | None = None) -> dict[str, object]:
        """Return the report of everything seen so far.

        Args:
            output_file: File to write it to as JSON.

        Raises:
            OutputFileError: The file cannot be written.
        """
        with self._lock:
            report = self._exchange.build(self._log, self._provenance)
        return publish(report, output_file)

    def _react(self) -> None:
        with self._lock:
            self._exchange.report(self._log)

    def _tend(self) -> None:
        with self._lock:
            self._exchange.tend(self._log)

    def _end(self) -> None:
        with self._lock:
            self._exchange.close(self._log)


def _read_role(role: DistributedRole | str) -> DistributedRole:
    try:
        return DistributedRole(role)
    except ValueError:
        expected = ", ".join(it.value for it in DistributedRole)
        raise UsageError(f"role {role!r}: expected {expected}") from None
