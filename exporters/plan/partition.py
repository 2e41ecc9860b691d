"""A plan as the text report of llm_parallel_strategy: the model, its strategies at one number of stages."""

import json
from collections.abc import Iterator

from ...analyzers.planning.feedback import FeedbackSplit, FeedbackStage, PlanFeedback
from ...analyzers.planning.graph import STATE_BYTES, ModelGraph
from ...analyzers.planning.partition import Bottleneck, Distribution, PartitionResult, Plan, StageCount
from ...analyzers.planning.theory.configs.audit import name_not_counted
from ...analyzers.sentence import count
from ...engine.text import make_printable
from ...engine.units import GIB, MIB, format_bytes, format_share
from ..text import UNKNOWN, describe_assumptions, format_rows, show_number, wrap


def describe_strategies(plan: Plan) -> str:
    """Return what `pipeline_strategy_report.txt` holds, for the number of stages that is recommended."""
    lines = [*_describe_model(plan), *_describe_partitions(plan), *_describe_advice(plan)]
    return "\n".join(map(make_printable, lines))


def _describe_model(plan: Plan) -> Iterator[str]:
    analysis = plan.analysis
    yield "=== Graph Partitioning Analysis Report ==="
    yield ""
    yield "=== Model Statistics ==="
    yield f"Total Layers: {analysis.total_layers}"
    yield f"Transformer Layers: {analysis.transformer_layers}"
    yield f"Total Parameters: {round(analysis.parameters.total):,}"
    yield f"Total Memory: {analysis.memory_mb.total:.2f} MB"
    yield f"Total Compute: {analysis.compute_gflops.total:.2f} GFLOPs"
    if plan.recommended.training_bytes is not None:  # the original knows weights alone
        yield from _describe_layers(plan)
    yield ""


def _describe_layers(plan: Plan) -> Iterator[str]:
    """Yield the unit of weights, the notable layers, and sums by type of layer."""
    analysis = plan.analysis
    yield f"Memory is of weights alone, in {name_weights(plan)}; training takes {describe_states(plan)},"
    yield "and activations in flight."
    figures = (
        ("Parameters", analysis.parameters, analysis.max_parameter_layer),
        ("Memory (MB)", analysis.memory_mb, analysis.max_memory_layer),
        ("Compute (GFLOPs)", analysis.compute_gflops, analysis.max_compute_layer),
    )
    for name, spread, layer in figures:
        yield (
            f"{name} of a layer: {spread.least:,.2f} to {spread.most:,.2f}, mean {spread.mean:,.2f}; "
            f"most in {layer.name} ({format_share(layer.share, 1)})"
        )
        shares = (
            f"{kind} {format_share(sum_ / spread.total, 1)}"
            for kind, sum_ in spread.by_type.items()
            if spread.total
        )
        yield f"  by type: {', '.join(shares)}"


def _describe_partitions(plan: Plan) -> Iterator[str]:
    yield f"=== Partitioning Strategies ({plan.recommended_stages} stages) ==="
    yield ""
    for strategy, search in plan.searches.items():
        count = search.optimization_results[plan.recommended.total_stages]
        yield f"{strategy.upper()}:"
        if count.result is None:
            yield f"  Error: {count.error}"
        else:
            yield from _describe_partition(count.result)
        yield ""
    for strategy, why in plan.refused.items():
        yield f"{strategy.upper()}:"
        yield f"  Error: {why}"
        yield ""


def _describe_partition(result: PartitionResult) -> Iterator[str]:
    yield f"  Balance Score: {result.balance_score:.4f}"
    yield f"  Max Memory Usage: {result.max_memory_usage:.2f} MB"
    yield f"  Total Communication Cost: {result.total_communication_cost:.2f} MB"
    if result.training_bytes is not None:
        yield f"  Max Training Memory: {max(result.training_bytes) / MIB:.2f} MB"
    for stage in result.partitions:
        yield (
            f"    Stage {stage.partition_id}: Layers {stage.start_layer}-{stage.end_layer}, "
            f"Memory: {stage.total_memory_mb:.2f} MB, Params: {stage.total_parameters:,}"
        )


def _describe_advice(plan: Plan) -> Iterator[str]:
    yield "=== Recommendations ==="
    yield f"Recommended Strategy: {plan.recommended_strategy}"
    yield f"Reason: {plan.reason}"
    if plan.assumed and plan.recommended.training_bytes is not None:  # the original's report has no such line
        yield describe_assumptions(plan.assumed)


