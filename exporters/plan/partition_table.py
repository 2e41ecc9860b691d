"""A plan as tables: numbers of stages by strategy, the recommended stages, the layers that stand out."""

from collections.abc import Iterator

from ...analyzers.planning.graph import MIB, STATE_BYTES
from ...analyzers.planning.partition import Bottleneck, Distribution, PartitionResult, Plan, StageCount
from ...engine.text import make_printable
from ..text_table import format_rows, wrap

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
UNKNOWN = "—"
LEGACY_NOTE = (
    "GFLOP as llm_parallel_strategy counts them: the embedding's figure is in FLOP, which the total adds up "
    "all the same. Of a model by name, without --legacy, the matrix products are counted."
)


def describe_plan(plan: Plan, width: int) -> str:
    """Return a plan as text.

    Args:
        plan: What was found.
        width: Cells of a line.
    """
    lines = [*_describe_model(plan, width), ""]
    lines += format_rows([_HEADING, *_list_rows(plan)], "rllrrrrrr", width)
    lines += [line for sentence in _list_refusals(plan) for line in wrap(sentence, width)]
    lines += ["", *_describe_recommended(plan, width)]
    return "".join(f"{make_printable(line)}\n" for line in lines)


def _describe_model(plan: Plan, width: int) -> Iterator[str]:
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
    """Return how one figure is spread over the layers, and the layer that has most of it."""
    figures = (f"{figure:,.{digits}f}" for figure in (spread.least, spread.mean, spread.most))
    return (name, *figures, f"{most.name} ({most.share:.1%})")


def name_weights(plan: Plan) -> str:
    """Return the number format that weights are counted in, by their bytes."""
    size = plan.assumptions.weight_bytes_per_parameter
    return {4.0: "float32", 2.0: "16 bits"}.get(size, f"{size:.2f} bytes a parameter")


def _name_copies(plan: Plan) -> str:
    """Return what weights hold beyond the parameters: a head with the embedding's has a copy of them."""
    held = plan.analysis.memory_mb.total * MIB / plan.assumptions.weight_bytes_per_parameter
    return " with copies of shared ones" if round(held) > round(plan.analysis.parameters.total) else ""


def _name_sequence(plan: Plan) -> str:
    """Return what the FLOPs are of, which no micro-batch changes; nothing of a graph that does not tell."""
    tokens = plan.assumptions.seq_length
    return "" if tokens is None else f" of {tokens:,} tokens"


def describe_states(plan: Plan) -> str:
    """Return what is held for a parameter while training, in words."""
    recipe = STATE_BYTES[plan.assumptions.states]
    return (
        f"{recipe.total} bytes a parameter ({plan.assumptions.states}: {recipe.weights} weights, "
        f"{recipe.gradients} gradients, {recipe.optimizer} optimizer)"
    )


def _list_refusals(plan: Plan) -> Iterator[str]:
    for strategy, why in plan.refused.items():
        yield f"{strategy}: {why}"
    for strategy, search in plan.searches.items():
        for number, count in search.optimization_results.items():
            if count.error is not None:
                yield f"{number} stages, {strategy}: {count.error}"


def _list_rows(plan: Plan) -> Iterator[tuple[str, ...]]:
    numbers = sorted({number for search in plan.searches.values() for number in search.optimization_results})
    for number in numbers:
        for strategy, search in plan.searches.items():
            count = search.optimization_results[number]
            is_best = (strategy, number) == (plan.recommended_strategy, plan.recommended_stages)
            yield _describe_count(number, strategy, count, is_best=is_best)


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
        UNKNOWN if count.bubble_share is None else f"{count.bubble_share:.0%}",
        f"{result.balance_score:.4f}",
    )


def _describe_recommended(plan: Plan, width: int) -> Iterator[str]:
    if plan.recommended_strategy is None:
        yield from wrap(f"Nothing fits: {plan.reason.partition(': ')[2]}", width)
    else:
        yield from wrap(
            f"Recommended: {plan.recommended_stages} stages, {plan.recommended_strategy}: {plan.reason}",
            width,
        )
        yield from format_rows([_STAGE_HEADING, *_list_stages(plan.recommended)], "rlrrrrrr", width)
    if plan.analysis.compute_gflops.by_type.get("embedding"):
        yield from wrap(LEGACY_NOTE, width)
    given = plan.assumptions
    batch = "" if given.seq_length is None else f" of {given.micro_batch} x {given.seq_length:,} tokens"
    held = (
        f"{UNKNOWN}, as the activations of these layers are not known."
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
