"""Two formulas that others publish, as yardsticks: Megatron-LM's own estimate, and that of a fork of it.

Both give one number: the states of the most loaded rank, and the activations of the first stage. Megatron-LM:
megatron/training/theoretical_memory_usage.py. The fork: the same with the number of parameters of the older
form, without the case that sequence parallelism is off.
"""

from .layout import ParallelLayout
from .shape import ModelShape
from .training import TrainingSetup

_OVERHEAD = 1.05
"""What Megatron-LM adds where sequence parallelism or selective recompute is off."""


def estimate_as_published(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup
) -> tuple[float, float]:
    """Return bytes of states, and of states and activations, by Megatron-LM's published formula.

    It takes the first stage for the fullest, layers as evenly split, biases and CP as absent.
    """
    states = _count_loaded(shape, layout) * _state_bytes(layout, setup)
    if layout.is_sequence_parallel and setup.recompute == "selective":
        return states, states + _activations_sequence_parallel(shape, layout, setup)
    return states, states + _activations_plain(shape, layout, setup)


def estimate_as_fork(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> float:
    """Return bytes of states and activations as the fork's traces tell them in `theoretical_memory_MB`."""
    rows = shape.pad_vocab(1) * shape.hidden
    loaded = _count_layers(shape) / layout.pipeline + rows
    if not shape.is_tied and layout.pipeline == 1:
        loaded += rows
    states = loaded / layout.tensor * _state_bytes(layout, setup)
    return states + _activations_sequence_parallel(shape, layout, setup)


def _count_layers(shape: ModelShape) -> float:
    """Return the parameters of all layers and the last norm, without biases."""
    gate = 1.5 if shape.is_gated else 1.0
    norms = 2 if shape.has_norm_bias else 1
    total = float(norms * shape.hidden)
    for layer in range(shape.layers):
        width = shape.ffn * gate
        if shape.is_expert_layer(layer) and shape.experts is not None:
            width = (shape.experts.ffn * shape.experts.experts + shape.experts.shared_ffn) * gate
        total += 2 * shape.hidden * (width + norms) + _count_attention(shape)
    return total


def _count_attention(shape: ModelShape) -> float:
    if shape.latent is None:
        return 2 * shape.hidden * shape.query_size * (1 + shape.kv_groups / shape.heads)
    latent = shape.latent
    query = shape.hidden * shape.query_size
    if latent.query_rank is not None:
        query = latent.query_rank * (shape.hidden + shape.query_size)
    expanded = shape.heads * (latent.head_channels + latent.value_channels)
    keys = latent.key_value_rank * (shape.hidden + expanded) + shape.hidden * latent.rope_channels
    return float(query + keys + shape.attended_size * shape.hidden)


def _count_loaded(shape: ModelShape, layout: ParallelLayout) -> float:
    rows = shape.pad_vocab(layout.tensor) * shape.hidden
    loaded = _count_layers(shape) / layout.pipeline + rows
    if not shape.is_tied and layout.pipeline == 1:
        loaded += rows
    return loaded / layout.tensor


def _state_bytes(layout: ParallelLayout, setup: TrainingSetup) -> float:
    return 18 if setup.zero_stage == 0 else 6 + 12 / layout.data


def _activations_sequence_parallel(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> float:
    elements = setup.seq_length * setup.micro_batch_size * shape.hidden
    total = elements * (18 + 4 * shape.ffn / shape.hidden) * shape.layers
    total = _fill_pipeline(total + _embedding(shape, layout, setup), layout, setup)
    if layout.pipeline == 1:
        total += 4 * elements * (1 + shape.pad_vocab(layout.tensor) / shape.hidden)
    return total / layout.tensor


def _activations_plain(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> float:
    tokens = setup.seq_length * setup.micro_batch_size
    total = tokens * shape.hidden * (10 + 24 / layout.tensor) * shape.layers
    total = _fill_pipeline(total + _embedding(shape, layout, setup), layout, setup)
    if layout.pipeline == 1:
        total += 2 * tokens * (shape.pad_vocab(layout.tensor) / layout.tensor + shape.hidden)
    return total * _OVERHEAD


def _embedding(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> float:
    return setup.seq_length * setup.micro_batch_size * layout.pipeline * (8.0 + shape.hidden)


def _fill_pipeline(total: float, layout: ParallelLayout, setup: TrainingSetup) -> float:
    if layout.virtual_stages > 1:
        return total * (1 + (layout.pipeline - 1) / (layout.pipeline * layout.virtual_stages))
    if layout.pipeline > 1:
        return total * min(1.0, setup.micro_batches / layout.pipeline)
    return total
