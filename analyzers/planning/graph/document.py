"""A model graph from the JSON that llm_parallel_strategy writes, or from ours, which adds figures."""

from collections.abc import Mapping, Sequence

import msgspec

from ....engine.errors import InputFileError
from .layer import EdgeInfo, LayerNode

LARGEST = 1 << 60
_FIGURES = (
    "parameter_count",
    "memory_usage",
    "compute_flops",
    "shared_parameter_count",
    "forward_flops",
    "backward_flops",
    "activation_bytes",
)


class GraphDocument(msgspec.Struct, frozen=True):
    """What the file holds; `stats` follow from the nodes and are not read."""

    nodes: dict[str, LayerNode]
    edges: list[EdgeInfo]
    config: Mapping[str, object] = {}


def decode_graph(data: bytes, what: str) -> GraphDocument:
    """Return the content of a graph's file.

    Args:
        data: JSON.
        what: What the file is called in the error.

    Raises:
        InputFileError: It is no such JSON, or a figure is negative or beyond all bounds.
    """
    try:
        document = msgspec.json.decode(data, type=GraphDocument)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InputFileError(f"{what}: not a model graph: {error}; expected nodes and edges") from None
    for key, layer in document.nodes.items():
        if str(layer.layer_id) != key:
            raise InputFileError(f"{what}: node {key!r} has layer_id {layer.layer_id}: expected the same")
        _check_figures([getattr(layer, name) for name in _FIGURES], f"{what}: node {key!r}")
    for edge in document.edges:
        _check_figures([edge.communication_cost], f"{what}: edge {edge.source_id}-{edge.target_id}")
    return document


def _check_figures(figures: Sequence[float | None], where: str) -> None:
    if not all(0 <= (figure or 0) <= LARGEST for figure in figures):
        raise InputFileError(f"{where} has a figure out of range: expected 0 to {LARGEST:,}")
