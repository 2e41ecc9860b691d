"""What one node tells the node that gathers: its devices now, and what threatens them."""

from typing import Final

import msgspec

from ..errors import WireError
from ..model import Severity

REPORT = "node_report"
RECEIPT = "node_receipt"
"""Kinds of messages in the envelope of the bus."""
MOST_NODES = 1024
"""Nodes that one gathers at most; further ones are counted and left out."""
MAX_REPORT_BYTES = 1024**2
MAX_NAME_LENGTH: Final = 200
MAX_TEXT_LENGTH: Final = 2000
MOST_DEVICES = 1024
MOST_THREATS = 64
MOST_RANKS = 1024


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


class NodeRank(msgspec.Struct, frozen=True):
    """One training process that knows its rank; None is unmeasured."""

    pid: int
    rank: int
    world_size: int | None = None
    pp: int | None = None
    """Pipeline stage."""
    job: str | None = None
    started_s: float | None = None
    """By the wall clock of its own node."""
    device_uuid: str | None = None
    is_simulated: bool = False
    step: int | None = None
    floor_bytes: int | None = None
    """Live bytes at the end of the newest step."""
    peak_bytes: int | None = None
    """Most live bytes within that step."""
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None


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
    session: str = ""
    """Of one watch, random: two nodes under one name have two."""
    ranks: tuple[NodeRank, ...] = ()
    """Processes whose probes report; empty from nodes of an earlier version."""


class NodeReceipt(msgspec.Struct, frozen=True):
    """What a report is answered with."""

    master_id: str
    total_nodes: int
    is_accepted: bool
    """False where there are too many nodes already, the name is another's, or the key may not report."""
    reason: str = ""
    """Why it was not accepted, in one sentence."""


def check_report(report: NodeReport) -> NodeReport:
    """Return a report that can be shown and kept; its numbers were checked with the message.

    Raises:
        WireError: Its name is empty, a text is too long, or it has more than a node has.
    """
    is_named = 1 <= len(report.node_id) <= MAX_NAME_LENGTH
    is_small = len(report.devices) <= MOST_DEVICES and len(report.threats) <= MOST_THREATS
    is_small = is_small and len(report.ranks) <= MOST_RANKS
    texts = [it.label for it in report.devices] + [it.job or "" for it in report.ranks]
    texts += [text for it in report.threats for text in (it.title, it.advice)]
    if not (is_named and is_small and all(len(text) <= MAX_TEXT_LENGTH for text in texts)):
        raise WireError("rejected a node report: invalid name, text or length")
    return report
