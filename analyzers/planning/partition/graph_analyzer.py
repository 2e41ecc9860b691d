"""`GraphAnalyzer`: partitions of a model graph, by every strategy, and the number of stages to use."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from ....engine.errors import NothingFitsError, UsageError
from ....engine.units import GIB, format_share
from ..graph import MIB, STATE_BYTES, LayerNode, ModelGraph
from .exact import split_exactly, split_in_flight
from .result import (
    METRICS,
    STRATEGIES,
    Bottleneck,
    Distribution,
    GraphAnalysis,
    Metric,
    PartitionResult,
    StageCount,
    StageMemory,
    StageSearch,
    Strategy,
    count_flops,
    describe_partition,
    list_activations,
    list_metric,
    list_stage_memory,
    list_states,
    make_in_flight,
)
from .stages import add_up, find_least_maximum

# How many stages to use: what a step costs in device time, among the numbers of stages that fit.

# A step of m micro-batches over p stages takes (m + p - 1) turns of the slowest stage and its transfer (D.
# Narayanan et al., SC 2021): the share (p - 1) / (m + p - 1) is bubble. More stages end a step sooner and use
# p devices for it; the devices that fewer stages leave free can run copies of the model. So device time
# decides, not the time alone, and not how even memory is.

# Share of a device: a plan that leaves less has a thin margin.

THIN_SHARE = 0.1


class Device(NamedTuple):
    """Assumptions about every device and the links between them."""

    flops_per_s: float = 1e14
    link_bytes_per_s: float = 25e9
    capacity_bytes: int | None = None


def judge_stages(
    graph: ModelGraph, result: PartitionResult, micro_batches: int, device: Device
) -> StageCount:
    flops = {layer.layer_id: count_flops(layer) for layer in graph.layers}
    most_flops = max(sum(flops[each] for each in stage.layer_ids) for stage in result.partitions)
    compute_s = most_flops / device.flops_per_s
    sent_mib = max(stage.communication_cost for stage in result.partitions)
    transfer_s = 2 * sent_mib * MIB / device.link_bytes_per_s
    # Each turn sends activations forward and their gradients backward.
    turns = micro_batches + result.total_stages - 1
    step_s = turns * (compute_s + transfer_s)
    fits = None
    if device.capacity_bytes is not None and result.training_bytes is not None:
        fits = max(result.training_bytes) <= device.capacity_bytes
    return StageCount(
        result=result,
        score=step_s * result.total_stages,
        step_s=step_s,
        bubble_share=(result.total_stages - 1) / turns,
        communication_share=transfer_s / (compute_s + transfer_s) if compute_s + transfer_s else 0.0,
        fits=fits,
    )


def recommend(counts: Mapping[int, StageCount], capacity_bytes: int | None) -> StageSearch:
    """Return the number of stages with the least score among those that fit; None where nothing fits.

    Raises:
        UsageError: No number can be used, whatever the capacity.
    """
    usable = {number: count for number, count in counts.items() if count.score is not None}
    if not usable:
        raise UsageError(_explain_none_usable(counts))
    fitting = {number: count for number, count in usable.items() if count.fits is not False}
    if not fitting:
        reason = _suggest_fitting(usable, capacity_bytes)
        return StageSearch(
            optimization_results=dict(counts), recommended_stages=None, best_score=None, reason=reason
        )
    best = min(fitting, key=lambda number: (fitting[number].score or 0.0, number))
    chosen = fitting[best]
    reason = f"least device time of a step ({chosen.score:.2f} device-seconds: "
    reason += f"bubble {format_share(chosen.bubble_share)}, "
    reason += f"communication {format_share(chosen.communication_share, 1)})"
    left_out = [number for number in usable if number not in fitting]
    if capacity_bytes is None:
        reason += "; no capacity was given, so every number of stages counts as fitting"
    elif chosen.fits is None:
        reason += "; activations of the layers are unknown, so the capacity cannot be checked"
    else:
        if left_out:
            reason += (
                f"; {', '.join(map(str, left_out))} stages do not fit in {capacity_bytes / MIB:,.0f} MiB"
            )
        reason += _describe_margin(chosen.result, capacity_bytes)
    return StageSearch(
        optimization_results=dict(counts),
        recommended_stages=best,
        best_score=chosen.score or 0.0,
        reason=reason,
    )


def _describe_margin(result: PartitionResult | None, capacity_bytes: int) -> str:
    """Describe how much of a device the fullest stage leaves, with a warning where that is little."""
    if result is None or not result.training_bytes:
        return ""
    fullest = max(result.training_bytes)
    left_share = 1 - fullest / capacity_bytes
    notes = (
        f"; the fullest stage needs {fullest / GIB:,.1f} of {capacity_bytes / GIB:,.1f} GiB and leaves "
        f"{format_share(left_share, 1)}"
    )
    if left_share >= THIN_SHARE:
        return notes
    return (
        f"{notes}, a thin margin: CUDA's context, communication buffers and fragmentation are not "
        "counted and often need more"
    )


def recommend_as_original(counts: Mapping[int, PartitionResult | str]) -> StageSearch:
    """Return the original's choice: least coefficient of variation plus a tenth of the MiB sent."""
    judged = {
        number: StageCount(error=result)
        if isinstance(result, str)
        else StageCount(result=result, score=result.balance_score + 0.1 * result.total_communication_cost)
        for number, result in counts.items()
    }
    scores = {number: count.score for number, count in judged.items() if count.score is not None}
    if not scores:
        raise UsageError(_explain_none_usable(judged))
    best = min(scores, key=lambda number: scores[number])
    return StageSearch(
        optimization_results=judged,
        recommended_stages=best,
        best_score=scores[best],
        reason="Best balance between memory distribution and communication cost",
    )


