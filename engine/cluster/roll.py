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
    key: str = ""
    """Public key that it showed, which holds its name while it is there; empty without keys."""


class NodeRoll:
    """Keeps the newest report of each node; bounded.

    Args:
        timeout_s: Seconds without a report after which a node counts as silent.
        clock: Injected in tests.
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
