"""A joint plan for the Plan screen: configurations of all degrees, the memory of a rank of each stage."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

from ...analyzers.planning.graph import MIB
from ...analyzers.planning.theory import MemoryPart
from ...analyzers.sentence import Sentence
from ...engine.units import format_bytes, format_share
from ...exporters.plan.joint import (
    JointConfigurationReport,
    JointPlanReport,
    JointStageReport,
    list_configurations,
)
from .planned import (
    Candidate,
    KindBytes,
    MemoryKind,
    Planned,
    PlannedColumn,
    PlannedStage,
    PlannedTable,
    StepPart,
)

# Heading of the step column here: nothing was measured.
ESTIMATED_STEP = "est. s"
# Kind of each part of the states; all others belong to the optimizer.
_STATE_KINDS: dict[str, MemoryKind] = {
    "weights": "weights",
    "fp8 copies": "weights",
    "gradients": "gradients",
    "gradient copies": "gradients",
}
_GROUP_KINDS: dict[str, MemoryKind] = {"activations": "activations", "loss": "activations"}


def present_joint_plan(
    report: JointPlanReport, *, text: str, write: Callable[[Path], list[Path]] | None = None
) -> Planned:
    """Return a joint plan for the screen; `text` is the report, `write` writes the plan's files into a
    folder.
    """
    (heading, *rows), sides = list_configurations(report.configurations)
    names = [ESTIMATED_STEP if name == "step s" else name for name in heading]
    given = report.assumptions
    learnt = f"calibrated by {given.calibration}" if given.calibration else "not measured"
    return Planned(
        model=f"{report.model} on {report.cluster}: {report.devices:,} devices",
        verdict=_judge(report.configurations[0]),
        columns=tuple(
            PlannedColumn(name, is_left=side == "l") for name, side in zip(names, sides, strict=True)
        ),
        candidates=tuple(
            _make_candidate(own, cells) for own, cells in zip(report.configurations, rows, strict=True)
        ),
        best=0,
        findings=f"{report.considered:,} configurations considered",
        analysis=partial(_describe_search, report),
        basis=(
            f"estimated, not measured: steps of {given.global_batch:,} x {given.seq_length:,} tokens, matrix "
            f"products at {format_share(given.efficiency)} of the peak ({learnt}), "
            f"{format_share(given.memory_share)} of memory"
        ),
        assumed=report.assumed,
        report=text,
        write=write,
    )


def _name(own: JointConfigurationReport) -> str:
    return f"TP {own.layout.tensor} PP {own.layout.pipeline} DP {own.layout.data}"


def _judge(best: JointConfigurationReport) -> Sentence:
    setup = best.setup
    use = f"Use {_name(best)}"
    how = f"ZeRO {setup.zero_stage}, recompute {setup.recompute}, micro-batches of {setup.micro_batch_size}"
    step = f"an estimated {best.step_s:.3g} s a step"
    fullest = max(best.stages, key=lambda stage: stage.peak_bytes - stage.capacity_bytes)
    memory = f"fullest rank {format_bytes(fullest.peak_bytes)} of {format_bytes(fullest.capacity_bytes)}"
    return Sentence(
        (
            (f"{use}, {how}: {step}, {best.tokens_per_s:,.0f} tokens/s", f"{use}, {how}: {step}", use),
            (f"{memory}, estimated", memory, ""),
        )
    )


def _make_candidate(own: JointConfigurationReport, cells: tuple[str, ...]) -> Candidate:
    return Candidate(
        name=f"{own.rank}: {_name(own)}",
        note="best" if own.rank == 1 else "",
        cells=cells,
        values=tuple(_value(cell) for cell in cells),
        stages=tuple(_make_stage(stage) for stage in own.stages),
        reason="; ".join(own.reasons),
        tensor=own.layout.tensor,
        step_parts=_list_step_parts(own),
    )


def _value(cell: str) -> float | str:
    """Return the sort key of a cell: its number, or its text."""
    try:
        return float(cell.replace(",", "").removesuffix("%"))
    except ValueError:
        return cell


def _list_step_parts(own: JointConfigurationReport) -> tuple[StepPart, ...]:
    time = own.time
    parts = (
        ("compute", time.compute_s),
        ("tensor", time.tensor_s),
        ("stages", time.pipeline_s),
        ("bubble", time.bubble_s),
        ("data", time.data_s),
        ("optimizer", time.optimizer_s),
    )
    return tuple(StepPart(name, duration_s) for name, duration_s in parts if duration_s > 0)


def _make_stage(stage: JointStageReport) -> PlannedStage:
    sizes: dict[MemoryKind, int] = {}
    for part in stage.parts:
        kind = _find_kind(part)
        sizes[kind] = sizes.get(kind, 0) + part.size_bytes
    kinds: tuple[MemoryKind, ...] = ("weights", "gradients", "optimizer", "activations", "other")
    return PlannedStage(
        layers=_describe_stage_layers(stage.layers),
        kinds=tuple(KindBytes(kind, sizes[kind]) for kind in kinds if kind in sizes),
        peak_bytes=stage.peak_bytes,
        capacity_bytes=stage.capacity_bytes,
        describe=partial(_describe_memory, stage),
    )


def _describe_stage_layers(layers: tuple[int, ...]) -> str:
    """Return which layers a stage has; of an interleaved one how many, and in how many pieces."""
    if not layers:
        return "none"
    pieces = 1 + sum(after != before + 1 for before, after in pairwise(layers))
    return f"{layers[0]}-{layers[-1]}" if pieces == 1 else f"{len(layers)} in {pieces}"


def _find_kind(part: MemoryPart) -> MemoryKind:
    if part.group == "states":
        return _STATE_KINDS.get(part.name, "optimizer")
    return _GROUP_KINDS.get(part.group, "other")


def _describe_memory(stage: JointStageReport) -> PlannedTable:
    devices = stage.devices
    where = f"device {devices[0]}" if len(devices) == 1 else f"devices {devices[0]}-{devices[-1]}"
    rows = tuple(
        (
            part.name,
            part.group,
            _find_kind(part),
            f"{part.size_bytes / MIB:,.1f}",
            format_share(part.size_bytes / stage.peak_bytes, 1),
        )
        for part in stage.parts
    )
    title = (
        f"stage {stage.stage} on {where}: one rank at its peak ({stage.peak_moment}), "
        f"{format_bytes(stage.peak_bytes)} of {format_bytes(stage.capacity_bytes)}, estimated"
    )
    return PlannedTable(title, ("part", "group", "drawn as", "MiB", "share"), "lllrr", rows)


def _describe_search(report: JointPlanReport) -> PlannedTable:
    rows = tuple((f"{each.count:,}", each.reason) for each in report.pruned if each.count)
    listed = (str(len(report.configurations)), "are listed")
    return PlannedTable(
        f"{report.considered:,} configurations considered; {report.optimality}",
        ("configurations", "why they were left out"),
        "rl",
        (listed, *rows),
    )