def _explain_none_usable(counts: Mapping[int, StageCount]) -> str:
    return next((count.error for count in counts.values() if count.error), "no number of stages was given")


def _suggest_fitting(usable: Mapping[int, StageCount], capacity_bytes: int | None) -> str:
    needs = {
        number: max(count.result.training_bytes)
        for number, count in usable.items()
        if count.result is not None and count.result.training_bytes is not None
    }
    number = min(needs, key=lambda each: needs[each])
    return (
        f"no number of stages fits in {(capacity_bytes or 0) / MIB:,.0f} MiB: the least any needs is "
        f"{needs[number] / MIB:,.0f} MiB, with {number} stages; allow more stages, smaller micro-batches or "
        "larger devices"
    )


Rule = Literal["device-time", "legacy"]
MICRO_BATCHES = 8


class GraphAnalyzer:
    """Partitions a graph and describes what stands out in it.

        analyzer = vramscope.GraphAnalyzer(vramscope.create_gpt_model_graph("gpt-1.5b"))
        result = analyzer.partition_graph_balanced(num_stages=4, balance_metric="memory")

    Args:
        micro_batches: Of one step; under 1F1B a stage holds the activations of several.
        states: What training holds for a parameter, a name of `STATE_BYTES`.

    Raises:
        UsageError: No micro-batch, or no such name.
    """

    def __init__(
        self, graph: ModelGraph, *, micro_batches: int = MICRO_BATCHES, states: str = "mixed-adam"
    ) -> None:
        if micro_batches < 1:
            raise UsageError(f"{micro_batches} micro-batches: expected at least 1")
        if states not in STATE_BYTES:
            raise UsageError(f"states {states!r}: expected {', '.join(STATE_BYTES)}")
        self.graph = graph
        self.micro_batches = micro_batches
        self.states = states
        self._training = make_in_flight(states, micro_batches)

    @property
    def usual_metric(self) -> Metric:
        """The metric used where none is named: all that training holds, or weights where that is unknown."""
        is_known = all(layer.activation_bytes is not None for layer in self.graph.layers)
        return "training" if is_known else "memory"

    def partition_graph_balanced(
        self,
        num_stages: int = 4,
        balance_metric: Metric | None = None,
        strategy: Strategy = "exact",
    ) -> PartitionResult:
        """Partition the layers into stages.

        Args:
            balance_metric: The metric whose largest stage `exact` keeps least: `training` for all that a
                stage
                holds while it trains, `memory` for weights alone, `compute` or `parameters`; None for
                `usual_metric`.
            strategy: `exact` for the least maximum; `exact-1f1b` for that of `training`; `uniform`
                and `balanced_*` for the rules of the original, which bring their own metric.

        Raises:
            UsageError: There are too few layers, a name is unknown, or activations are not known.
        """
        if strategy not in STRATEGIES:
            raise UsageError(f"strategy {strategy!r}: expected {', '.join(STRATEGIES)}")
        asked = self.usual_metric if balance_metric is None else balance_metric
        if asked not in METRICS:
            raise UsageError(f"balance metric {asked!r}: expected {', '.join(METRICS)}")
        metric = _metric_of(strategy, asked)
        bounds = self._split(num_stages, metric, strategy)
        return describe_partition(self.graph, bounds, strategy, metric, self._training)

    def compare_strategies(
        self, num_stages: int, balance_metric: Metric | None = None
    ) -> dict[str, PartitionResult | str]:
        """Return every strategy's partition; the reason where one has none."""
        return {strategy: self._try(num_stages, balance_metric, strategy) for strategy in STRATEGIES}

    def optimize_pipeline_stages(
        self,
        min_stages: int = 2,
        max_stages: int = 8,
        *,
        balance_metric: Metric | None = None,
        strategy: Strategy = "exact",
        device: Device | None = None,
        rule: Rule = "device-time",
    ) -> StageSearch:
        """Return how many stages to use, with a score for each number.

        Args:
            min_stages: Least number to look at.
            max_stages: Most.
            balance_metric: As for `partition_graph_balanced`.
            device: Assumptions about devices and links.
            rule: `device-time`, or `legacy` for the original's choice by its own partitions.

        Raises:
            UsageError: No number can be used.
            NothingFitsError: No number fits in the capacity.
        """
        if not 1 <= min_stages <= max_stages:
            raise UsageError(
                f"{min_stages} to {max_stages} stages: expected at least 1, and the smaller number first"
            )
        numbers = range(min_stages, max_stages + 1)
        chosen: Strategy = "balanced_memory" if rule == "legacy" else strategy
        search = self.judge_stage_counts(numbers, balance_metric, chosen, device or Device(), rule)
        if search.recommended_stages is None:
            raise NothingFitsError(search.reason)
        return search

    def judge_stage_counts(
        self,
        numbers: Sequence[int],
        balance_metric: Metric | None,
        strategy: Strategy,
        device: Device,
        rule: Rule = "device-time",
    ) -> StageSearch:
        """Return a score for each of some numbers of stages, and the best; None where none fits.

        Raises:
            UsageError: No number can be used.
        """
        results = {number: self._try(number, balance_metric, strategy) for number in numbers}
        if rule == "legacy":
            return recommend_as_original(results)
        judged = {
            number: StageCount(error=result)
            if isinstance(result, str)
            else judge_stages(self.graph, result, self._training.micro_batches, device)
            for number, result in results.items()
        }
        return recommend(judged, device.capacity_bytes)

    def analyze(self) -> GraphAnalysis:
        """Return distributions of parameters, memory and compute, and the layer that has most of each."""
        return analyze_graph(self.graph)

    def split_memory(self, result: PartitionResult) -> tuple[StageMemory, ...]:
        """Return what each stage of a partition of this graph holds while it trains, kind by kind."""
        return list_stage_memory(self.graph, result, self._training)

    def _split(self, stages: int, metric: Metric, strategy: Strategy) -> tuple[int, ...]:
        layers = self.graph.layers
        if strategy == "uniform":
            return split_uniformly(layers, stages)
        if strategy == "exact" and metric == "training":
            return self._split_in_flight(stages)
        if strategy == "exact":
            return split_exactly(list_metric(layers, metric), stages).bounds
        if strategy == "exact-1f1b":
            return self._split_in_flight(stages)
        return split_as_original(layers, list_metric(layers, metric), stages)

    def _try(self, stages: int, metric: Metric | None, strategy: Strategy) -> PartitionResult | str:
        try:
            return self.partition_graph_balanced(stages, metric, strategy)
        except UsageError as error:
            return str(error)

    def _split_in_flight(self, stages: int) -> tuple[int, ...]:
        live = list_activations(self.graph.layers)
        if live is None:
            raise UsageError(
                f"{self.graph.name}: the activations of its layers are unknown, but this split needs "
                "them; make the graph from a name or a configuration, or balance weights alone, by the "
                "metric memory"
            )
        kept = list_states(self.graph.layers, self._training)
        return split_in_flight(kept, live, stages, self._training.micro_batches).bounds


