"""Snapshots of nodes whose devices train, some near running out."""

import msgspec

from tests.tui.canned import make_snapshot
from vramscope.engine.model import Assessment, RankCoordinates, RankSample, RiskLevel
from vramscope.engine.viewer.snapshot import Snapshot


def make_node(
    name: str, count: int = 8, *, oom: int | None = None, level: RiskLevel | None = None, seq: int = 1
) -> Snapshot:
    """Return a node; one device may be near an error, and all may have a level that was assessed."""
    snapshot = make_snapshot(count, seq=seq)
    assert snapshot.sample is not None
    time_s = snapshot.sample.time_s
    levels: dict[int, RiskLevel | None] = dict.fromkeys(range(count), level)
    if oom is not None:
        levels[oom] = "critical"
    said = tuple(
        Assessment(
            name,
            f"GPU-{index:04d}",
            str(index),
            time_s,
            found,
            "live tensors grow" if index == oom else "headroom",
            oom_in_s=76.0 if index == oom else None,
        )
        for index, found in levels.items()
        if found is not None
    )
    ranks = tuple(
        RankSample(
            9000 + index,
            job="gpt-485b",
            device_uuid=f"GPU-{index:04d}",
            coordinates=RankCoordinates(index, tp=index, pp=0),
        )
        for index in range(count)
    )
    sample = msgspec.structs.replace(snapshot.sample, node=name, ranks=ranks)
    return msgspec.structs.replace(snapshot, node=name, sample=sample, assessments=said)
