"""Clusters as the agents of their nodes tell of them: two devices a node, a rank on each, a tick a second."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from vramscope.analyzers.cluster_state import ClusterState
from vramscope.engine.model import (
    AllocatorReading,
    Assessment,
    DeviceSample,
    Finding,
    HeadroomEstimate,
    MemoryReading,
    RankCoordinates,
    RankSample,
    RiskLevel,
    Sample,
    StepReading,
)
from vramscope.engine.units import GIB
from vramscope.engine.viewer.snapshot import Snapshot

CARD = 80 * GIB
BEGIN_S = 10_000.0
RANKS_A_NODE = 2


class Word(NamedTuple):
    """What the forecast of a rank says, and what it holds."""

    level: RiskLevel = "low"
    left_s: float | None = None
    floor_gib: float = 30.0
    peak_gib: float = 40.0
    reserved_gib: float = 42.0
    headroom: tuple[HeadroomEstimate, ...] = ()


CALM = Word()
Words = Mapping[int, Word]


def make_node(
    number: int,
    at_s: float,
    words: Words,
    *,
    nodes: int = 2,
    stages: int = 1,
    clock_s: float = 0.0,
    is_lost: bool = False,
    job: str | None = None,
) -> Snapshot:
    """Return what is known of a node of one job that was started node by node, as torchrun does.

    Args:
        number: Of the node.
        at_s: Seconds since the job began.
        words: Of ranks that are not calm.
        nodes: How many there are.
        stages: Pipeline stages; neighbouring ranks are of one stage.
        clock_s: By how much its clock is ahead.
        is_lost: Whether the connection is lost.
        job: Name of the run; one of its own by default.
    """
    name, world = f"n{number}", nodes * RANKS_A_NODE
    ranks = range(number * RANKS_A_NODE, (number + 1) * RANKS_A_NODE)
    told = [(rank, words.get(rank, CALM)) for rank in ranks]
    now_s = BEGIN_S + at_s + clock_s
    sample = Sample(
        name,
        int(at_s),
        now_s,
        1.0,
        devices=tuple(_make_device(rank, word) for rank, word in told),
        ranks=tuple(
            _make_rank(rank, word, world, rank * stages // world, at_s, clock_s, job or f"run-{number}")
            for rank, word in told
        ),
    )
    said = tuple(_assess(name, rank, word, now_s, clock_s) for rank, word in told)
    return Snapshot("lost" if is_lost else "live", sample=sample, assessments=said, node=name)


def _make_device(rank: int, word: Word) -> DeviceSample:
    used = round((word.reserved_gib + 1) * GIB)
    memory = MemoryReading(CARD, used, max(0, CARD - used))
    return DeviceSample(f"GPU-{rank}", rank % RANKS_A_NODE, memory=memory)


def _make_rank(
    rank: int, word: Word, world: int, stage: int, at_s: float, clock_s: float, job: str
) -> RankSample:
    floor, peak, reserved = (round(it * GIB) for it in (word.floor_gib, word.peak_gib, word.reserved_gib))
    return RankSample(
        pid=100 + rank,
        started_s=BEGIN_S + clock_s - 60.0,
        job=job,
        device_uuid=f"GPU-{rank}",
        coordinates=RankCoordinates(rank, world, pp=stage),
        allocator=AllocatorReading(allocated_bytes=floor, reserved_bytes=reserved),
        step=StepReading(int(at_s), at_s, 1.0, floor, peak),
        steps_within=1,
        floor_min_bytes=floor,
        peak_max_bytes=peak,
    )


def _assess(node: str, rank: int, word: Word, now_s: float, clock_s: float) -> Assessment:
    return Assessment(
        node,
        f"GPU-{rank}",
        str(rank % RANKS_A_NODE),
        now_s,
        word.level,
        "its floor grows",
        pid=100 + rank,
        started_s=BEGIN_S + clock_s - 60.0,
        rank=rank,
        oom_in_s=word.left_s,
        headroom=word.headroom,
    )


def follow(state: ClusterState, snapshots: Iterable[Snapshot], at_s: float) -> list[Finding]:
    """Hand over what all nodes told within one second; return what opened, changed or closed."""
    found = []
    for number, snapshot in enumerate(snapshots):
        found += state.observe(snapshot, at_s + 0.01 * number)
    return found


def watch(
    state: ClusterState, tell: Callable[[float], Iterable[Snapshot]], seconds: int, *, since_s: int = 0
) -> list[Finding]:
    """Watch nodes for some seconds; return what opened, changed or closed."""
    found = []
    for at_s in range(since_s, since_s + seconds):
        found += follow(state, tell(float(at_s)), float(at_s))
    return found