def _metric_of(strategy: Strategy, asked: Metric) -> Metric:
    own: dict[Strategy, Metric] = {
        "balanced_memory": "memory",
        "balanced_compute": "compute",
        "balanced_parameters": "parameters",
        "exact-1f1b": "training",
    }
    return own.get(strategy, asked)


_Figure = Callable[[LayerNode], float]


def analyze_graph(graph: ModelGraph) -> GraphAnalysis:
    layers = graph.layers
    figures: tuple[_Figure, ...] = (
        lambda layer: layer.parameter_count,
        lambda layer: layer.memory_usage,
        lambda layer: layer.compute_flops,
    )
    parameters, memory, compute = (_distribute(layers, figure) for figure in figures)
    of_parameters, of_memory, of_compute = (_find_most(layers, figure) for figure in figures)
    return GraphAnalysis(
        total_layers=len(layers),
        transformer_layers=sum(layer.layer_type == "transformer_block" for layer in layers),
        parameters=parameters,
        memory_mb=memory,
        compute_gflops=compute,
        max_memory_layer=of_memory,
        max_compute_layer=of_compute,
        max_parameter_layer=of_parameters,
    )


def _distribute(layers: Sequence[LayerNode], figure: _Figure) -> Distribution:
    values = [figure(layer) for layer in layers]
    types = dict.fromkeys(layer.layer_type for layer in layers)
    total = math.fsum(values)
    return Distribution(
        total=total,
        mean=total / len(values),
        least=min(values),
        most=max(values),
        by_type={
            type_: math.fsum(figure(layer) for layer in layers if layer.layer_type == type_)
            for type_ in types
        },
    )


