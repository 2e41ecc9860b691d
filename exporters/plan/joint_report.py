"""A joint plan as an object of `vramscope plan --cluster --json`."""

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


class JointStageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline stage; all its ranks hold the same."""

    stage: int
    layers: tuple[int, ...]
    """Transformer layers, from 0; embedding and head belong to the first and last stage besides."""
    devices: tuple[int, ...]
    """Positions in the cluster of the stage's ranks."""
    capacity_bytes: int
    """Of the smallest of these devices, as far as a plan may fill it."""
    allocated_bytes: int
    """Of a rank between steps, estimated."""
    peak_bytes: int
    """Of a rank at most, estimated."""
    headroom_bytes: int
    peak_moment: str
    parts: tuple[MemoryPart, ...]
    """Of the peak."""
    micro_batch_s: float
    """Of one micro-batch, forward and backward, estimated."""


class JointConfigurationReport(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration; times and memory are estimates."""

    rank: int
    """1 for the fastest."""
    layout: ParallelLayout
    setup: TrainingSetup
    step_s: float
    time: StepTime
    """Where the seconds of the step go; they add up to `step_s`."""
    bubble_share: float
    tokens_per_s: float
    flops_per_s: float
    """Of the model, of one device, nothing recomputed counted."""
    peak_bytes: int
    """Of the rank that holds most."""
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
    """Always: nothing was run."""
    assumptions: JointAssumptions
    considered: int
    """How many configurations the space has; their stages' layers are solved for, not counted."""
    pruned: tuple[PrunedCount, ...]
    """How many of them were left out, and why."""
    optimality: str
    configurations: tuple[JointConfigurationReport, ...]


def report_joint_plan(plan: JointPlan) -> JointPlanReport:
    """Return what is printed of a plan."""
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
