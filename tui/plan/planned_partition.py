"""A plan of stages for the Plan screen: strategies by numbers of stages, layers of each stage."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from ...analyzers.planning.graph import MIB, LayerNode, ModelGraph
from ...analyzers.planning.partition import (
    Bottleneck,
    Device,
    GraphAnalysis,
    GraphAnalyzer,
    Metric,
    PartitionResult,
    Plan,
    StageCount,
    StageMemory,
    Strategy,
)
from ...analyzers.planning.partition.graph_analyzer import THIN_SHARE
from ...analyzers.sentence import Sentence
from ...engine.errors import UsageError
from ...engine.units import format_bytes, format_share
from ...exporters.text import show_number
from ..draw.numbers import count_text
from .planned import Candidate, KindBytes, Note, Planned, PlannedColumn, PlannedStage, PlannedTable, StepPart

UNKNOWN = "—"
COLUMNS = (
    PlannedColumn("stages"),
    PlannedColumn("strategy", is_left=True),
    PlannedColumn("note", is_left=True),
    PlannedColumn("weights MiB"),
    PlannedColumn("training MiB"),
    PlannedColumn("est. ms"),
    PlannedColumn("bubble"),
    PlannedColumn("sent MiB"),
    PlannedColumn("CV"),
    PlannedColumn("mean MiB"),
    PlannedColumn("layers", is_left=True),
)
_LAYER_HEADING = (
    "layer",
    "name",
    "type",
    "weights MiB",
    "acts MiB",
    "GFLOP",
    "sends MiB",
    "parameters",
    "note",
)


def present_plan(
    plan: Plan,
    analyzer: GraphAnalyzer,
    *,
    report: str,
    metric: Metric = "training",
    write: Callable[[Path], list[Path]] | None = None,
) -> Planned:
    analysis = plan.analysis
    capacity = plan.assumptions.capacity_bytes
    candidates = _list_candidates(plan, analyzer, capacity, metric)
    best = next((place for place, each in enumerate(candidates) if each.note == "best"), None)
    given = plan.assumptions
    return Planned(
        model=f"{plan.model}: {analysis.total_layers} layers, {analysis.parameters.total:,.0f} parameters",
        verdict=_refuse_all(plan) if best is None else _judge(plan, candidates[best]),
        columns=COLUMNS,
        candidates=candidates,
        best=best,
        findings=" · ".join(
            f"most {what}: {layer.name} ({format_share(layer.share, 1)})"
            for layer, what in _list_bottlenecks(analysis)
        ),
        analysis=partial(_describe_analysis, plan.model, analysis),
        basis=(
            f"estimated, not measured: {given.micro_batches} micro-batches, 1F1B, "
            f"{given.flops_per_s / 1e12:,.0f} TFLOP/s, {given.link_bytes_per_s / 1e9:,.0f} GB/s"
        ),
        assumed=plan.assumed,
        report=report,
        write=write,
    )


def _judge(plan: Plan, best: Candidate) -> Sentence:
    use = f"Use {best.name}"
    reason = plan.reason.partition("; the fullest")[0]
    short = reason.partition(";")[0]
    peak = best.peak_bytes
    capacity = best.stages[0].capacity_bytes
    memory = "" if peak is None else f"fullest stage {format_bytes(peak)}"
    warning = ""
    if memory and capacity is not None and peak is not None:
        left_share = 1 - peak / capacity
        memory += f" of {format_bytes(capacity)}"
        warning = f"only {format_share(left_share, 1)} left" if left_share < THIN_SHARE else ""
        memory += f", {warning}" if warning else ""
    clauses: list[tuple[str, ...]] = [
        (f"{use}: {reason}", f"{use}: {short}", f"{use}: {short.partition(' (')[0]}", use)
    ]
    if memory:
        clauses.append((f"{memory} in training, estimated", memory, warning))
    return Sentence(tuple(clauses))


def _refuse_all(plan: Plan) -> Sentence:
    """Return what would fit, as a sentence, where nothing does."""
    why, _, ways = plan.reason.partition("; ")
    least = why.partition(": ")[2]
    return Sentence(((f"None fits: {least}", "None fits"), (ways, "")))


def _name(number: int, strategy: str) -> str:
    return f"{count_text(number, 'stage', 'stages')}, {strategy}"


def _list_candidates(
    plan: Plan, analyzer: GraphAnalyzer, capacity_bytes: int | None, metric: Metric
) -> tuple[Candidate, ...]:
    numbers = sorted({number for search in plan.searches.values() for number in search.optimization_results})
    found = [
        _make_candidate(
            plan, analyzer, strategy, (number, search.optimization_results[number]), capacity_bytes
        )
        for number in numbers
        for strategy, search in plan.searches.items()
    ]
    for strategy, why in plan.refused.items():
        found += _list_refused(plan, analyzer, numbers, (strategy, why), capacity_bytes, metric)
    return tuple(found)


def _list_refused(
    plan: Plan,
    analyzer: GraphAnalyzer,
    numbers: Sequence[int],
    refused: tuple[str, str],
    capacity_bytes: int | None,
    metric: Metric,
) -> list[Candidate]:
    """Return what a strategy that fits nowhere would need, or why it cannot be used at all."""
    strategy, why = refused
    given = plan.assumptions
    device = Device(flops_per_s=given.flops_per_s, link_bytes_per_s=given.link_bytes_per_s)
    try:
        search = analyzer.judge_stage_counts(numbers, metric, cast("Strategy", strategy), device)
    except UsageError:
        return [_refuse(None, strategy, why)]
    return [
        _make_candidate(plan, analyzer, strategy, (number, count), capacity_bytes)
        for number, count in search.optimization_results.items()
    ]


def _make_candidate(
    plan: Plan,
    analyzer: GraphAnalyzer,
    strategy: str,
    counted: tuple[int, StageCount],
    capacity_bytes: int | None,
) -> Candidate:
    number, count = counted
    result = count.result
    if result is None:
        return _refuse(number, strategy, count.error or "")
    is_best = (strategy, number) == (plan.recommended_strategy, plan.recommended_stages)
    stages = _list_stages(plan, analyzer, result, capacity_bytes)
    note: Note = "best" if is_best else "over" if any(stage.is_over for stage in stages) else ""
    cells, values = _fill_columns(number, strategy, note, count, result)
    return Candidate(
        name=_name(number, strategy),
        note=note,
        cells=cells,
        values=values,
        stages=stages,
        reason=plan.reason if is_best else "",
        step_parts=_split_step(count),
    )


def _refuse(number: int | None, strategy: str, why: str) -> Candidate:
    cells = ("" if number is None else str(number), strategy, "no", *[UNKNOWN] * (len(COLUMNS) - 3))
    values = (number, strategy, "no", *[None] * (len(COLUMNS) - 3))
    name = strategy if number is None else _name(number, strategy)
    return Candidate(name=name, note="refused", cells=cells, values=values, reason=why)


def _fill_columns(
    number: int, strategy: str, note: Note, count: StageCount, result: PartitionResult
) -> tuple[tuple[str, ...], tuple[float | str | None, ...]]:
    training = None if result.training_bytes is None else max(result.training_bytes) / MIB
    mean = math.fsum(stage.total_memory_mb for stage in result.partitions) / result.total_stages
    step_ms = None if count.step_s is None else 1000 * count.step_s
    layers = ",".join(str(len(stage.layer_ids)) for stage in result.partitions)
    values = (
        number,
        strategy,
        note,
        result.max_memory_usage,
        training,
        step_ms,
        count.bubble_share,
        result.total_communication_cost,
        result.balance_score,
        mean,
        layers,
    )
    formats = ("", "", "", ",.2f", ",.0f", ",.1f", ".0%", ",.2f", ".4f", ",.2f", "")
    cells = [
        UNKNOWN if value is None else format(value, form).replace("%", " %")
        for value, form in zip(values, formats, strict=True)
    ]
    return tuple(cells), values


def _split_step(count: StageCount) -> tuple[StepPart, ...]:
    step_s = count.step_s
    bubble = count.bubble_share
    sent = count.communication_share
    if step_s is None or bubble is None or sent is None:
        return ()
    busy_s = step_s * (1 - bubble)
    parts = (
        StepPart("compute", busy_s * (1 - sent)),
        StepPart("transfers", busy_s * sent),
        StepPart("bubble", step_s * bubble),
    )
    return tuple(part for part in parts if part.duration_s > 0)


def _list_stages(
    plan: Plan, analyzer: GraphAnalyzer, result: PartitionResult, capacity_bytes: int | None
) -> tuple[PlannedStage, ...]:
    outstanding = _name_outstanding(plan.analysis)
    return tuple(
        PlannedStage(
            layers=f"{stage.start_layer}-{stage.end_layer}",
            kinds=_list_kinds(held),
            peak_bytes=held.total_bytes,
            capacity_bytes=capacity_bytes,
            describe=partial(_describe_layers, analyzer.graph, stage.layer_ids, number, outstanding),
        )
        for number, (stage, held) in enumerate(
            zip(result.partitions, analyzer.split_memory(result), strict=True)
        )
    )


def _list_kinds(held: StageMemory) -> tuple[KindBytes, ...]:
    kinds = [
        KindBytes("weights", held.weights_bytes),
        KindBytes("gradients", held.gradients_bytes),
        KindBytes("optimizer", held.optimizer_bytes),
    ]
    if held.activations_bytes is not None:
        kinds.append(KindBytes("activations", held.activations_bytes))
    return tuple(kinds)


def _name_outstanding(analysis: GraphAnalysis) -> dict[int, str]:
    """Return what each outstanding layer has most of, by layer."""
    names: dict[int, list[str]] = {}
    for layer, what in _list_bottlenecks(analysis):
        names.setdefault(layer.layer_id, []).append(what)
    return {layer_id: f"most {', '.join(whats)}" for layer_id, whats in names.items()}


def _list_bottlenecks(analysis: GraphAnalysis) -> tuple[tuple[Bottleneck, str], ...]:
    return (
        (analysis.max_memory_layer, "memory"),
        (analysis.max_compute_layer, "compute"),
        (analysis.max_parameter_layer, "parameters"),
    )


def _describe_layers(
    graph: ModelGraph, ids: tuple[int, ...], number: int, outstanding: Mapping[int, str]
) -> PlannedTable:
    sent: dict[int, float] = {}
    for edge in graph.edges:
        sent[edge.source_id] = max(sent.get(edge.source_id, 0.0), edge.communication_cost)
    wanted = set(ids)
    rows = tuple(
        _describe_layer(layer, sent.get(layer.layer_id), outstanding.get(layer.layer_id, ""))
        for layer in graph.layers
        if layer.layer_id in wanted
    )
    title = f"stage {number}: its layers; weights in float32, activations of one micro-batch, forward GFLOP"
    return PlannedTable(title, _LAYER_HEADING, "rllrrrrrl", rows)


def _describe_layer(layer: LayerNode, sent_mib: float | None, outstanding: str) -> tuple[str, ...]:
    activations = layer.activation_bytes
    return (
        str(layer.layer_id),
        layer.name,
        layer.layer_type.replace("_", " "),
        f"{layer.memory_usage:,.2f}",
        show_number(activations, ",.1f", per=MIB),
        f"{layer.compute_flops:,.1f}",
        show_number(sent_mib, ",.2f"),
        f"{layer.parameter_count:,}",
        outstanding,
    )


def _describe_analysis(model: str, analysis: GraphAnalysis) -> PlannedTable:
    figures = (
        ("parameters", analysis.parameters, analysis.max_parameter_layer, ",.0f"),
        ("weights MiB", analysis.memory_mb, analysis.max_memory_layer, ",.2f"),
        ("GFLOP", analysis.compute_gflops, analysis.max_compute_layer, ",.1f"),
    )
    rows: list[tuple[str, ...]] = []
    for name, spread, most, form in figures:
        figures_of = (spread.least, spread.mean, spread.most, spread.total)
        rows.append((name, "all layers", *(format(value, form) for value in figures_of), "100 %", most.name))
        for type_, total in spread.by_type.items():
            share = format_share(total / spread.total, 1) if spread.total else UNKNOWN
            rows.append(("", type_.replace("_", " "), "", "", "", format(total, form), share, ""))
    heading = ("quantity", "layers", "least", "mean", "most", "sum", "share", "layer with most")
    title = f"{model}: how parameters, float32 weights and forward compute are spread over its layers"
    return PlannedTable(title, heading, "llrrrrrl", tuple(rows))
