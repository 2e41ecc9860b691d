"""A plan as the text report of llm_parallel_strategy: the model, its strategies at one number of stages."""

from collections.abc import Iterator

from ..analyzers.partition import PartitionResult, Plan


def describe_strategies(plan: Plan) -> str:
    """Return what `pipeline_strategy_report.txt` holds, for the number of stages that is recommended."""
    return "\n".join([*_describe_model(plan), *_describe_partitions(plan), *_describe_advice(plan)])


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
    yield ""


def _describe_partitions(plan: Plan) -> Iterator[str]:
    yield f"=== Partitioning Strategies ({plan.recommended_stages} stages) ==="
    yield ""
    for strategy, search in plan.searches.items():
        count = search.optimization_results[plan.recommended_stages]
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
    for stage in result.partitions:
        yield (
            f"    Stage {stage.partition_id}: Layers {stage.start_layer}-{stage.end_layer}, "
            f"Memory: {stage.total_memory_mb:.2f} MB, Params: {stage.total_parameters:,}"
        )


def _describe_advice(plan: Plan) -> Iterator[str]:
    yield "=== Recommendations ==="
    yield f"Recommended Strategy: {plan.recommended_strategy}"
    yield f"Reason: {plan.reason}"
