"""A layer of a model and the data between two layers, with the field names of the original's JSON.

The first thirteen fields of `LayerNode` and all fields of `EdgeInfo` are those of llm_parallel_strategy's
`*_model_graph.json`; sizes there are MiB of weights alone, and `compute_flops` is in GFLOP.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from ....engine.errors import UsageError
from ..theory.configs.assumptions import choose_sequence
from .catalog import (
    RELATIVE_BUCKETS,
    Architecture,
    Batch,
    Size,
    check_architecture,
    find_model,
    size_block,
    size_embedding,
    size_head,
    size_norm,
)

# `module` is our addition, for traced models.
LayerType = Literal[
    "embedding", "transformer_block", "layer_norm", "output_head", "attention", "mlp", "module"
]
DataType = Literal["float32", "bfloat16", "float16"]
MIB = 1 << 20
BYTES_OF: dict[DataType, int] = {"float32": 4, "bfloat16": 2, "float16": 2}


# Fields that the original's JSON lacks.
_ADDED = ("shared_parameter_count", "forward_flops", "backward_flops", "activation_bytes")


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
    """FLOPs of the backward pass, without recomputation."""
    activation_bytes: int | None = None
    """Bytes kept for the backward pass of one micro-batch, without recomputation."""

    def to_dict(self) -> dict[str, object]:
        """Return its fields as in the original's JSON, and ours as far as they are known."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not None or name not in _ADDED}

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights, from `memory_usage`."""
        return round(self.memory_usage * MIB)

    @property
    def held_parameters(self) -> int:
        """Parameters whose weights, gradients and optimizer states a stage of this layer alone holds."""
        return self.parameter_count + (self.shared_parameter_count or 0)


class EdgeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer sends to another."""

    source_id: int
    target_id: int
    data_shape: tuple[int, ...]
    """Micro-batch, sequence, hidden size."""
    data_type: str
    communication_cost: float
    """MiB of one transfer."""

    def to_dict(self) -> dict[str, object]:
        """Return its fields as in the original's JSON."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class StateBytes(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that training holds for each parameter, by kind."""

    weights: int
    gradients: int
    optimizer: int

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer


# By recipe. `mixed-adam` is Megatron-LM's without distributed optimizer: bfloat16 weights, float32 gradients,
# float32 master weights and both moments, 18 bytes a parameter.
STATE_BYTES = {
    "weights": StateBytes(weights=4, gradients=0, optimizer=0),
    "mixed-adam": StateBytes(weights=2, gradients=4, optimizer=12),
    "fp32-adam": StateBytes(weights=4, gradients=4, optimizer=8),
}


# `compute_flops` as counted from the matrix products, or the original's.

Figures = Literal["counted", "legacy"]


class _Part(NamedTuple):
    type: LayerType
    name: str
    size: Size
    shared: int = 0


class Recipe(NamedTuple):
    batch: Batch
    data_type: DataType = "float32"
    figures: Figures = "counted"


def build_layers(model: Architecture, recipe: Recipe) -> list[LayerNode]:
    return [_build_layer(model, recipe, place, part) for place, part in enumerate(_list_parts(model, recipe))]


def build_edges(model: Architecture, recipe: Recipe) -> list[EdgeInfo]:
    """Return the edges of a model: each layer to the next, an encoder to every decoder block."""
    parts = list(_list_parts(model, recipe))
    pairs = {(place, place + 1) for place in range(len(parts) - 1)}
    if model.decoder_layers:
        last = next(place for place, part in enumerate(parts) if part.name == "encoder_layer_norm")
        pairs |= {(last, last + 1 + block) for block in range(model.decoder_layers)}
    shape = (recipe.batch.sequences, recipe.batch.sequence, model.hidden)
    cost = recipe.batch.tokens * model.hidden * BYTES_OF[recipe.data_type] / MIB
    return [
        EdgeInfo(
            source_id=source,
            target_id=target,
            data_shape=shape,
            data_type=recipe.data_type,
            communication_cost=cost,
        )
        for source, target in sorted(pairs)
    ]


def _list_parts(model: Architecture, recipe: Recipe) -> Iterator[_Part]:
    batch = recipe.batch
    norm = size_norm(model, batch)
    yield _Part("embedding", "word_embeddings", size_embedding(model, batch))
    if model.decoder_layers:
        yield from _list_t5_blocks(model, batch)
    else:
        sizes = {kind: size_block(model, batch, is_mixture=kind) for kind in {*model.mixtures}}
        for number, is_mixture in enumerate(model.mixtures):
            yield _Part("transformer_block", f"transformer_block_{number}", sizes[is_mixture])
    if model.family != "bert":
        yield _Part("layer_norm", "final_layer_norm", norm)
    head = size_head(model, batch)
    shared = model.hidden * model.vocabulary if model.is_tied else 0
    yield _Part("output_head", "pooler" if model.family == "bert" else "lm_head", head, shared)


