"""What a partition of a model graph says.

`PartitionStage` and `PartitionResult` have the fields of llm_parallel_strategy's files; MB in names is MiB.
"""

from typing import Literal

import msgspec

Metric = Literal["training", "memory", "compute", "parameters"]
METRICS: tuple[Metric, ...] = ("training", "memory", "compute", "parameters")
"""What training holds at its peak under 1F1B, weights alone, FLOPs, parameters."""
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
    """A struct whose fields can be read by their names in brackets as well, as from a dictionary."""

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
    """MiB that it hands to later stages in one forward pass."""

    def to_dict(self) -> dict[str, object]:
        """Return its fields as the original's JSON has them."""
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
    """Transformer blocks of each stage: what Galvatron calls `pp_division`."""
    training_bytes: tuple[int, ...] | None = None
    """Bytes each stage holds while it trains: weights, gradients, optimizer states, and activations in flight
    under 1F1B. None where the activations are not known."""

    def to_dict(self) -> dict[str, object]:
        """Return what the original's `best_partition_strategy.json` holds."""
        shape = ("total_stages", "balance_score", "max_memory_usage", "total_communication_cost")
        return {"partitions": [it.to_dict() for it in self.partitions]} | {
            name: getattr(self, name) for name in shape
        }


class StageCount(Mapped, frozen=True, kw_only=True):
    """One number of stages in the search for the best."""

    result: PartitionResult | None = None
    score: float | None = None
    """Less is better: device-seconds of a step; by the original's rule balance and a tenth of MiB sent."""
    step_s: float | None = None
    """Seconds of one step on the device that was assumed."""
    bubble_share: float | None = None
    """Share of a device's time in which it waits because the pipeline fills and drains."""
    communication_share: float | None = None
    """Share of the step that goes to transfers."""
    fits: bool | None = None
    """Whether every stage stays within the capacity; None where none was given."""
    error: str | None = None


class StageSearch(Mapped, frozen=True, kw_only=True):
    """The best number of stages, and what each was found to be worth."""

    optimization_results: dict[int, StageCount]
    recommended_stages: int | None
    """None where no number of stages fits in the capacity."""
    best_score: float | None
    reason: str
    """Why these, or what would fit."""


class Distribution(Mapped, frozen=True, kw_only=True):
    """How one figure is spread over the layers."""

    total: float
    mean: float
    least: float
    most: float
    by_type: dict[str, float]
    """Sum by type of layer."""


class Bottleneck(Mapped, frozen=True, kw_only=True):
    """The layer that has most of one figure."""

    layer_id: int
    name: str
    value: float
    share: float
    """Of the sum over all layers, 0 to 1."""


class GraphAnalysis(Mapped, frozen=True, kw_only=True):
    """What a graph is made of, and which layers stand out."""

    total_layers: int
    transformer_layers: int
    parameters: Distribution
    memory_mb: Distribution
    compute_gflops: Distribution
    max_memory_layer: Bottleneck
    max_compute_layer: Bottleneck
    max_parameter_layer: Bottleneck
