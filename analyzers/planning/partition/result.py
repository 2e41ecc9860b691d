"""A partition of a model graph: stages, the search for their number, and what stands out in the graph.

`PartitionStage` and `PartitionResult` have the fields of llm_parallel_strategy's files; MB in names is MiB.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from ....engine.errors import UsageError
from ..graph import STATE_BYTES, LayerNode, ModelGraph, StateBytes

Metric = Literal["training", "memory", "compute", "parameters"]
# Bytes held at the peak of training under 1F1B, weights alone, FLOPs, parameters.
METRICS: tuple[Metric, ...] = ("training", "memory", "compute", "parameters")
Strategy = Literal[
    "uniform", "balanced_memory", "balanced_compute", "balanced_parameters", "exact", "exact-1f1b"
]
STRATEGIES: tuple[Strategy, ...] = (
    "uniform",
    "balanced_memory",
    "balanced_compute",
    "balanced_parameters",
    "exact",
    "exact-1f1b",
)


class Mapped(msgspec.Struct, frozen=True):
    """A struct whose fields can also be read by name in brackets, as from a dictionary."""

    def __getitem__(self, name: str) -> object:
        if name not in self.__struct_fields__:
            raise KeyError(name)
        return getattr(self, name)


class PartitionStage(Mapped, frozen=True, kw_only=True):
    """One stage of a partition."""

    partition_id: int
    layer_ids: tuple[int, ...]
    start_layer: int
    end_layer: int
    """The last of its layers."""
    total_parameters: int
    total_memory_mb: float
    """MiB of weights."""
    total_compute_gflops: float
    communication_cost: float
    """MiB that it sends to later stages in one forward pass."""

    def to_dict(self) -> dict[str, object]:
        """Return its fields as in the original's JSON."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class PartitionResult(Mapped, frozen=True, kw_only=True):
    """A model's layers in stages."""

    partitions: tuple[PartitionStage, ...]
    total_stages: int
    balance_score: float
    """Coefficient of variation of the stages' memory, with the population's deviation; 0 is even."""
    max_memory_usage: float
    """MiB of weights of the fullest stage."""
    total_communication_cost: float
    """MiB of all transfers between stages in one forward pass."""
    strategy: Strategy
    metric: Metric
    transformer_layers: tuple[int, ...]
    """Transformer blocks of each stage (`pp_division` in Galvatron)."""
    training_bytes: tuple[int, ...] | None = None
    """Bytes of each stage while it trains: weights, gradients, optimizer states, and activations in flight
    with 1F1B. None where the activations are unknown.
    """

    def to_dict(self) -> dict[str, object]:
        """Return the content of the original's `best_partition_strategy.json`."""
        shape = ("total_stages", "balance_score", "max_memory_usage", "total_communication_cost")
        return {"partitions": [it.to_dict() for it in self.partitions]} | {
            name: getattr(self, name) for name in shape
        }


class StageCount(Mapped, frozen=True, kw_only=True):
    """One number of stages in the search for the best."""

    result: PartitionResult | None = None
    score: float | None = None
    """Less is better: device-seconds of a step; with the original's rule, balance plus a tenth of MiB sent.
    """
    step_s: float | None = None
    """Seconds of one step on the device that was assumed."""
    bubble_share: float | None = None
    """Share of a device's time in which it waits because the pipeline fills and drains."""
    communication_share: float | None = None
    """Share of the step spent on transfers."""
    fits: bool | None = None
    """Whether every stage stays within the capacity; None where none was given."""
    error: str | None = None


class StageSearch(Mapped, frozen=True, kw_only=True):
    """The best number of stages, and the score of each."""

    optimization_results: dict[int, StageCount]
    recommended_stages: int | None
    """None where no number of stages fits in the capacity."""
    best_score: float | None
    reason: str
    """Why these, or what would fit."""


class Distribution(Mapped, frozen=True, kw_only=True):
    """How one quantity is spread over the layers."""

    total: float
    mean: float
    least: float
    most: float
    by_type: dict[str, float]
    """Sum by type of layer."""


class Bottleneck(Mapped, frozen=True, kw_only=True):
    """The layer that is largest in one respect."""

    layer_id: int
    name: str
    value: float
    share: float
    """Share of the sum over all layers, 0 to 1."""


