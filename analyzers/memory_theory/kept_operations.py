"""What is kept where single operations are recomputed: torchtitan's per-operation checkpoints."""

from .expert_activations import count_expert_rows
from .layout import ParallelLayout
from .shape import ModelShape
from .training import TrainingSetup


def list_kept_operations(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int, tokens: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the bytes that one layer keeps of one micro-batch, by operation.

    Kept are the layer's input, attention's output, every second matrix product (query, value, first half of a
    gated MLP, its last projection), and what collectives returned; all else is worked out again (torchtitan,
    torchtitan/distributed/activation_checkpoint.py and models/llama3/parallelize.py: wq, wv, w1, w2). Grouped
    products of experts are not kept, what all-to-all brought to them and back is.

    Returns:
        What backward reads as it is, and what it only starts from again.
    """
    size, tensor = setup.numbers.compute_bytes, layout.tensor
    hidden = tokens * shape.hidden * size
    own = hidden // layout.norm_shards
    kept = {
        "layer input": own,
        "value": tokens * max(shape.value_size // tensor, shape.head_channels) * size,
        "attention output": tokens * shape.attended_size // tensor * size,
        "attention row sums": tokens * (shape.heads // tensor) * 4,
    }
    beyond = {"query": tokens * shape.query_size // tensor * size}
    beyond["collective output"] = 2 * own if tensor > 1 else 0
    ffn = shape.ffn
    if shape.experts is not None and shape.is_expert_layer(layer):
        ffn = shape.experts.shared_ffn
        rows = count_expert_rows(shape.experts, layout, setup, tokens) if layout.expert > 1 else 0
        beyond["expert exchange"] = 2 * rows * shape.hidden * size
    kept["MLP first product"] = tokens * ffn // tensor * size
    beyond["MLP last product"] = hidden if ffn else 0
    return kept, beyond
