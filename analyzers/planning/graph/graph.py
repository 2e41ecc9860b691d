"""A model as a graph of layers, on NetworkX, which is imported where a graph is made."""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from ....engine.errors import UsageError
from .architecture import Architecture, check_architecture
from .catalog import find_model
from .chain import Figures, Recipe, build_edges, build_layers
from .layer import DataType, EdgeInfo, LayerNode
from .sizes import Batch

Config = Mapping[str, object]


class DiGraph(Protocol):
    """What is used of NetworkX's digraph of that name, which carries no types."""

    @property
    def nodes(self) -> Mapping[int, Mapping[str, LayerNode]]:
        """Attributes of each node: its `layer`."""

    @property
    def edges(self) -> Mapping[tuple[int, int], Mapping[str, EdgeInfo]]:
        """Attributes of each edge: its `edge`."""

    def __contains__(self, node: int) -> bool: ...

    def __len__(self) -> int: ...

    def add_node(self, node: int, *, layer: LayerNode) -> None:
        """Add a node."""

    def add_edge(self, source: int, target: int, *, edge: EdgeInfo) -> None:
        """Add an edge."""


class ModelGraph:
    """Layers and what they hand on, in the order in which they run.

    Args:
        layers: In any order; each `layer_id` once.
        edges: Between layers that are there.
        config: Sizes of the model, as they shall stand in its file.
        name: What people call it.
        batch: What activations and FLOPs are of; None where a file does not tell.

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
    ) -> None:
        self.name = name
        self.batch = batch
        self.config = dict(config)
        self.edges = list(edges)
        self.graph = _build_graph(layers, edges, name)
        self.layers = _put_in_order(self.graph, name)

    @property
    def nodes(self) -> dict[int, LayerNode]:
        """Layers by their id, in the order in which they run."""
        return {layer.layer_id: layer for layer in self.layers}

    def to_dict(self) -> dict[str, object]:
        """Return what the original's `*_model_graph.json` holds."""
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
    """Return the sizes of a model as its graph's file has them: Galvatron's six for a GPT of that kind."""
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
        seq_length: Tokens of a sequence; None for the longest the model is made for.
        micro_batch: Sequences of a micro-batch.
        data_type: Of weights and of what layers hand on.
        figures: `legacy` for the original's `compute_flops`.

    Raises:
        UsageError: The model is unknown, or a size cannot be.
    """
    name = model if isinstance(model, str) else "the model"
    sizes = check_architecture(find_model(model) if isinstance(model, str) else model, name)
    sequence = sizes.positions if seq_length is None else seq_length
    if sequence < 1 or micro_batch < 1:
        raise UsageError(f"{sequence} tokens in {micro_batch} sequences: expected at least 1 of each")
    recipe = Recipe(Batch(sequence, micro_batch), data_type, figures)
    return build_layers(sizes, recipe), build_edges(sizes, recipe), describe_config(sizes)


def _build_graph(layers: Sequence[LayerNode], edges: Sequence[EdgeInfo], name: str) -> DiGraph:
    import networkx

    graph: DiGraph = networkx.DiGraph()
    for layer in layers:
        if layer.layer_id in graph:
            raise UsageError(f"{name}: layer {layer.layer_id} is there twice: expected each layer_id once")
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


def _put_in_order(graph: DiGraph, name: str) -> list[LayerNode]:
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
        raise UsageError(
            f"{name}: its layers run in a circle ({circle}): remove one of these edges"
        ) from None
    parts = sorted((sorted(part) for part in networkx.weakly_connected_components(graph)), key=len)
    if len(parts) > 1:
        raise UsageError(
            f"{name}: {len(parts)} parts without an edge between them; layer {parts[0][0]} is not joined "
            "to the rest: expected one connected graph"
        )
    return [graph.nodes[each]["layer"] for each in order]
