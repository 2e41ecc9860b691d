"""Integer costs of the layers of a graph: what a partition is balanced by."""

from collections.abc import Sequence

from ....engine.errors import UsageError
from ..graph import LayerNode, StateBytes
from .result import METRICS, Metric


def list_metric(layers: Sequence[LayerNode], metric: Metric) -> list[int]:
    """Return bytes of weights, FLOPs of both passes, or parameters of each layer.

    Raises:
        UsageError: No such metric.
    """
    if metric == "memory":
        return [layer.weight_bytes for layer in layers]
    if metric == "parameters":
        return [layer.held_parameters for layer in layers]
    if metric == "compute":
        return [count_flops(layer) for layer in layers]
    raise UsageError(f"balance metric {metric!r}: expected {', '.join(METRICS)}")


def count_flops(layer: LayerNode) -> int:
    """Return the FLOPs of both passes; three times the forward pass where a file tells that alone.

    Such files are llm_parallel_strategy's. Their figure of an embedding is in FLOP; it multiplies nothing:
    0 is taken.
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