# A plan as tables: numbers of stages by strategy, the recommended stages, the notable layers.

_HEADING = (
    "stages",
    "strategy",
    "",
    "weights MiB",
    "training MiB",
    "step ms",
    "sent MiB",
    "bubble",
    "balance",
)
"""The last ones are left out where a line has no room for them."""
_STAGE_HEADING = (
    "stage",
    "layers",
    "blocks",
    "weights MiB",
    "training MiB",
    "GFLOP",
    "sent MiB",
    "parameters",
)
_SPREAD_HEADING = ("of a layer", "least", "mean", "most", "layer with most (share of all)")
LEGACY_NOTE = (
    "GFLOP as llm_parallel_strategy counts them: the embedding's number is in FLOP, and the total adds it "
    "unchanged. For a model by name, without --legacy, matrix products are counted."
)


def describe_plan(plan: Plan, width: int) -> str:
    lines = [*_describe_sizes(plan, width), ""]
    lines += format_rows([_HEADING, *_list_rows(plan)], "rllrrrrrr", width)
    lines += [line for sentence in _list_refusals(plan) for line in wrap(sentence, width)]
    lines += ["", *_describe_recommended(plan, width)]
    if plan.not_counted:
        parts = name_not_counted(plan.not_counted)
        lines += wrap(f"Not counted: {parts}; whether a plan fits with that is not known.", width)
    return "".join(f"{make_printable(line)}\n" for line in lines)


def _describe_sizes(plan: Plan, width: int) -> Iterator[str]:
    analysis = plan.analysis
    yield from wrap(
        f"{plan.model}: {analysis.total_layers} layers, {round(analysis.parameters.total):,} parameters, "
        f"{analysis.memory_mb.total:,.2f} MiB of weights in {name_weights(plan)}{_name_copies(plan)}, "
        f"{analysis.compute_gflops.total:,.1f} GFLOP forward{_name_sequence(plan)}",
        width,
    )
    rows = [
        _describe_spread("parameters", analysis.parameters, analysis.max_parameter_layer, 0),
        _describe_spread("weights MiB", analysis.memory_mb, analysis.max_memory_layer, 2),
        _describe_spread("GFLOP", analysis.compute_gflops, analysis.max_compute_layer, 1),
    ]
    yield from format_rows([_SPREAD_HEADING, *rows], "lrrrl", width)


def _describe_spread(name: str, spread: Distribution, most: Bottleneck, digits: int) -> tuple[str, ...]:
    """Return how one quantity is spread over the layers, and the layer that has most of it."""
    figures = (f"{figure:,.{digits}f}" for figure in (spread.least, spread.mean, spread.most))
    return (name, *figures, f"{most.name} ({format_share(most.share, 1)})")


def name_weights(plan: Plan) -> str:
    """Return the number format that weights are counted in, by their bytes."""
    size = plan.assumptions.weight_bytes_per_parameter
    return {4.0: "float32", 2.0: "16 bits"}.get(size, f"{size:.2f} bytes a parameter")


def _name_copies(plan: Plan) -> str:
    """Return what weights hold beyond the parameters: a head with the embedding's has a copy of them."""
    held = plan.analysis.memory_mb.total * MIB / plan.assumptions.weight_bytes_per_parameter
    return " with copies of shared ones" if round(held) > round(plan.analysis.parameters.total) else ""


def _name_sequence(plan: Plan) -> str:
    """Return the sequence length that the FLOPs are for, independent of micro-batches; nothing if unknown."""
    tokens = plan.assumptions.seq_length
    return "" if tokens is None else f" of {tokens:,} tokens"


def describe_states(plan: Plan) -> str:
    """Return the bytes of each parameter in training, in words."""
    recipe = STATE_BYTES[plan.assumptions.states]
    return (
        f"{recipe.total} bytes a parameter ({plan.assumptions.states}: {recipe.weights} weights, "
        f"{recipe.gradients} gradients, {recipe.optimizer} optimizer)"
    )


def _list_refusals(plan: Plan) -> Iterator[str]:
    for strategy, why in plan.refused.items():
        yield f"{strategy}: {why}"
    for strategy, search in plan.searches.items():
        for number, stages in search.optimization_results.items():
            if stages.error is not None:
                yield f"{number} stages, {strategy}: {stages.error}"


