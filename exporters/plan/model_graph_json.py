"""A model graph as JSON, in the shape of llm_parallel_strategy's `*_model_graph.json`."""

import json

from ...analyzers.planning.graph import ModelGraph


def encode_graph(graph: ModelGraph) -> bytes:
    """Return the file's bytes; the original's own content gives the original's bytes."""
    return json.dumps(graph.to_dict(), indent=2).encode()