class GraphAnalysis(Mapped, frozen=True, kw_only=True):
    """Summary of a graph, and which layers stand out."""

    total_layers: int
    transformer_layers: int
    parameters: Distribution
    memory_mb: Distribution
    compute_gflops: Distribution
    max_memory_layer: Bottleneck
    max_compute_layer: Bottleneck
    max_parameter_layer: Bottleneck


# Integer costs of the layers of a graph: what a partition is balanced by.


def list_metric(layers: Sequence[LayerNode], metric: Metric) -> list[int]:
    """Return bytes of weights, FLOPs of both passes, or parameters of each layer, else raise `UsageError`."""
    if metric == "memory":
        return [layer.weight_bytes for layer in layers]
    if metric == "parameters":
        return [layer.held_parameters for layer in layers]
    if metric == "compute":
        return [count_flops(layer) for layer in layers]
    raise UsageError(f"balance metric {metric!r}: expected {', '.join(METRICS)}")


def count_flops(layer: LayerNode) -> int:
    """Return the FLOPs of both passes; three times the forward pass where a file has that alone.

    Such files are llm_parallel_strategy's. Their number for an embedding is in FLOP; as an embedding
    multiplies
    nothing, 0 is used.
    """
    if layer.forward_flops is None or layer.backward_flops is None:
        return 0 if layer.layer_type == "embedding" else round(3e9 * layer.compute_flops)
    return layer.forward_flops + layer.backward_flops


def list_states(layers: Sequence[LayerNode], states: StateBytes) -> list[int]:
    """Return the bytes of weights, gradients and optimizer states of each layer."""
    return [states.total * layer.held_parameters for layer in layers]


def list_activations(layers: Sequence[LayerNode]) -> list[int] | None:
    """Return the bytes of activations of each layer for one micro-batch; None where one is unknown."""
    known = [layer.activation_bytes for layer in layers if layer.activation_bytes is not None]
    return known if len(known) == len(layers) else None


# The stages of a graph from where they begin: sums over layers, and what crosses from one to another.


class InFlight(StateBytes, frozen=True, kw_only=True):
    """What training holds: bytes a parameter, and the micro-batches of a step."""

    micro_batches: int


def make_in_flight(states: str, micro_batches: int) -> InFlight:
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
    """Describe the partition whose stages begin at the bounds; the last bound is the number of layers."""
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
    # Plain sums in order, as in the original, so that its file is reproduced to the last digit.
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
    """Return the MiB each stage sends on; data for several layers of one later stage is sent there once."""
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


# What each stage of a partition holds while it trains, kind by kind.


class StageMemory(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Bytes of one stage under 1F1B, by kind."""

    weights_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    # Activations of all micro-batches in flight; None where they are unknown for a layer.
    activations_bytes: int | None
    # Micro-batches whose activations are held at once.
    in_flight: int

    @property
    def total_bytes(self) -> int | None:
        """Bytes of all kinds, as in `training_bytes`; None where activations are not known."""
        if self.activations_bytes is None:
            return None
        return self.weights_bytes + self.gradients_bytes + self.optimizer_bytes + self.activations_bytes


def list_stage_memory(
    graph: ModelGraph, result: PartitionResult, training: InFlight
) -> tuple[StageMemory, ...]:
    layers = {layer.layer_id: layer for layer in graph.layers}
    return tuple(
        _add_up(layers, stage.layer_ids, training, min(result.total_stages - number, training.micro_batches))
        for number, stage in enumerate(result.partitions)
    )


def _add_up(
    layers: Mapping[int, LayerNode], ids: tuple[int, ...], training: InFlight, in_flight: int
) -> StageMemory:
    parameters = sum(layers[each].held_parameters for each in ids)
    kept = [layers[each].activation_bytes for each in ids]
    known = [size for size in kept if size is not None]
    return StageMemory(
        weights_bytes=training.weights * parameters,
        gradients_bytes=training.gradients * parameters,
        optimizer_bytes=training.optimizer * parameters,
        activations_bytes=in_flight * sum(known) if len(known) == len(kept) else None,
        in_flight=in_flight,
    )
