"""One node of a fleet in one line: how old its figures are, what its devices come to, how its agent fares."""

from collections.abc import Sequence

import msgspec

from ...engine.model import RiskLevel
from ...engine.viewer.snapshot import Snapshot
from ..risk import LEVELS
from .model import FleetDevice, FleetNode


class NodeSummary(msgspec.Struct, frozen=True):
    """What is told of a node; None is unmeasured."""

    node: FleetNode
    device_count: int
    level: RiskLevel
    """Of its gravest device."""
    used_share: float | None
    """Device used over capacity, of all devices whose memory is known; 0 to 1."""
    samples_dropped: int
    """Samples that never reached this viewer."""
    version: str | None = None
    """Of its agent, as the rest is."""
    cpu_percent: float | None = None
    rss_bytes: int | None = None
    viewers: int | None = None
    notes: tuple[str, ...] = ()
    """What it could not do or measure, in sentences."""
    own_name: str | None = None
    """What its agent calls it, where that is another name; None where it is not, or has not been told."""


def summarize_node(node: FleetNode, snapshot: Snapshot, devices: Sequence[FleetDevice]) -> NodeSummary:
    """Return a node in one line.

    Args:
        node: The node.
        snapshot: The newest of it.
        devices: Its devices.
    """
    hub = snapshot.hub
    told_name = None if snapshot.sample is None else snapshot.sample.node
    return NodeSummary(
        node=node,
        device_count=len(devices),
        level=max((device.level for device in devices), key=LEVELS.index, default="unknown"),
        used_share=_share_used(devices),
        samples_dropped=snapshot.samples_dropped,
        version=None if hub is None else hub.version,
        cpu_percent=None if hub is None else hub.cpu_percent,
        rss_bytes=None if hub is None else hub.rss_bytes,
        viewers=None if hub is None else hub.viewers,
        notes=(*filter(None, (node.mismatch,)), *(() if hub is None else hub.notes)),
        own_name=None if told_name == node.name else told_name,
    )


def order_by_need(summaries: Sequence[NodeSummary]) -> list[NodeSummary]:
    """Return nodes with those first that need a person: lost ones, then by risk; else as they were."""
    return sorted(summaries, key=lambda it: (it.node.state == "live", -LEVELS.index(it.level)))


def _share_used(devices: Sequence[FleetDevice]) -> float | None:
    known = [
        (device.used_bytes, device.total_bytes)
        for device in devices
        if device.used_bytes is not None and device.total_bytes
    ]
    total = sum(capacity for _, capacity in known)
    return sum(used for used, _ in known) / total if total else None
