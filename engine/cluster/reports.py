"""What a node of a distributed run reports, and who has reported."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from ..clock import Clock, SystemClock
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


Presence = Literal["here", "late", "silent", "left"]
"""`here`: its newest report is of this moment; `late`: one is missing; `silent`: none for longer than the
timeout; `left`: it ended its watch and said so."""


@dataclass(frozen=True, slots=True)
class KnownNode:
    report: NodeReport
    heard_s: float
    """Monotonic seconds of the node that gathers: clocks of others are not trusted for ages."""
    heard_wall_s: float
    key: str = ""
    """Public key that it showed, which holds its name while it is there; empty without keys."""


class NodeRoll:
    """Keeps the newest report of each node; bounded.

    Args:
        timeout_s: Seconds without a report after which a node counts as silent.
    """

    def __init__(self, timeout_s: float, clock: Clock | None = None) -> None:
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._nodes: dict[str, KnownNode] = {}
        self.refused = 0
        """Reports of nodes beyond the most that are kept."""
        self.twins = 0
        """Reports under the name of another node that is there, or with another key than its own."""

    @property
    def nodes(self) -> Mapping[str, KnownNode]:
        """The newest of each node, by its id, in the order in which they came first."""
        return self._nodes

    @property
    def present(self) -> tuple[NodeReport, ...]:
        """Newest reports of the nodes that are there: neither silent nor gone."""
        return tuple(self._nodes[it].report for it in self.find("here", "late"))

    @property
    def ages_s(self) -> Mapping[str, float]:
        """Seconds since the newest report of each node."""
        now_s = self._clock.monotonic_s()
        return {node: now_s - known.heard_s for node, known in self._nodes.items()}

    def take(self, report: NodeReport, key: str = "") -> None:
        """Take a report in place of the one before of its node, with the key that was shown for it."""
        now_s = self._clock.monotonic_s()
        wall_s = self._clock.wall_s()
        self._nodes[report.node_id] = KnownNode(report, now_s, wall_s, key)

    def refuse(self, report: NodeReport, key: str = "") -> str | None:
        """Return why a report is not to be taken, in one sentence, and count it; None where it is."""
        known = self._nodes.get(report.node_id)
        if known is None:
            return self._refuse_more() if len(self._nodes) >= MOST_NODES else None
        is_there = self._judge(known, self._clock.monotonic_s()) in ("here", "late")
        if is_there and known.key != key:
            return self._refuse_key(report.node_id)
        if is_there and known.report.session != report.session:
            return self.refuse_twin(report.node_id)
        return None

    def refuse_twin(self, node_id: str) -> str:
        """Return the sentence for a second node under one name, and count it."""
        self.twins += 1
        return f"another node reports under the name {node_id}: give this one a name of its own"

    def _refuse_key(self, node_id: str) -> str:
        self.twins += 1
        return (
            f"the name {node_id} is held by another key until its node has left, or has been silent for "
            f"{self._timeout_s:.0f} s: give this node a name of its own"
        )

    def _refuse_more(self) -> str:
        self.refused += 1
        return f"{MOST_NODES} nodes are gathered already, and no more are taken"

    def find(self, *presences: Presence) -> tuple[str, ...]:
        """Return the ids of the nodes that are so present."""
        return tuple(self._select(presences))

    def _select(self, presences: Iterable[Presence]) -> Iterable[str]:
        wanted = frozenset(presences)
        now_s = self._clock.monotonic_s()
        return (it for it, known in self._nodes.items() if self._judge(known, now_s) in wanted)

    def _judge(self, known: KnownNode, now_s: float) -> Presence:
        age_s = now_s - known.heard_s
        if known.report.is_leaving:
            return "left"
        if age_s > self._timeout_s:
            return "silent"
        return "late" if age_s > 2.0 * known.report.interval_s else "here"