def _list_t5_blocks(model: Architecture, batch: Batch) -> Iterator[_Part]:
    """Yield the blocks and norm of the encoder, then the decoder; the first of each has the bias."""
    bias = RELATIVE_BUCKETS * model.heads
    for side, count in (("encoder", model.layers), ("decoder", model.decoder_layers)):
        block = size_block(model, batch, has_cross_attention=side == "decoder")
        for number in range(count):
            size = block._replace(parameters=block.parameters + (0 if number else bias))
            yield _Part("transformer_block", f"{side}_block_{number}", size)
        if side == "encoder":
            yield _Part("layer_norm", "encoder_layer_norm", size_norm(model, batch))


def _build_layer(model: Architecture, recipe: Recipe, place: int, part: _Part) -> LayerNode:
    size = part.size
    is_block = part.type == "transformer_block"
    has_vocabulary = part.type == "embedding" or part.name == "lm_head"
    weights = (size.parameters + part.shared) * BYTES_OF[recipe.data_type]
    is_legacy = recipe.figures == "legacy"
    return LayerNode(
        layer_id=place,
        layer_type=part.type,
        name=part.name,
        hidden_size=model.hidden,
        seq_length=recipe.batch.sequence,
        num_heads=model.heads if is_block else None,
        intermediate_size=model.width if is_block else None,
        vocab_size=model.vocabulary if has_vocabulary else None,
        parameter_count=size.parameters,
        memory_usage=weights / MIB,
        compute_flops=_count_as_original(model, recipe.batch.sequence, part.type)
        if is_legacy
        else size.forward_flops / recipe.batch.sequences / 1e9,
        tensor_parallel_dim=model.heads if is_block else model.vocabulary if has_vocabulary else None,
        shared_parameter_count=part.shared or None,
        forward_flops=None if is_legacy else size.forward_flops,
        backward_flops=None if is_legacy else 2 * size.forward_flops,
        activation_bytes=None if is_legacy else size.activation_bytes,
    )


def _count_as_original(model: Architecture, sequence: int, type_: LayerType) -> float:
    """Return the original's number: too high for a block, and FLOP, not GFLOP, for the embedding."""
    hidden = model.hidden
    width = model.width
    if type_ == "embedding":
        return 2 * sequence * hidden
    if type_ == "transformer_block":
        return (4 * sequence * sequence * hidden + 8 * sequence * hidden * width) / 1e9
    if type_ == "output_head":
        return sequence * hidden * model.vocabulary / 1e9
    return 5 * sequence * hidden / 1e9


# A model as a graph of layers, on NetworkX, which is imported where a graph is made.

Config = Mapping[str, object]


class DiGraph(Protocol):
    """The used part of NetworkX's digraph of that name, which carries no types."""

    @property
    def nodes(self) -> Mapping[int, Mapping[str, LayerNode]]:
        """Attributes of each node: its `layer`."""

    @property
    def edges(self) -> Mapping[tuple[int, int], Mapping[str, EdgeInfo]]:
        """Attributes of each edge: its `edge`."""

    def __contains__(self, node: int) -> bool: ...

    def __len__(self) -> int: ...

    def add_node(self, node: int, *, layer: LayerNode) -> None: ...

    def add_edge(self, source: int, target: int, *, edge: EdgeInfo) -> None: ...


class ModelGraph:
    """Layers and the data between them, in the order in which they run.

    Args:
        layers: In any order; each `layer_id` once.
        edges: Between existing layers.
        config: Sizes of the model, as they are written to its file.
        batch: Batch of activations and FLOPs; None where a file does not state it.
        has_dropout: Whether activations have the masks of dropout; None where layers were traced or saved.

    Raises:
        UsageError: A layer is there twice or missing, the graph has a cycle, or it falls into parts.
    """

    def __init__(
        self,
        layers: Sequence[LayerNode],
        edges: Sequence[EdgeInfo],
        config: Config,
        name: str = "model",
        batch: Batch | None = None,
        *,
        has_dropout: bool | None = None,
    ) -> None:
        self.name = name
        self.batch = batch
        self.has_dropout = has_dropout
        self.config = dict(config)
        self.edges = list(edges)
        self.graph = _build_graph(layers, edges, name)
        self.layers = _sort_layers(self.graph, name)

    @property
    def nodes(self) -> dict[int, LayerNode]:
        """Layers by their id, in the order in which they run."""
        return {layer.layer_id: layer for layer in self.layers}

    def to_dict(self) -> dict[str, object]:
        """Return the content of the original's `*_model_graph.json`."""
        return {
            "config": self.config,
            "nodes": {str(layer.layer_id): layer.to_dict() for layer in self.layers},
            "edges": [edge.to_dict() for edge in self.edges],
            "stats": {
                "total_layers": len(self.layers),
                "total_parameters": self.total_parameters,
                "total_memory_mb": self.total_memory_mib,
                "total_compute_gflops": self.total_compute_gflops,
            },
        }

    @property
    def total_parameters(self) -> int:
        """Parameters of all layers, shared ones once."""
        return sum(layer.parameter_count for layer in self.layers)

    @property
    def total_memory_mib(self) -> float:
        """MiB of weights of all layers."""
        return math.fsum(layer.memory_usage for layer in self.layers)

    @property
    def total_compute_gflops(self) -> float:
        """Sum of the layers' `compute_flops`."""
        return math.fsum(layer.compute_flops for layer in self.layers)


