"""A model graph as JSON, in the shape of llm_parallel_strategy's `*_model_graph.json`."""

import json

from ..analyzers.model_graph import LayerNode, ModelGraph

_ADDED = ("shared_parameter_count", "forward_flops", "backward_flops", "activation_bytes")
"""Figures that the shape of the original lacks; written where they are known."""


def encode_graph(graph: ModelGraph) -> bytes:
    """Return the file's bytes; the original's own content gives the original's bytes."""
    content = {
        "config": graph.config,
        "nodes": {str(layer.layer_id): _describe(layer) for layer in graph.layers},
        "edges": [{name: getattr(edge, name) for name in edge.__struct_fields__} for edge in graph.edges],
        "stats": {
            "total_layers": len(graph.layers),
            "total_parameters": graph.total_parameters,
            "total_memory_mb": graph.total_memory_mib,
            "total_compute_gflops": graph.total_compute_gflops,
        },
    }
    return json.dumps(content, indent=2).encode()


def _describe(layer: LayerNode) -> dict[str, object]:
    fields = {name: getattr(layer, name) for name in layer.__struct_fields__}
    return {name: value for name, value in fields.items() if value is not None or name not in _ADDED}
