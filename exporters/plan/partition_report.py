"""A plan as the text report of llm_parallel_strategy: the model, its strategies at one number of stages."""

from collections.abc import Iterator

from ...analyzers.planning.graph import MIB
from ...analyzers.planning.partition import PartitionResult, Plan
from ...engine.text import make_printable
from .partition_table import describe_states, name_weights


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
    """Yield what weights are counted in, the layers that stand out, and sums by type of layer."""
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
            f"most in {layer.name} ({layer.share:.1%})"
        )
        shares = (
            f"{kind} {sum_ / spread.total:.1%}" for kind, sum_ in spread.by_type.items() if spread.total
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
