"""A layer of a model and the data between two layers, in the words of the original's JSON.

The first thirteen fields of `LayerNode` and all fields of `EdgeInfo` are those of llm_parallel_strategy's
`*_model_graph.json`; sizes there are MiB of weights alone, and `compute_flops` is in GFLOP.
"""

from typing import Literal

import msgspec

LayerType = Literal[
    "embedding", "transformer_block", "layer_norm", "output_head", "attention", "mlp", "module"
]
"""`module` is ours: what a traced model has besides."""
DataType = Literal["float32", "bfloat16", "float16"]
MIB = 1 << 20
BYTES_OF: dict[DataType, int] = {"float32": 4, "bfloat16": 2, "float16": 2}


_ADDED = ("shared_parameter_count", "forward_flops", "backward_flops", "activation_bytes")
"""Fields that the shape of the original lacks."""


class LayerNode(msgspec.Struct, frozen=True, kw_only=True):
    """One layer: what it is, what it holds and what it computes in one micro-batch."""

    layer_id: int
    """Position in the order in which the layers run."""
    layer_type: LayerType
    name: str
    hidden_size: int
    seq_length: int
    num_heads: int | None = None
    intermediate_size: int | None = None
    vocab_size: int | None = None
    parameter_count: int
    memory_usage: float
    """MiB of weights, without gradients, optimizer states and activations."""
    compute_flops: int | float
    """GFLOP of the forward pass of one sequence; an integer stays one, as files have it."""
    tensor_parallel_dim: int | None = None
    """Size of the dimension that tensor parallelism divides: heads, or the vocabulary."""
    supports_pipeline_parallel: bool = True
    shared_parameter_count: int | None = None
    """Parameters that another layer owns and a stage of this one copies: the weights of a tied head."""
    forward_flops: int | None = None
    """FLOPs of the matrix products of the forward pass of one micro-batch, a multiply-add counted as two."""
    backward_flops: int | None = None
    """The same of the backward pass, without recomputation."""
    activation_bytes: int | None = None
    """Bytes kept for the backward pass of one micro-batch, without recomputation."""

    def to_dict(self) -> dict[str, object]:
        """Return its fields as the original's JSON has them, and of ours those that are known."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not None or name not in _ADDED}

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights, from `memory_usage`."""
        return round(self.memory_usage * MIB)

    @property
    def held_parameters(self) -> int:
        """Parameters whose weights, gradients and optimizer states a stage with this layer alone holds."""
        return self.parameter_count + (self.shared_parameter_count or 0)


class EdgeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer hands to another."""

    source_id: int
    target_id: int
    data_shape: tuple[int, ...]
    """Micro-batch, sequence, hidden size."""
    data_type: str
    communication_cost: float
    """MiB of one transfer."""

    def to_dict(self) -> dict[str, object]:
        """Return its fields as the original's JSON has them."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class StateBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that training holds for each parameter, by kind."""

    weights: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        """Bytes of all kinds."""
        return self.weights + self.gradients + self.optimizer


STATE_BYTES = {
    "weights": StateBytes(weights=4, gradients=0, optimizer=0),
    "mixed-adam": StateBytes(weights=2, gradients=4, optimizer=12),
    "fp32-adam": StateBytes(weights=4, gradients=4, optimizer=8),
}
"""By recipe. `mixed-adam` is Megatron-LM's without distributed optimizer: bfloat16 weights, float32
gradients, float32 master weights and both moments, 18 bytes a parameter."""
