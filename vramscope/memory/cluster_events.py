"""Errors that were foreseen or met on any node, each told once."""

from collections import deque
from collections.abc import Sequence

from vramscope.analyzers.balance.node_balance import judge_scope
from vramscope.engine.cluster.node_report import NodeReport, NodeThreat
from vramscope.exporters.reports.distributed import ClusterOomEvent
from vramscope.exporters.reports.frame import stamp

KEPT_EVENTS = 10
_MOST_KNOWN = 10_000


class ClusterEvents:
    """The newest events; bounded."""

    def __init__(self) -> None:
        self.newest: deque[ClusterOomEvent] = deque(maxlen=KEPT_EVENTS)
        self._known: dict[tuple[str, str], None] = {}

    def note(self, reports: Sequence[NodeReport]) -> None:
        """Take the nodes as they are, and keep the threats that were not known."""
        threatened = [(it.node_id, threat) for it in reports for threat in it.threats]
        for node_id, threat in threatened:
            if (node_id, threat.id) not in self._known:
                self._remember((node_id, threat.id))
                self.newest.append(_describe(node_id, threat, threatened))

    def _remember(self, key: tuple[str, str]) -> None:
        self._known[key] = None
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]


def _describe(
    node_id: str, threat: NodeThreat, threatened: Sequence[tuple[str, NodeThreat]]
) -> ClusterOomEvent:
    return ClusterOomEvent(
        timestamp=stamp(threat.opened_s, "wall") or "",
        node_id=node_id,
        device_id=threat.device,
        oom_type=judge_scope([(node, it.device) for node, it in threatened]),
        affected_nodes=list(dict.fromkeys(node for node, _ in threatened)),
        recovery_actions=[threat.advice] if threat.advice else [],
        kind=threat.kind,
        severity=threat.severity,
        title=threat.title,
    )
