"""This node as it tells others of itself: made of the log of its own watch."""

import time

from vramscope.engine.cluster.reports import (
    MOST_DEVICES,
    MOST_RANKS,
    MOST_THREATS,
    NodeDevice,
    NodeRank,
    NodeReport,
    NodeThreat,
)
from vramscope.engine.model import AllocatorReading, DeviceSample, RankCoordinates, RankSample
from vramscope.exporters.reports.log import RunLog

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
        ranks=tuple(
            _describe_rank(it, it.coordinates)
            for it in last.ranks[:MOST_RANKS]
            if it.coordinates is not None and it.state == "ok"
        ),
    )


def _describe_rank(rank: RankSample, place: RankCoordinates) -> NodeRank:
    allocator = rank.allocator or AllocatorReading()
    step = rank.step
    return NodeRank(
        pid=rank.pid,
        rank=place.rank,
        world_size=place.world_size,
        pp=place.pp,
        job=rank.job,
        started_s=rank.started_s,
        device_uuid=rank.device_uuid,
        is_simulated=rank.is_simulated,
        step=None if step is None else step.index,
        floor_bytes=None if step is None else step.floor_bytes,
        peak_bytes=None if step is None else step.peak_bytes,
        allocated_bytes=allocator.allocated_bytes,
        reserved_bytes=allocator.reserved_bytes,
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
