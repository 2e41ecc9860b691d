"""Who has reported, and when: the nodes that one gathers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from ..clock import Clock, SystemClock
from .node_report import MOST_NODES, NodeReport

Presence = Literal["here", "late", "silent", "left"]
"""`here`: its newest report is of this moment; `late`: one is missing; `silent`: none for longer than the
timeout; `left`: it ended its watch and said so."""


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node by its newest report."""

    report: NodeReport
    heard_s: float
    """Monotonic seconds of the node that gathers: clocks of others are not trusted for ages."""
    heard_wall_s: float


class NodeRoll:
    """Keeps the newest report of each node; bounded.

    Args:
        timeout_s: Seconds without a report after which a node counts as silent.
        clock: Injected in tests.
    """

    def __init__(self, timeout_s: float, clock: Clock | None = None) -> None:
        self._timeout_s, self._clock = timeout_s, clock or SystemClock()
        self._nodes: dict[str, KnownNode] = {}
        self.refused = 0
        """Reports of nodes beyond the most that are kept."""

    @property
    def nodes(self) -> Mapping[str, KnownNode]:
        """The newest of each node, by its id, in the order in which they came first."""
        return self._nodes

    @property
    def present(self) -> tuple[NodeReport, ...]:
        """Newest reports of the nodes that are there: neither silent nor gone."""
        return tuple(self._nodes[it].report for it in self.find("here", "late"))

    def take(self, report: NodeReport) -> bool:
        """Take a report; return whether it was, which it is not of one node too many."""
        if report.node_id not in self._nodes and len(self._nodes) >= MOST_NODES:
            self.refused += 1
            return False
        self._nodes[report.node_id] = KnownNode(report, self._clock.monotonic_s(), self._clock.wall_s())
        return True

    def find(self, *presences: Presence) -> tuple[str, ...]:
        """Return the ids of the nodes that are so present."""
        return tuple(self._select(presences))

    def _select(self, presences: Iterable[Presence]) -> Iterable[str]:
        wanted, now_s = frozenset(presences), self._clock.monotonic_s()
        return (it for it, known in self._nodes.items() if self._judge(known, now_s) in wanted)

    def _judge(self, known: KnownNode, now_s: float) -> Presence:
        age_s = now_s - known.heard_s
        if known.report.is_leaving:
            return "left"
        if age_s > self._timeout_s:
            return "silent"
        return "late" if age_s > 2.0 * known.report.interval_s else "here"
