"""Situations in which a forecast is known: a leaking rank among calm ones, and a job that is calm."""

from collections.abc import Callable

import msgspec

from tests.tui.canned import NODE, NOON_S, UNICODE_COLOR
from tests.tui.canned_ranks import make_job, with_ranks
from vramscope.engine.model import Assessment, Evidence, Finding, RankSample
from vramscope.engine.units import GIB, MIB
from vramscope.engine.viewer.snapshot import Snapshot
from vramscope.tui.terminal.abilities import TerminalAbilities

LEAKING = 5
OOM_TITLE = "GPU 5 (rank 5) out of memory in 1 m 16 s (65-90 s, 93 %): live tensors grow by 20 MiB a step"


def make_assessment(rank: RankSample, **changes: object) -> Assessment:
    """Return a calm word on a rank."""
    allocator = rank.allocator
    assert allocator is not None
    calm = Assessment(
        NODE,
        rank.device_uuid,
        (rank.device_uuid or "").lstrip("GPU-0") or "0",
        NOON_S + 1,
        "low",
        "floors do not rise",
        pid=rank.pid,
        started_s=rank.started_s,
        rank=rank.coordinates.rank if rank.coordinates else None,
        confidence=0.97,
        horizon_s=600.0,
        probability=0.004,
        steps_ahead=200,
        probability_within_steps=0.001,
        capacity_bytes=int(77.3 * GIB),
        floor_bytes=int(36.2 * GIB),
        peak_bytes=int(60.1 * GIB),
        growth_bytes_per_s=0.0,
        growth_bytes_per_step=0.0,
        watched_s=812.0,
        watched_steps=812,
    )
    return msgspec.structs.replace(calm, **changes)


def make_findings(uuid: str) -> tuple[Finding, ...]:
    """Return a leak with its suspected line, and the forecast that rests on it."""
    leak = Finding(
        "leak5",
        "leak",
        NODE,
        uuid,
        "5",
        "critical",
        "rank 5 leaks 20 MiB a step since step 1,310 (10.4 GiB)",
        NOON_S - 409,
        NOON_S,
        evidence=(
            Evidence("growth a second", 20.0 * MIB, "bytes/s"),
            Evidence("growth a step", 20 * MIB, "bytes"),
            Evidence("grown since onset", int(10.4 * GIB), "bytes"),
            Evidence("step at onset", 1310),
            Evidence("source file", "/srv/job/train.py:212"),
        ),
        method="Floors of steps (Theil-Sen)",
        advice="Look for tensors that outlive their step",
    )
    oom = Finding(
        "oom5",
        "oom",
        NODE,
        uuid,
        "5",
        "critical",
        OOM_TITLE,
        NOON_S - 60,
        NOON_S,
        advice="Save a checkpoint now",
    )
    return (oom, leak)


def snapshot_leaking() -> Snapshot:
    """Return a job of eight ranks, one of which runs out of memory in 76 s."""
    devices, ranks = make_job(8)
    words = [make_assessment(rank) for rank in ranks]
    words[LEAKING] = make_assessment(
        ranks[LEAKING],
        level="critical",
        confidence=0.93,
        reason="floors rise by 20 MiB a step",
        probability=0.93,
        probability_within_steps=0.97,
        oom_in_s=76.0,
        oom_in_low_s=65.0,
        oom_in_high_s=90.0,
        floor_bytes=int(75.2 * GIB),
        peak_bytes=int(75.9 * GIB),
        growth_bytes_per_s=20.0 * MIB,
        growth_bytes_per_step=20.0 * MIB,
    )
    return with_ranks(devices, ranks, assessments=tuple(words), findings=make_findings(devices[LEAKING].uuid))


def snapshot_calm() -> Snapshot:
    """Return a job of two ranks of which nothing is to be feared."""
    devices, ranks = make_job(2)
    return with_ranks(devices, ranks, assessments=tuple(make_assessment(rank) for rank in ranks))


def snapshot_doubtful() -> Snapshot:
    """Return a job of one rank that was not watched for long enough."""
    devices, ranks = make_job(1)
    word = Assessment(
        NODE,
        ranks[0].device_uuid,
        "0",
        NOON_S + 1,
        "unknown",
        "watched for 4 of 12 steps",
        pid=ranks[0].pid,
        started_s=ranks[0].started_s,
    )
    return with_ranks(devices, ranks, assessments=(word,))


CASES: dict[str, tuple[Callable[[], Snapshot], TerminalAbilities]] = {
    "leaking": (snapshot_leaking, UNICODE_COLOR),
    "leaking-mono": (snapshot_leaking, TerminalAbilities(color_depth="none")),
    "leaking-ascii": (snapshot_leaking, TerminalAbilities(is_ascii=True, color_depth="16")),
    "calm": (snapshot_calm, UNICODE_COLOR),
    "doubtful": (snapshot_doubtful, UNICODE_COLOR),
}
"""What is shown, and on what terminal."""
