"""Distributions of a graph's figures, and the layers that stand out."""

import math
from collections.abc import Callable, Sequence

from ..model_graph import LayerNode, ModelGraph
from .result import Bottleneck, Distribution, GraphAnalysis

_Figure = Callable[[LayerNode], float]


def analyze_graph(graph: ModelGraph) -> GraphAnalysis:
    """Return how parameters, memory and compute are spread, and the layer that has most of each."""
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
