"""Reports of nodes, which `vramscope distributed` gathers, read as snapshots of these nodes."""

from ...engine.cluster.node_report import NodeRank, NodeReport
from ...engine.model import (
    AllocatorReading,
    DeviceSample,
    MemoryReading,
    RankCoordinates,
    RankSample,
    Sample,
    StepReading,
)
from ...engine.viewer.snapshot import Snapshot


def read_report(report: NodeReport, *, is_silent: bool) -> Snapshot:
    """Return what a node reports as a snapshot of it, without assessments, which reports do not carry.

    Args:
        report: Its newest.
        is_silent: Whether nothing has come for too long.
    """
    devices = tuple(
        DeviceSample(it.uuid, it.index, memory=MemoryReading(it.total_bytes, it.used_bytes, it.free_bytes))
        for it in report.devices
    )
    ranks = tuple(_read_rank(it, report.time_s) for it in report.ranks)
    sample = Sample(report.node_id, 0, report.time_s, report.interval_s, devices, ranks=ranks)
    return Snapshot("lost" if is_silent else "live", sample=sample, node=report.node_id)


def _read_rank(rank: NodeRank, time_s: float) -> RankSample:
    step = None
    if rank.floor_bytes is not None:
        step = StepReading(rank.step or 0, time_s, floor_bytes=rank.floor_bytes, peak_bytes=rank.peak_bytes)
    return RankSample(
        pid=rank.pid,
        started_s=rank.started_s,
        job=rank.job,
        device_uuid=rank.device_uuid,
        is_simulated=rank.is_simulated,
        coordinates=RankCoordinates(rank.rank, rank.world_size, pp=rank.pp),
        allocator=AllocatorReading(allocated_bytes=rank.allocated_bytes, reserved_bytes=rank.reserved_bytes),
        step=step,
        floor_min_bytes=rank.floor_bytes,
        peak_max_bytes=rank.peak_bytes,
    )
