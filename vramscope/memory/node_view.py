"""This node as it tells others of itself: made of the log of its own watch."""

import time

from vramscope.engine.cluster.node_report import (
    MOST_DEVICES,
    MOST_THREATS,
    NodeDevice,
    NodeReport,
    NodeThreat,
)
from vramscope.engine.model import DeviceSample
from vramscope.exporters.reports.run_log import RunLog

THREATS = ("oom", "oom_met")
"""Kinds of findings that are told: an error is foreseen, or was met."""


def describe_own_node(log: RunLog, node_id: str, interval_s: float, session: str) -> NodeReport | None:
    """Return the report of this node; None before its first sample.

    Args:
        log: Of the watch.
        node_id: By which others know this node.
        interval_s: Seconds after which the next report is to be expected.
        session: Of this watch.
    """
    last = log.last
    if last is None:
        return None
    return NodeReport(
        node_id=node_id,
        time_s=time.time(),
        interval_s=interval_s,
        devices=tuple(_describe(it) for it in last.devices[:MOST_DEVICES]),
        threats=_list_threats(log),
        step=min((it.step.index for it in last.ranks if it.step is not None), default=None),
        session=session,
    )


def _describe(device: DeviceSample) -> NodeDevice:
    memory = device.memory
    if device.state != "ok":  # what it said before is old by now
        return NodeDevice(device.index, device.label, device.uuid, memory.total_bytes)
    return NodeDevice(
        device.index,
        device.label,
        device.uuid,
        memory.total_bytes,
        memory.used_bytes,
        memory.free_bytes,
        device.utilization_percent,
    )


def _list_threats(log: RunLog) -> tuple[NodeThreat, ...]:
    found = [it.finding for it in log.findings.values() if it.finding.is_open and it.finding.kind in THREATS]
    return tuple(
        NodeThreat(
            it.id,
            it.kind,
            None if (device := log.devices.get(it.device_uuid or "")) is None else device.index,
            it.severity,
            it.opened_s,
            it.title,
            it.advice,
        )
        for it in found[:MOST_THREATS]
    )
