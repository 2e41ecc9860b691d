"""A joint plan as an object of `vramscope plan --cluster --json`."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from ...analyzers.planning.joint import (
    JOINT_PLAN_SCHEMA,
    JointAssumptions,
    JointConfiguration,
    JointPlan,
    JointStage,
    PrunedCount,
    StepTime,
)
from ...analyzers.planning.theory import MemoryPart, ParallelLayout, TrainingSetup
from ...analyzers.planning.theory.configs.audit import name_not_counted
from ...analyzers.planning.theory.configs.flags import NotCounted
from ...engine.text import make_printable
from ...engine.units import GIB, format_share
from ..text import describe_assumptions, format_rows, wrap


class JointStageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline stage; all its ranks are alike."""

    stage: int
    layers: tuple[int, ...]
    """Transformer layers, from 0; embedding and head are in the first and last stage too."""
    devices: tuple[int, ...]
    """Positions in the cluster of the stage's ranks."""
    capacity_bytes: int
    """Bytes of the smallest of these devices that a plan may fill."""
    allocated_bytes: int
    """Bytes of a rank between steps, estimated."""
    peak_bytes: int
    """Peak bytes of a rank, estimated."""
    headroom_bytes: int
    peak_moment: str
    parts: tuple[MemoryPart, ...]
    """Share of the capacity at the peak."""
    micro_batch_s: float
    """Seconds of one micro-batch, forward and backward, estimated."""


