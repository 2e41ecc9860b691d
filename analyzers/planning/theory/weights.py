"""Parameters of one rank, tensor by tensor, in elements."""

from typing import NamedTuple

from .layout import ParallelLayout
from .shape import ExpertShape, LatentAttention, ModelShape


class WeightTensor(NamedTuple):
    """Tensors of one size on one rank."""

    part: str
    """`attention`, `mlp`, `experts`, `norm`, `embedding` or `head`."""
    elements: int
    copies: int = 1
    is_expert: bool = False
    """Whether the copies of it are the expert-data ranks."""
    is_matrix: bool = False
    """Whether a linear layer multiplies by it (fp8 keeps copies of those)."""


def list_layer_weights(shape: ModelShape, layout: ParallelLayout, layer: int) -> list[WeightTensor]:
    """Return the parameters of one layer on one rank; layers count from 0.

    Attention: h(q + k + v)/t + q h/t; MLP: h f (2, gated 3)/t; norms replicated. Biases of column-parallel
    projections are divided by t, of row-parallel ones not (Megatron-LM, core/tensor_parallel/layers.py).
    """
    weights = [*_list_attention(shape, layout), *_list_norms(shape, 2)]
    if shape.experts is not None and shape.is_expert_layer(layer):
        return weights + _list_experts(shape, shape.experts, layout)
    return weights + _list_mlp(shape, shape.ffn, layout.tensor, "mlp")


def _list_attention(shape: ModelShape, layout: ParallelLayout) -> list[WeightTensor]:
    if shape.latent is not None:
        return _list_latent(shape, shape.latent, layout.tensor)
    # With fewer groups than ranks each rank holds a copy of one group.
    groups = max(1, shape.kv_groups // layout.tensor)
    width = (shape.heads // layout.tensor + 2 * groups) * shape.head_channels
    weights = [
        _matrix("attention", shape.hidden * width),
        _matrix("attention", shape.query_size // layout.tensor * shape.hidden),
    ]
    if shape.has_linear_bias or shape.has_qkv_bias:
        weights.append(WeightTensor("attention", width))
    if shape.has_linear_bias:
        weights.append(WeightTensor("attention", shape.hidden))
    if shape.has_query_key_norm:
        weights.append(WeightTensor("norm", shape.head_channels, 2))
    return weights


def _list_latent(shape: ModelShape, latent: LatentAttention, tensor: int) -> list[WeightTensor]:
    query_in = latent.query_rank or shape.hidden
    expanded = shape.heads * (latent.head_channels + latent.value_channels)
    weights = [
        _matrix("attention", query_in * shape.query_size // tensor),
        _matrix("attention", shape.hidden * (latent.key_value_rank + latent.rope_channels)),
        _matrix("attention", latent.key_value_rank * expanded // tensor),
        _matrix("attention", shape.attended_size // tensor * shape.hidden),
        WeightTensor("norm", latent.key_value_rank),
    ]
    if latent.query_rank is not None:
        weights.append(_matrix("attention", shape.hidden * latent.query_rank))
        weights.append(WeightTensor("norm", latent.query_rank))
    return weights


def _list_mlp(shape: ModelShape, ffn: int, shards: int, part: str, count: int = 1) -> list[WeightTensor]:
    wide = ffn * (2 if shape.is_gated else 1) // shards
    is_expert = part == "experts"
    weights = [
        WeightTensor(part, shape.hidden * wide, count, is_expert, is_matrix=True),
        WeightTensor(part, shape.hidden * ffn // shards, count, is_expert, is_matrix=True),
    ]
    if shape.has_linear_bias:
        weights.append(WeightTensor(part, wide, count, is_expert))
        weights.append(WeightTensor(part, shape.hidden, count, is_expert))
    return weights


def _list_experts(shape: ModelShape, experts: ExpertShape, layout: ParallelLayout) -> list[WeightTensor]:
    local = experts.experts // layout.expert
    weights = [WeightTensor("mlp", experts.experts * shape.hidden)]
    weights += _list_mlp(shape, experts.ffn, layout.expert_shards, "experts", local)
    if experts.shared_ffn:
        weights += _list_mlp(shape, experts.shared_ffn, layout.tensor, "mlp")
    return weights


def _list_norms(shape: ModelShape, count: int) -> list[WeightTensor]:
    return [WeightTensor("norm", shape.hidden, count * (2 if shape.has_norm_bias else 1))]


def list_stage_weights(
    shape: ModelShape, layout: ParallelLayout, layers: list[int], *, is_first: bool, is_last: bool
) -> list[WeightTensor]:
    """Return the parameters of one pipeline rank: its layers, and what is outside of layers."""
    weights = [tensor for layer in layers for tensor in list_layer_weights(shape, layout, layer)]
    return weights + list_outside_weights(shape, layout, is_first=is_first, is_last=is_last)


def list_outside_weights(
    shape: ModelShape, layout: ParallelLayout, *, is_first: bool, is_last: bool
) -> list[WeightTensor]:
    """Return the parameters of one pipeline rank that belong to no layer of it.

    The embedding, V h / t, is on the first stage; the head, as large, on the last, tied or not: the last
    stage keeps a copy of a tied weight, unless it is the first. Learned positions are replicated.
    """
    weights: list[WeightTensor] = []
    rows = shape.pad_vocab(layout.tensor) // layout.tensor
    if is_first:
        weights.append(WeightTensor("embedding", rows * shape.hidden))
        positions = shape.learned_positions + 2 * shape.has_masked_head
        if positions:
            weights.append(WeightTensor("embedding", positions * shape.hidden))
    if not is_last:
        return weights
    if not (is_first and shape.is_tied):
        weights.append(_matrix("head", rows * shape.hidden)._replace(is_matrix=False))
    if shape.predicted_tokens and not is_first and not shape.is_tied:
        weights.append(WeightTensor("embedding", rows * shape.hidden))
    weights += _list_norms(shape, 1)
    if shape.has_masked_head:
        weights += _list_masked_head(shape, rows)
    return weights + _list_predictions(shape, layout)


def _list_masked_head(shape: ModelShape, rows: int) -> list[WeightTensor]:
    """Return BERT's projection before its head, the pooler, and the classes of next sentences.

    All but the head's bias are replicated (Megatron-LM, core/models/bert/).
    """
    hidden = shape.hidden
    dense = [WeightTensor("head", hidden * hidden, 2), WeightTensor("head", hidden, 2)]
    return [*dense, *_list_norms(shape, 1), WeightTensor("head", rows), WeightTensor("head", 2 * hidden + 2)]


def _list_predictions(shape: ModelShape, layout: ParallelLayout) -> list[WeightTensor]:
    """Return the layers of multi-token prediction: one layer, three norms and a 2h x h projection each."""
    weights: list[WeightTensor] = []
    for _ in range(shape.predicted_tokens):
        weights += list_layer_weights(shape, layout, shape.layers - 1)
        weights += _list_norms(shape, 3)
        weights.append(_matrix("mlp", 2 * shape.hidden * shape.hidden // layout.tensor))
    return weights


def _matrix(part: str, elements: int) -> WeightTensor:
    return WeightTensor(part, elements, is_matrix=True)


def count_elements(weights: list[WeightTensor]) -> int:
    """Return the parameters of a list of tensors."""
    return sum(tensor.elements * tensor.copies for tensor in weights)


def count_parameters(shape: ModelShape) -> int:
    """Return the parameters of the whole model, the vocabulary padded as without tensor parallelism."""
    whole = ParallelLayout()
    layers = list(range(shape.layers))
    return count_elements(list_stage_weights(shape, whole, layers, is_first=True, is_last=True))
