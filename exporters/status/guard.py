"""What a watch over several nodes prints: findings across them, advice to processes, the state at the end."""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from ...analyzers.cluster_state import Advice, ClusterPicture, JobState, StageLoad
from ...analyzers.sentence import count
from ...engine.model import AdviceAction, Finding
from ...engine.text import make_printable
from ...engine.units import format_bytes
from ...engine.viewer.snapshot import RankAdvice
from ..text import show_number

# A job over several nodes as it is printed: its stages, and who limits it.


class JobOverNodes(msgspec.Struct, frozen=True, kw_only=True):
    """One job over its nodes."""

    job: str
    nodes: tuple[str, ...]
    ranks_seen: int
    world_size: int | None
    balance: float | None
    """How evenly its devices are filled: 1 where all are equally full."""
    bottleneck_nodes: tuple[str, ...]
    stages: tuple[StageLoad, ...]
    stage_skew: float | None
    """Highest peak of a stage over the mean of all stages."""
    planned_skew: float | None
    bottleneck_stages: tuple[int, ...]
    first_diverging: str | None
    """The rank that grew away from its peers first, and where it is."""


def describe_job(job: JobState) -> JobOverNodes:
    """Return a job without its single ranks."""
    first = job.first_diverging
    return JobOverNodes(
        job=job.key,
        nodes=job.nodes,
        ranks_seen=len(job.ranks),
        world_size=job.world_size,
        balance=job.balance,
        bottleneck_nodes=job.bottleneck_nodes,
        stages=job.stages,
        stage_skew=job.stage_skew,
        planned_skew=job.planned_skew,
        bottleneck_stages=job.bottleneck_stages,
        first_diverging=None if first is None else f"{first.name} ({first.place})",
    )


GUARD_SCHEMA: Final = "vramscope.guard/1"


class GuardAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """A process that is asked to do something, and later the outcome."""

    node: str
    pid: int
    rank: int | None
    job: str
    action: AdviceAction
    reason: str
    is_obeyed: bool | None = None
    """Whether it did so; None before its answer."""
    outcome: str | None = None
    """The outcome, or why it was not asked; None before its answer."""
    freed_bytes: int | None = None
    """Reserved bytes that were freed; None where that was not measured."""


class GuardState(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes together."""

    nodes_live: int
    nodes_known: int
    balance: float | None
    bottleneck_nodes: tuple[str, ...]
    jobs: tuple[JobOverNodes, ...]
    nodes_left_out: int = 0
    """Known nodes that are not followed because they were not asked for; nothing is concluded about them."""
    devices_left_out: int = 0
    """The same for devices of live nodes."""


class GuardLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `vramscope guard --json`."""

    schema: Literal["vramscope.guard/1"] = GUARD_SCHEMA
    time: float
    """Wall clock here, in seconds since the epoch."""
    event: Literal["finding", "advice", "outcome", "state"]
    finding: Finding | None = None
    """Findings that opened, changed or closed; times are from this machine's clock."""
    advice: GuardAdvice | None = None
    state: GuardState | None = None
    """Only the last line has it."""


def describe_advice(advice: Advice, answer: RankAdvice | None = None) -> GuardAdvice:
    advised = None if answer is None else answer.advised
    outcome = advised.outcome if advised is not None else None if answer is None else answer.refusal
    return GuardAdvice(
        node=advice.rank.key.node,
        pid=advice.rank.key.pid,
        rank=advice.rank.rank,
        job=advice.job,
        action=advice.action,
        reason=advice.reason,
        is_obeyed=None if answer is None else advised is not None and advised.is_obeyed,
        outcome=outcome,
        freed_bytes=None if advised is None else advised.freed_bytes,
    )


def describe_state(picture: ClusterPicture, nodes_left_out: int = 0) -> GuardState:
    """Return all nodes together, without their single ranks."""
    return GuardState(
        nodes_live=picture.live,
        nodes_known=picture.total,
        balance=picture.balance,
        bottleneck_nodes=picture.bottleneck_nodes,
        jobs=tuple(describe_job(job) for job in picture.jobs),
        nodes_left_out=nodes_left_out,
        devices_left_out=picture.devices_left_out,
    )


def word_line(line: GuardLine) -> Iterator[str]:
    if line.finding is not None:
        state = line.finding.severity if line.finding.is_open else "closed"
        yield make_printable(f"{state}: {line.finding.title}")
        if line.finding.is_open and line.finding.updated_s == line.finding.opened_s:
            yield make_printable(f"  {line.finding.advice}")
    elif line.advice is not None:
        yield make_printable(_word_advice(line.advice))
    elif line.state is not None:
        yield from map(make_printable, _word_state(line.state))


def _word_advice(advice: GuardAdvice) -> str:
    who = f"process {advice.pid}" if advice.rank is None else f"rank {advice.rank}"
    whose = f"{who} of {advice.job} on {advice.node}" if advice.job else f"{who} on {advice.node}"
    if advice.outcome is None:
        return f"advice to {whose}: {advice.action}: {advice.reason}"
    return f"{whose} {'' if advice.is_obeyed else 'did not comply: '}{advice.outcome}"


def _word_state(state: GuardState) -> Iterator[str]:
    yield (
        f"{state.nodes_live} of {state.nodes_known} nodes live, balance {_number(state.balance)}, "
        f"bottleneck nodes: {', '.join(state.bottleneck_nodes) or 'none'}"
    )
    if state.nodes_left_out or state.devices_left_out:
        left_out = [count(state.nodes_left_out, "node")] if state.nodes_left_out else []
        if state.devices_left_out:
            left_out.append(f"{count(state.devices_left_out, 'device')} of followed nodes")
        yield f"not followed: {' and '.join(left_out)}"
    for job in state.jobs:
        yield (
            f"job {job.job}: {job.ranks_seen} of {job.world_size or job.ranks_seen} ranks report on "
            f"{len(job.nodes)} nodes, balance {_number(job.balance)}, first to diverge: "
            f"{job.first_diverging or 'none'}"
        )
        for stage in job.stages:
            is_most = " (bottleneck)" if stage.stage in job.bottleneck_stages else ""
            plan = "" if stage.planned_bytes is None else f", plan {format_bytes(stage.planned_bytes)}"
            yield f"  stage {stage.stage}: peak {format_bytes(stage.peak_bytes)}{plan}{is_most}"


def _number(value: float | None) -> str:
    return show_number(value, ".2f")
