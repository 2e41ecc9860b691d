"""What one node tells the node that gathers: its devices now, and what threatens them."""

import msgspec

from ..model import Severity

REPORT, RECEIPT = "node_report", "node_receipt"
"""Kinds of messages in the envelope of the bus."""
MOST_NODES = 1024
"""Nodes that one gathers at most; further ones are counted and left out."""
MAX_REPORT_BYTES = 1024**2


class NodeDevice(msgspec.Struct, frozen=True):
    """One device at one moment; None is unmeasured."""

    index: int
    label: str
    uuid: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    utilization_percent: float | None = None
    """Share of time in which its processors worked."""

    @property
    def usage_ratio(self) -> float | None:
        """Share of its memory that is used, 0 to 1."""
        return (
            self.used_bytes / self.total_bytes if self.total_bytes and self.used_bytes is not None else None
        )


class NodeThreat(msgspec.Struct, frozen=True):
    """An out-of-memory error that is foreseen, or was met, and is not over."""

    id: str
    kind: str
    device: int | None
    """Index of the device; None where it is not of one."""
    severity: Severity
    opened_s: float
    """Wall clock of its own node."""
    title: str
    advice: str


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """One node at one moment."""

    node_id: str
    time_s: float
    """Wall clock of the node that reports."""
    interval_s: float
    """Seconds after which the next is to be expected."""
    devices: tuple[NodeDevice, ...] = ()
    threats: tuple[NodeThreat, ...] = ()
    step: int | None = None
    """The least of the newest steps of its processes, as their probes count."""
    is_leaving: bool = False
    """Whether it is the last of a node that ends its watch."""


class NodeReceipt(msgspec.Struct, frozen=True):
    """What a report is answered with."""

    master_id: str
    total_nodes: int
    is_accepted: bool
    """False where there are too many nodes already."""
