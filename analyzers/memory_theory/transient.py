"""What backward needs for a moment beyond what was saved: gradients of activations and of one weight."""

from .activations import count_tokens, list_layer_activations
from .layout import ParallelLayout
from .shape import ModelShape
from .training import TrainingSetup
from .weights import list_layer_weights

_MLP_NAMES = ("MLP", "activation function", "expert", "router", "shared expert")


def count_backward(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int) -> int:
    """Return the most bytes that backward of one layer adds, when everything before it is still saved.

    First the MLP: gradient of its output, T h, gathered where norms are split; gradient of the second
    projection's input, and of the first one's output once that input is freed; one weight gradient unless it
    is added in place. Then unfused attention: two gradients of the scores, with the MLP's share freed.
    """
    tokens, size = count_tokens(layout, setup), setup.numbers.compute_bytes
    gathered = tokens * shape.hidden * size if layout.is_sequence_parallel and layout.tensor > 1 else 0
    output = tokens // layout.norm_shards * shape.hidden * size + gathered
    saved = list_layer_activations(shape, layout, setup, layer)
    inner = _count_inner(shape, layout, tokens, layer) * size
    wide = 2 if shape.is_gated else 1
    mlp = output + max(inner + _count_weight_gradient(shape, layout, setup, layer), inner * wide)
    freed = sum(value for name, value in saved.items() if name.startswith(_MLP_NAMES))
    scores = 0
    if setup.attention == "unfused":
        scores = 2 * tokens * setup.seq_length * shape.heads // layout.tensor * size
    return max(mlp, output + scores - freed)


def _count_inner(shape: ModelShape, layout: ParallelLayout, tokens: int, layer: int) -> int:
    if not shape.is_expert_layer(layer) or shape.experts is None:
        return tokens * shape.ffn // layout.tensor
    return tokens * shape.experts.top_k * shape.experts.ffn // layout.tensor


def _count_weight_gradient(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int
) -> int:
    if setup.fuses_gradients:
        return 0
    weights = list_layer_weights(shape, layout, layer)
    return max(tensor.elements for tensor in weights) * setup.numbers.compute_bytes