def _list_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    numbers = sorted({number for search in plan.searches.values() for number in search.optimization_results})
    for number in numbers:
        for strategy, search in plan.searches.items():
            found = search.optimization_results[number]
            is_best = (strategy, number) == (plan.recommended_strategy, plan.recommended_stages)
            yield _describe_count(number, strategy, found, is_best=is_best)


def _describe_count(number: int, strategy: str, count: StageCount, *, is_best: bool) -> tuple[str, ...]:
    result = count.result
    if result is None:
        return (str(number), strategy, "", *[UNKNOWN] * 6)
    note = "best" if is_best else "over" if count.fits is False else ""
    return (
        str(number),
        strategy,
        note,
        f"{result.max_memory_usage:,.2f}",
        UNKNOWN if result.training_bytes is None else f"{max(result.training_bytes) / MIB:,.0f}",
        UNKNOWN if count.step_s is None else f"{1000 * count.step_s:,.1f}",
        f"{result.total_communication_cost:,.2f}",
        format_share(count.bubble_share),
        f"{result.balance_score:.4f}",
    )


def _describe_recommended(plan: Plan, width: int) -> Iterator[str]:
    if plan.recommended_strategy is None:
        yield from wrap(f"Nothing fits: {plan.reason.partition(': ')[2]}", width)
        yield from wrap(describe_assumptions(plan.assumed), width)
    else:
        yield from wrap(
            f"Recommended: {plan.recommended_stages} stages, {plan.recommended_strategy}: {plan.reason}",
            width,
        )
        yield from wrap(describe_assumptions(plan.assumed), width)
        yield from format_rows([_STAGE_HEADING, *_list_stages(plan.recommended)], "rlrrrrrr", width)
    if plan.analysis.compute_gflops.by_type.get("embedding"):
        yield from wrap(LEGACY_NOTE, width)
    given = plan.assumptions
    batch = "" if given.seq_length is None else f" of {given.micro_batch} x {given.seq_length:,} tokens"
    held = (
        f"{UNKNOWN}, as the activations of these layers are unknown."
        if not _has_training(plan)
        else f"{describe_states(plan)}, and activations in flight of {given.micro_batches} "
        f"micro-batches{batch} (1F1B)."
    )
    over = "best: recommended. over: more than --capacity. " if given.capacity_bytes is not None else ""
    yield from wrap(
        f"{over}weights and training MiB: of the fullest stage. weights MiB: weights alone, in "
        f"{name_weights(plan)}. training MiB: {held} step ms: of {given.micro_batches} micro-batches, "
        f"computed for devices of {given.flops_per_s / 1e12:,.0f} TFLOP/s and links of "
        f"{given.link_bytes_per_s / 1e9:,.0f} GB/s, not measured.",
        width,
    )


def _has_training(plan: Plan) -> bool:
    """Return whether it is known what the stages hold while they train."""
    counts = (it for search in plan.searches.values() for it in search.optimization_results.values())
    return any(count.result is not None and count.result.training_bytes is not None for count in counts)


def _list_stages(result: PartitionResult) -> Iterator[tuple[str, ...]]:
    for number, stage in enumerate(result.partitions):
        held = result.training_bytes
        yield (
            str(number),
            f"{stage.start_layer}-{stage.end_layer}",
            str(result.transformer_layers[number]),
            f"{stage.total_memory_mb:,.2f}",
            UNKNOWN if held is None else f"{held[number] / MIB:,.0f}",
            f"{stage.total_compute_gflops:,.1f}",
            f"{stage.communication_cost:,.2f}",
            f"{stage.total_parameters:,}",
        )


# A partition as JSON, in the shapes of llm_parallel_strategy's two files; MB in their keys is MiB.


def encode_partition(result: PartitionResult) -> bytes:
    return json.dumps(result.to_dict(), indent=2).encode()


def encode_pipeline_config(model: str, result: PartitionResult) -> bytes:
    content = {
        "model_name": model,
        "total_stages": result.total_stages,
        "strategy": result.strategy,
        "balance_score": result.balance_score,
        "max_memory_per_stage": result.max_memory_usage,
        "stages": [
            {
                "stage_id": stage.partition_id,
                "layer_range": [stage.start_layer, stage.end_layer],
                "memory_mb": stage.total_memory_mb,
                "parameters": stage.total_parameters,
                "compute_gflops": stage.total_compute_gflops,
            }
            for stage in result.partitions
        ],
    }
    return json.dumps(content, indent=2).encode()


