"""The stages of a graph from where they begin: sums over layers, and what crosses from one to another."""

import math
from collections.abc import Sequence
from itertools import pairwise

from ..graph import STATE_BYTES, LayerNode, ModelGraph, StateBytes
from .costs import list_activations, list_states
from .result import Metric, PartitionResult, PartitionStage, Strategy


class InFlight(StateBytes, frozen=True, kw_only=True):
    """What training holds: bytes a parameter, and the micro-batches of a step."""

    micro_batches: int


def make_in_flight(states: str, micro_batches: int) -> InFlight:
    """Return a recipe of `STATE_BYTES` with its micro-batches."""
    recipe = STATE_BYTES[states]
    return InFlight(
        weights=recipe.weights,
        gradients=recipe.gradients,
        optimizer=recipe.optimizer,
        micro_batches=micro_batches,
    )


def describe_partition(
    graph: ModelGraph, bounds: Sequence[int], strategy: Strategy, metric: Metric, training: InFlight
) -> PartitionResult:
    """Return the partition whose stages begin at the bounds, the last of which is the number of layers."""
    sent = _list_transfers(graph, bounds)
    stages = tuple(
        _describe_stage(number, graph.layers[start:end], sent[number])
        for number, (start, end) in enumerate(pairwise(bounds))
    )
    memory = [stage.total_memory_mb for stage in stages]
    return PartitionResult(
        partitions=stages,
        total_stages=len(stages),
        balance_score=measure_variation(memory),
        max_memory_usage=max(memory),
        total_communication_cost=math.fsum(sent),
        strategy=strategy,
        metric=metric,
        transformer_layers=tuple(
            sum(layer.layer_type == "transformer_block" for layer in graph.layers[start:end])
            for start, end in pairwise(bounds)
        ),
        training_bytes=_list_training_bytes(graph.layers, bounds, training),
    )


def measure_variation(values: Sequence[float]) -> float:
    """Return the coefficient of variation with the population's deviation; 0 where all are 0."""
    mean = math.fsum(values) / len(values)
    if not mean:
        return 0.0
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)) / mean


def _describe_stage(number: int, layers: Sequence[LayerNode], sent: float) -> PartitionStage:
    # Plain sums in order, as the original's: its file is met to the last digit.
    return PartitionStage(
        partition_id=number,
        layer_ids=tuple(layer.layer_id for layer in layers),
        start_layer=layers[0].layer_id,
        end_layer=layers[-1].layer_id,
        total_parameters=sum(layer.parameter_count for layer in layers),
        total_memory_mb=sum(layer.memory_usage for layer in layers),
        total_compute_gflops=sum(layer.compute_flops for layer in layers),
        communication_cost=sent,
    )


def _list_transfers(graph: ModelGraph, bounds: Sequence[int]) -> list[float]:
    """Return the MiB each stage sends on; what several layers of one later stage take is sent there once."""
    stage_of = {
        layer.layer_id: number
        for number, (start, end) in enumerate(pairwise(bounds))
        for layer in graph.layers[start:end]
    }
    sent: dict[tuple[int, int], float] = {}
    for edge in graph.edges:
        target = stage_of[edge.target_id]
        if stage_of[edge.source_id] != target:
            key = (edge.source_id, target)
            sent[key] = max(sent.get(key, 0.0), edge.communication_cost)
    by_stage = [0.0] * (len(bounds) - 1)
    for (source, _), cost in sent.items():
        by_stage[stage_of[source]] += cost
    return by_stage


def _list_training_bytes(
    layers: Sequence[LayerNode], bounds: Sequence[int], training: InFlight
) -> tuple[int, ...] | None:
    activations = list_activations(layers)
    if activations is None:
        return None
    states = list_states(layers, training)
    stages = len(bounds) - 1
    return tuple(
        sum(states[start:end]) + min(stages - number, training.micro_batches) * sum(activations[start:end])
        for number, (start, end) in enumerate(pairwise(bounds))
    )