class JointConfigurationReport(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration; times and memory are estimates."""

    rank: int
    """1 for the fastest."""
    layout: ParallelLayout
    setup: TrainingSetup
    step_s: float
    time: StepTime
    """Seconds of the step by cause; they add up to `step_s`."""
    bubble_share: float
    tokens_per_s: float
    flops_per_s: float
    """FLOP/s of the model on one device, without recomputation."""
    peak_bytes: int
    """Peak bytes of the rank that needs most."""
    least_headroom_bytes: int
    reasons: tuple[str, ...]
    stages: tuple[JointStageReport, ...]


class JointPlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest configurations of a model on a cluster."""

    schema: str
    model: str
    cluster: str
    devices: int
    is_estimate: bool = True
    """Always true: nothing was run."""
    assumptions: JointAssumptions
    considered: int
    """Number of configurations in the space; the split of layers into stages is solved for, not counted."""
    pruned: tuple[PrunedCount, ...]
    """How many of them were left out, and why."""
    optimality: str
    not_counted: tuple[NotCounted, ...]
    """Flags of the model's file that change memory and are not in the estimates: with them a plan may not
    fit."""
    assumed: tuple[str, ...]
    """What was assumed, since neither flags nor files say it."""
    configurations: tuple[JointConfigurationReport, ...]


def report_joint_plan(plan: JointPlan) -> JointPlanReport:
    configurations = [
        _report_configuration(plan, rank, each) for rank, each in enumerate(plan.configurations, start=1)
    ]
    return JointPlanReport(
        schema=JOINT_PLAN_SCHEMA,
        model=plan.model,
        cluster=plan.cluster,
        devices=plan.devices,
        assumptions=plan.assumptions,
        considered=plan.considered,
        pruned=plan.pruned,
        optimality=plan.optimality,
        not_counted=plan.not_counted,
        assumed=plan.assumed,
        configurations=tuple(configurations),
    )


def _report_configuration(plan: JointPlan, rank: int, own: JointConfiguration) -> JointConfigurationReport:
    step_s = own.time.total_s
    given = plan.assumptions
    return JointConfigurationReport(
        rank=rank,
        layout=own.layout,
        setup=own.setup,
        step_s=step_s,
        time=own.time,
        bubble_share=own.time.bubble_s / step_s,
        tokens_per_s=given.global_batch * given.seq_length / step_s,
        flops_per_s=plan.model_flops / step_s / plan.devices,
        peak_bytes=own.peak_bytes,
        least_headroom_bytes=own.least_headroom_bytes,
        reasons=own.reasons,
        stages=tuple(_report_stage(stage) for stage in own.stages),
    )


def _report_stage(own: JointStage) -> JointStageReport:
    peak = own.memory.peak
    return JointStageReport(
        stage=own.stage,
        layers=own.layers,
        devices=own.devices,
        capacity_bytes=own.capacity_bytes,
        allocated_bytes=own.memory.allocated_bytes,
        peak_bytes=peak.total_bytes,
        headroom_bytes=own.capacity_bytes - peak.total_bytes,
        peak_moment=peak.name,
        parts=peak.parts,
        micro_batch_s=own.compute_s,
    )


# A joint plan as tables: configurations, where their seconds go, the stages of the fastest, what was left
# out.

_HEADING = (
    "#",
    "TP",
    "PP",
    "DP",
    "EP",
    "ZeRO",
    "recompute",
    "batch",
    "pieces",
    "step s",
    "peak GiB",
    "left GiB",
    "bubble",
    "tokens/s",
    "TFLOP/s",
    "SP",
    "layers",
)
"""The last ones are left out where a line has no room for them."""
_PARTS = ("#", "kernels s", "tensor s", "stages s", "bubble s", "data s", "optimizer s")
_STAGES = ("stage", "layers", "devices", "peak GiB", "left GiB", "at", "ms")


def describe_joint_plan(report: JointPlanReport, width: int) -> str:
    lines = [
        *wrap(_describe_best(report), width),
        *wrap(describe_assumptions(report.assumed), width),
        "",
    ]
    lines += format_rows(*list_configurations(report.configurations), width)
    lines += ["", "where a step's time goes, estimated:"]
    lines += format_rows([_PARTS, *(_list_parts(each) for each in report.configurations)], "rrrrrrr", width)
    reasons = (f"{each.rank}: {reason}" for each in report.configurations for reason in each.reasons)
    lines += [line for reason in reasons for line in wrap(reason, width)]
    lines += ["", "stages of the first:"]
    lines += format_rows([_STAGES, *_list_stages(report.configurations[0])], "rlrrrlr", width)
    lines += ["", *_describe_search(report, width)]
    return "".join(f"{make_printable(line)}\n" for line in lines)


def _describe_best(report: JointPlanReport) -> str:
    best = report.configurations[0]
    given = report.assumptions
    layout = best.layout
    setup = best.setup
    devices = "1 device" if report.devices == 1 else f"{report.devices:,} devices"
    return (
        f"{report.model} on {report.cluster} ({devices}): TP {layout.tensor} PP "
        f"{layout.pipeline} DP {layout.data}{_describe_rest(layout)}, ZeRO {setup.zero_stage}, recompute "
        f"{setup.recompute}, "
        f"micro-batches of {setup.micro_batch_size}: an estimated {best.step_s:.3g} s for a step of "
        f"{given.global_batch:,} x {given.seq_length:,} tokens, at most {best.peak_bytes / GIB:.1f} GiB on a "
        "rank."
    )


def _describe_rest(layout: ParallelLayout) -> str:
    words = f" EP {layout.expert}" if layout.expert > 1 else ""
    words += f" x {layout.virtual_stages} pieces" if layout.virtual_stages > 1 else ""
    return words + (" with sequence parallelism" if layout.is_sequence_parallel else "")


def list_configurations(
    configurations: Sequence[JointConfigurationReport],
) -> tuple[list[tuple[str, ...]], str]:
    """Return rows and their alignment; a column that says the same of all is left out where it need not
    be."""
    rows = [_HEADING, *(_list_cells(each) for each in configurations)]
    dull = {
        column
        for column, usual in ((_HEADING.index("EP"), "1"), (_HEADING.index("pieces"), "1"))
        if all(row[column] == usual for row in rows[1:])
    }
    kept = [column for column in range(len(_HEADING)) if column not in dull]
    alignment = "rrrrrrlrrrrrrrrll"
    return [tuple(row[column] for column in kept) for row in rows], "".join(
        alignment[column] for column in kept
    )


def _list_cells(own: JointConfigurationReport) -> tuple[str, ...]:
    layout = own.layout
    setup = own.setup
    return (
        str(own.rank),
        str(layout.tensor),
        str(layout.pipeline),
        str(layout.data),
        str(layout.expert),
        str(setup.zero_stage),
        setup.recompute,
        str(setup.micro_batch_size),
        str(layout.virtual_stages),
        f"{own.step_s:.3f}",
        f"{own.peak_bytes / GIB:.1f}",
        f"{own.least_headroom_bytes / GIB:.1f}",
        format_share(own.bubble_share, 1),
        f"{own.tokens_per_s:,.0f}",
        f"{own.flops_per_s / 1e12:,.0f}",
        "yes" if layout.is_sequence_parallel else "no",
        fold_counts([len(stage.layers) for stage in own.stages]),
    )


def fold_counts(counts: Sequence[int]) -> str:
    """Return numbers of layers with repeats folded: `5 3x6 5`."""
    runs = [(count, len(list(run))) for count, run in groupby(counts)]
    return " ".join(str(count) if times == 1 else f"{times}x{count}" for count, times in runs)


def _list_parts(own: JointConfigurationReport) -> tuple[str, ...]:
    time = own.time
    seconds = (time.compute_s, time.tensor_s, time.pipeline_s, time.bubble_s, time.data_s, time.optimizer_s)
    return (str(own.rank), *(f"{each:.3f}" for each in seconds))


def _list_stages(own: JointConfigurationReport) -> Iterator[tuple[str, ...]]:
    """Yield a row a stage; neighbours that differ in their place alone are one row."""
    for _, group in groupby(own.stages, key=_describe_stage):
        run = list(group)
        first = run[0]
        last = run[-1]
        yield (
            str(first.stage) if len(run) == 1 else f"{first.stage}-{last.stage}",
            f"{len(run)}x{len(first.layers)}" if len(run) > 1 else str(len(first.layers)),
            _describe_devices(first, last),
            f"{first.peak_bytes / GIB:.1f}",
            f"{first.headroom_bytes / GIB:.1f}",
            first.peak_moment,
            f"{1000 * first.micro_batch_s:.1f}",
        )


def _describe_stage(stage: JointStageReport) -> tuple[object, ...]:
    peak = round(stage.peak_bytes / GIB, 1)
    return len(stage.layers), peak, stage.capacity_bytes, stage.peak_moment, round(stage.micro_batch_s, 4)


def _describe_devices(first: JointStageReport, last: JointStageReport) -> str:
    low = min(first.devices[0], last.devices[0])
    high = max(first.devices[-1], last.devices[-1])
    return str(low) if low == high else f"{low}-{high}"


def _describe_search(report: JointPlanReport, width: int) -> Iterator[str]:
    yield f"{report.considered:,} configurations considered; left out:"
    for each in report.pruned:
        yield from wrap(f"{each.count:>9,}  {each.reason}", width, "  ") if each.count else ()
    yield from wrap(f"Within that: {report.optimality}.", width)
    if report.not_counted:
        parts = name_not_counted(report.not_counted)
        yield from wrap(f"Not counted: {parts}; whether a plan fits with that is not known.", width)
    given = report.assumptions
    learnt = f"calibrated by {given.calibration}" if given.calibration else "not measured here"
    yield from wrap(
        "All times and bytes are estimates: bytes of the memory theory, in at most "
        f"{format_share(given.memory_share)} of each device's memory; seconds of the time model, "
        f"with matrix products at {format_share(given.efficiency)} of the peak ({learnt}). batch: sequences "
        "of a micro-batch. left: below that share on the fullest rank. TFLOP/s: the model's, of one device. "
        "ms: of one micro-batch, forward and backward.",
        width,
    )