# A plan compared with a measured job, as text: a row a stage, and the recommended change.

_MEASURED = ("allocated", "reserved", "device", "difference", "factor", "ranks")
"""Columns; the last ones are left out where a line has no room for them."""


def describe_feedback(feedback: PlanFeedback, width: int) -> str:
    """Return the comparison of a plan with a measured job as text."""
    where = "the running job" if feedback.measured == "live" else feedback.measured
    lines = wrap(
        f"{feedback.model} in {count(len(feedback.stages), 'stage')}, plan and measurement of "
        f"{where}: peaks of the fullest rank of each stage. Planned values are computed.",
        width,
    )
    lines += ["", *format_rows([*_list_feedback_rows(feedback)], "rrrrrrrrr", width), ""]
    assumed = describe_assumptions(feedback.assumed)
    for sentence in (_word_factors(feedback), *_word_change(feedback), assumed, *feedback.notes):
        lines += wrap(sentence, width)
    return "".join(f"{make_printable(line)}\n" for line in lines)


def _list_feedback_rows(feedback: PlanFeedback) -> Iterator[tuple[str, ...]]:
    """Yield heading and stages, in GiB or, of a small model, in MiB."""
    largest = max(max(stage.planned_bytes, stage.allocated_bytes or 0) for stage in feedback.stages)
    unit, name = (GIB, "GiB") if largest >= GIB else (MIB, "MiB")
    has_blocks = any(feedback.present.blocks)
    yield ("stage", "blocks" if has_blocks else "layers", f"planned {name}", *_MEASURED)
    sizes = feedback.present.blocks if has_blocks else feedback.present.layers
    for stage, size in zip(feedback.stages, sizes, strict=True):
        yield _list_cells(stage, size, unit)


def _list_cells(stage: FeedbackStage, size: int, unit: int) -> tuple[str, ...]:
    held = (stage.planned_bytes, stage.allocated_bytes, stage.reserved_bytes, stage.used_bytes)
    difference = stage.difference_bytes
    return (
        str(stage.stage),
        str(size),
        *(show_number(each, ",.2f", per=unit) for each in held),
        show_number(difference, "+,.2f", per=unit),
        f"{stage.factor:.3f}{'*' if stage.is_factor_assumed else ''}",
        str(stage.ranks),
    )


def _word_factors(feedback: PlanFeedback) -> str:
    assumed = "; * is the median of the others" if any(s.is_factor_assumed for s in feedback.stages) else ""
    return (
        f"Factor: measured {feedback.basis} over planned; difference: measured minus planned{assumed}. "
        "Expected sizes below are estimates: planned bytes times the factor of their stage."
    )


def _word_change(feedback: PlanFeedback) -> Iterator[str]:
    present = feedback.present
    replanned = feedback.replanned
    if not feedback.would_change:
        yield f"Keep the split: with these factors no split needs less than {_name_fullest(present)}."
    else:
        share = feedback.saving_bytes / present.most_bytes
        yield (
            f"A different split would need less: {_name_blocks(replanned)} instead of "
            f"{_name_blocks(present)}. Expected of the fullest stage: {_name_fullest(replanned)} instead of "
            f"{_name_fullest(present)}, {format_bytes(feedback.saving_bytes)} "
            f"({format_share(share, 1)}) less."
        )
    if feedback.capacity_bytes is not None:
        capacity_bytes = feedback.capacity_bytes
        left = capacity_bytes - replanned.most_bytes
        room = f"leaves {format_bytes(left)}" if left >= 0 else f"is {format_bytes(-left)} more than it has"
        yield f"On a device of {format_bytes(capacity_bytes)} that {room}."


def _name_fullest(split: FeedbackSplit) -> str:
    fullest = split.expected_bytes.index(split.most_bytes)
    return f"{format_bytes(split.most_bytes)} in stage {fullest}"


def _name_blocks(split: FeedbackSplit) -> str:
    """Return what each stage has; layers of a model that has no blocks."""
    has_blocks = any(split.blocks)
    sizes = ", ".join(map(str, split.blocks if has_blocks else split.layers))
    return f"{sizes} {'blocks' if has_blocks else 'layers'}"


# A model graph as JSON, in the shape of llm_parallel_strategy's `*_model_graph.json`.


def encode_graph(graph: ModelGraph) -> bytes:
    """Return the file's bytes; the original's own content gives the original's bytes."""
    return json.dumps(graph.to_dict(), indent=2).encode()
