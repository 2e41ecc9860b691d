"""`GraphAnalyzer`: partitions of a model, with the methods of llm_parallel_strategy's scripts."""

from vramscope.analyzers.planning import partition
from vramscope.analyzers.planning.partition import Bottleneck, PartitionResult, make_plan
from vramscope.exporters.plan.partition import describe_strategies


class GraphAnalyzer(partition.GraphAnalyzer):
    """Partitions a model graph and finds its bottlenecks.

        analyzer = vramscope.GraphAnalyzer(vramscope.create_gpt_model_graph("gpt-1.5b"))
        result = analyzer.partition_graph_balanced(num_stages=4, balance_metric="memory")
        print(analyzer.generate_partitioning_report(num_stages=4))

    Args:
        graph: The model.
        micro_batches: Micro-batches in one step; under 1F1B a stage holds the activations of several.
        states: Model states kept for each parameter, a name in `STATE_BYTES`.

    Raises:
        UsageError: `micro_batches` is below 1, or `states` is unknown.
    """

    def analyze_graph_properties(self) -> dict[str, dict[str, object] | list[int]]:
        """Return `analyze` as dictionaries: `basic_stats`, `distribution`, `bottlenecks`, `execution_order`.

        Memory is in MiB of weights, compute in GFLOP of the forward pass of one sequence.
        """
        analysis = self.analyze()
        return {
            "basic_stats": {
                "total_layers": analysis.total_layers,
                "transformer_layers": analysis.transformer_layers,
                "total_parameters": self.graph.total_parameters,
                "total_memory_mb": self.graph.total_memory_mib,
                "total_compute_gflops": self.graph.total_compute_gflops,
            },
            "distribution": {
                "parameters_by_type": analysis.parameters.by_type,
                "memory_by_type": analysis.memory_mb.by_type,
                "compute_by_type": analysis.compute_gflops.by_type,
            },
            "bottlenecks": {
                "max_memory_layer": _describe(analysis.max_memory_layer, "memory_mb"),
                "max_compute_layer": _describe(analysis.max_compute_layer, "compute_gflops"),
                "max_param_layer": _describe(analysis.max_parameter_layer, "parameters"),
            },
            "execution_order": [layer.layer_id for layer in self.graph.layers],
        }

    def partition_graph_uniform(self, num_stages: int) -> PartitionResult:
        """Return the layers in stages with numbers of transformer blocks as equal as possible.

        Raises:
            UsageError: There are too few layers.
        """
        return self.partition_graph_balanced(num_stages, strategy="uniform")

    def compare_partitioning_strategies(self, num_stages: int) -> dict[str, dict[str, object]]:
        """Return every strategy's partition as a JSON object, or an `error` that says why it has none."""
        return {
            strategy: {"error": found} if isinstance(found, str) else found.to_dict()
            for strategy, found in self.compare_strategies(num_stages).items()
        }

    def generate_partitioning_report(self, num_stages: int) -> str:
        """Return a report as text: the model, every strategy for a number of stages, and which to use.

        Raises:
            UsageError: No strategy can make that many stages.
        """
        return describe_strategies(make_plan(self, (num_stages,), partition.STRATEGIES))


def _describe(layer: Bottleneck, name: str) -> dict[str, object]:
    return {"layer_id": layer.layer_id, "name": layer.name, name: layer.value}