def _find_most(layers: Sequence[LayerNode], figure: _Figure) -> Bottleneck:
    layer = max(layers, key=figure)
    total = math.fsum(map(figure, layers))
    value = figure(layer)
    return Bottleneck(
        layer_id=layer.layer_id, name=layer.name, value=value, share=value / total if total else 0.0
    )


# Both cut among transformer blocks alone. What comes before the first block goes to the first stage and what
# comes after the last to the last, whatever its size: the exact split does better in this.
def split_uniformly(layers: Sequence[LayerNode], stages: int) -> tuple[int, ...]:
    """Return bounds with equal blocks in each stage, one more in the first ones where they do not divide."""
    blocks = find_blocks(layers, stages)
    share, rest = divmod(len(blocks), stages)
    return _place_bounds(
        [number * share + min(number, rest) for number in range(stages + 1)], blocks, len(layers)
    )


def split_as_original(layers: Sequence[LayerNode], costs: Sequence[int], stages: int) -> tuple[int, ...]:
    """Return bounds by the rule of llm_parallel_strategy's `balanced_*` strategies.

    The least maximum over sums of blocks; of several splits the one whose last stage is longest, then the one
    before it, as its backtracking picks the smallest index that attains the optimum.
    """
    blocks = find_blocks(layers, stages)
    of_blocks = [costs[place] for place in blocks]
    before = add_up(of_blocks)
    most_of_one = 0
    dearest = []
    for cost in of_blocks:
        most_of_one = max(most_of_one, cost)
        dearest.append(most_of_one)
    end = len(blocks)
    bounds = [len(blocks)]
    for left in range(stages, 1, -1):
        most = find_least_maximum(before[: end + 1], dearest[end - 1], left)
        end = max(bisect_left(before, before[end] - most, 0, end), left - 1)
        bounds.append(end)
    return _place_bounds([0, *bounds[::-1]], blocks, len(layers))


def find_blocks(layers: Sequence[LayerNode], stages: int) -> list[int]:
    """Return the places of the transformer blocks; `UsageError` where they are fewer than stages."""
    blocks = [place for place, layer in enumerate(layers) if layer.layer_type == "transformer_block"]
    if stages < 1:
        raise UsageError(f"{stages} stages: a pipeline has at least 1")
    if stages > len(blocks):
        raise UsageError(
            f"Number of stages ({stages}) cannot exceed transformer layers ({len(blocks)}) "
            "with this strategy; the exact one counts every layer"
        )
    return blocks


def _place_bounds(block_bounds: Sequence[int], blocks: Sequence[int], layers: int) -> tuple[int, ...]:
    return (0, *(blocks[bound] for bound in block_bounds[1:-1]), layers)
