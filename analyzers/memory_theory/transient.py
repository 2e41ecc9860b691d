"""What backward needs for a moment beyond what was saved: gradients of activations and of one weight."""

from .activations import count_tokens, list_recomputed_activations
from .expert_activations import count_expert_rows
from .layout import ParallelLayout
from .shape import ModelShape
from .training import TrainingSetup
from .weights import WeightTensor

_MLP_NAMES = ("MLP", "activation function", "expert", "router", "shared expert", "operations")


def count_backward(
    shape: ModelShape,
    layout: ParallelLayout,
    setup: TrainingSetup,
    layer: int,
    saved: dict[str, int],
    weights: list[WeightTensor],
) -> int:
    """Return the most bytes that backward of one layer adds, when everything before it is still saved.

    First the MLP: gradient of its output, T h, gathered where norms are split; gradient of the second
    projection's input, and of the first one's output once that input is freed; one weight gradient unless it
    is added in place. Experts have the gradient of their rows, R h, besides. Then unfused attention: two
    gradients of the scores, with the MLP's share freed. What is recomputed selectively is back when its part
    runs.

    Args:
        shape: The model.
        layout: Degrees of parallelism.
        setup: The run.
        layer: Which layer, from 0.
        saved: What it saves, by operation.
        weights: Its parameters on one rank.
    """
    tokens, size = count_tokens(layout, setup), setup.numbers.compute_bytes
    gathered = tokens * shape.hidden * size if layout.is_sequence_parallel and layout.tensor > 1 else 0
    output = tokens // layout.norm_shards * shape.hidden * size + gathered
    inner = _count_inner(shape, layout, setup, layer) * size
    wide = 2 if shape.is_gated else 1
    again = list_recomputed_activations(shape, layout, setup, layer)
    mlp = output + max(inner + _count_weight_gradient(setup, weights), inner * wide)
    mlp += _count_expert_rows(shape, layout, setup, layer) * size + _sum_mlp(again)
    scores = 0
    if setup.attention == "unfused":
        scores = 2 * tokens * setup.seq_length * shape.heads // layout.tensor * size
    return max(mlp, output + scores + sum(again.values()) - _sum_mlp(again) - _sum_mlp(saved))


def _sum_mlp(saved: dict[str, int]) -> int:
    return sum(size for name, size in saved.items() if name.startswith(_MLP_NAMES))


def _count_inner(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int) -> int:
    """Return the elements between the two projections of an MLP, or of a rank's experts."""
    tokens = count_tokens(layout, setup)
    if not shape.is_expert_layer(layer) or shape.experts is None:
        return tokens * shape.ffn // layout.tensor
    rows = count_expert_rows(shape.experts, layout, setup, tokens)
    return rows * shape.experts.ffn // layout.expert_shards


def _count_expert_rows(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int) -> int:
    """Return the elements of the rows that left a rank's experts, 0 for a dense layer."""
    if not shape.is_expert_layer(layer) or shape.experts is None:
        return 0
    return count_expert_rows(shape.experts, layout, setup, count_tokens(layout, setup)) * shape.hidden


def _count_weight_gradient(setup: TrainingSetup, weights: list[WeightTensor]) -> int:
    if setup.fuses_gradients:
        return 0
    return max(tensor.elements for tensor in weights) * setup.numbers.compute_bytes