def describe_config(model: Architecture) -> Config:
    """Return the sizes of a model as in its graph's file: Galvatron's six for a GPT of that kind."""
    if model.family == "gpt" and not model.has_biases:
        return {
            "n_layer": model.layers,
            "n_embd": model.hidden,
            "n_head": model.heads,
            "head_dim": model.head_width,
            "vocab_size": model.vocabulary,
            "n_positions": model.positions,
        }
    return {name: getattr(model, name) for name in model.__struct_fields__}


def plan_layers(
    model: str | Architecture,
    *,
    seq_length: int | None = None,
    micro_batch: int = 1,
    data_type: DataType = "float32",
    figures: Figures = "counted",
) -> tuple[list[LayerNode], list[EdgeInfo], Config]:
    """Return layers, edges and configuration of a model, by name or by its sizes.

    Args:
        model: A name of the catalog, or sizes.
        seq_length: Tokens of a sequence; None for the longest the model is made for, 4,096 at most.
        micro_batch: Sequences of a micro-batch.
        data_type: Of weights and of what layers send on.
        figures: `legacy` for the original's `compute_flops`.

    Raises:
        UsageError: The model is unknown, or a size is impossible.
    """
    name = model if isinstance(model, str) else "the model"
    sizes = check_architecture(find_model(model) if isinstance(model, str) else model, name)
    sequence = choose_sequence(sizes.positions) if seq_length is None else seq_length
    if sequence < 1 or micro_batch < 1:
        raise UsageError(f"{sequence} tokens in {micro_batch} sequences: expected at least 1 of each")
    if sizes.has_positions and sequence > sizes.positions:
        raise UsageError(
            f"a sequence has {sequence} tokens, but the model learns {sizes.positions} positions; "
            f"choose a sequence of at most {sizes.positions} tokens"
        )
    recipe = Recipe(Batch(sequence, micro_batch), data_type, figures)
    return build_layers(sizes, recipe), build_edges(sizes, recipe), describe_config(sizes)


def _build_graph(layers: Sequence[LayerNode], edges: Sequence[EdgeInfo], name: str) -> DiGraph:
    import networkx

    graph: DiGraph = networkx.DiGraph()
    for layer in layers:
        if layer.layer_id in graph:
            raise UsageError(f"{name}: layer {layer.layer_id} appears twice: expected each layer_id once")
        graph.add_node(layer.layer_id, layer=layer)
    for edge in edges:
        for end in (edge.source_id, edge.target_id):
            if end not in graph:
                raise UsageError(
                    f"{name}: the edge from {edge.source_id} to {edge.target_id} names layer {end}, "
                    "which is not among the nodes"
                )
        graph.add_edge(edge.source_id, edge.target_id, edge=edge)
    return graph


def _sort_layers(graph: DiGraph, name: str) -> list[LayerNode]:
    """Return the layers in the order in which they can run, by `layer_id` where that is free.

    Raises:
        UsageError: There is none, there are no layers, or they fall into parts.
    """
    import networkx

    if not len(graph):
        raise UsageError(f"{name}: no layers: expected at least one node")
    try:
        order = list(networkx.lexicographical_topological_sort(graph))
    except networkx.NetworkXUnfeasible:
        around = [source for source, _ in networkx.find_cycle(graph)]
        circle = " -> ".join(str(each) for each in (*around, around[0]))
        raise UsageError(f"{name}: its layers form a cycle ({circle}): remove one of these edges") from None
    parts = sorted((sorted(part) for part in networkx.weakly_connected_components(graph)), key=len)
    if len(parts) > 1:
        raise UsageError(
            f"{name}: {len(parts)} parts without an edge between them; layer {parts[0][0]} is not "
            "connected to the rest: expected one connected graph"
        )
    return [graph.nodes[each]["layer"] for each in order]
