"""Parameters, FLOPs and activations of the parts of a transformer.

FLOPs are those of matrix products, a multiply-add counted as two, as PyTorch's FlopCounterMode counts them;
the backward pass makes two products for each. Activations are what the backward pass needs, 2 bytes an
element and 1 a dropout mask, as V. Korthikanti et al., arXiv:2205.05198, add them up, with attention that
keeps no matrix of scores: for a GPT that is 34 bytes for each of sequence · batch · hidden. A gated MLP is
taken as one fused kernel that keeps gate, up and their product.
"""

from typing import NamedTuple

from ..theory import ExpertShape
from .architecture import Architecture

RELATIVE_BUCKETS = 32
"""Distances that T5 tells apart in its attention bias."""
TOKEN_TYPES = 2
"""Segments whose embeddings BERT adds."""


class Size(NamedTuple):
    """What one layer holds and computes."""

    parameters: int
    forward_flops: int
    activation_bytes: int


class Batch(NamedTuple):
    """What goes through the model at once."""

    sequence: int
    sequences: int

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch."""
        return self.sequence * self.sequences


def size_block(
    model: Architecture, batch: Batch, *, is_mixture: bool = False, has_cross_attention: bool = False
) -> Size:
    """Return the size of one transformer block.

    Args:
        model: The model.
        batch: The micro-batch.
        is_mixture: Whether its MLP is a mixture of experts.
        has_cross_attention: Whether it attends to an encoder as well, whose sequence is as long.
    """
    attention = _size_attention(model, batch) if model.latent is None else _size_latent(model, batch)
    experts = model.experts if is_mixture else None
    mlp = _size_mlp(model, batch, model.width) if experts is None else _size_mixture(model, batch, experts)
    times = 2 if has_cross_attention else 1
    norms = 1 + times
    return Size(
        times * attention.parameters + mlp.parameters + norms * model.norm_size * model.hidden,
        times * attention.forward_flops + mlp.forward_flops,
        times * attention.activation_bytes + mlp.activation_bytes + 2 * norms * batch.tokens * model.hidden,
    )


def _size_attention(model: Architecture, batch: Batch) -> Size:
    queries = model.heads * model.head_width
    keys = model.groups * model.head_width
    matrices = model.hidden * (2 * queries + 2 * keys)
    biases = queries + 2 * keys if model.has_biases or model.has_qkv_biases else 0
    biases += model.hidden if model.has_biases else 0
    scores = 4 * batch.sequence * queries
    kept = 2 * model.hidden + 4 * queries + 4 * keys + (model.hidden if model.has_dropout else 0)
    norms = 2 * model.head_width if model.has_query_key_norm else 0
    if norms:
        kept += 2 * (queries + keys)
    return Size(matrices + biases + norms, batch.tokens * (2 * matrices + scores), batch.tokens * kept)


def _size_latent(model: Architecture, batch: Batch) -> Size:
    """Return the size of latent attention as training runs it: queries, keys and values are expanded.

    DeepSeek-V2, arXiv 2405.04434, section 2.1. Kept are its input, the compressed rows before and after their
    norms, queries, keys, values, and what attention gives.
    """
    latent = model.latent
    heads = model.heads
    assert latent is not None  # noqa: S101 - the caller looked
    query = heads * (latent.head_channels + latent.rope_channels)
    value = heads * latent.value_channels
    rank = latent.query_rank or 0
    compressed = latent.key_value_rank + latent.rope_channels
    matrices = (rank or model.hidden) * query + model.hidden * (rank + compressed + value)
    matrices += latent.key_value_rank * (heads * latent.head_channels + value)
    scores = 2 * batch.sequence * (query + value)
    kept = 2 * model.hidden + 4 * rank + 2 * (compressed + latent.key_value_rank) + 4 * query + 4 * value
    norms = rank + latent.key_value_rank
    return Size(matrices + norms, batch.tokens * (2 * matrices + scores), batch.tokens * kept)


def _size_mlp(model: Architecture, batch: Batch, width: int) -> Size:
    matrices = (3 if model.has_gate else 2) * model.hidden * width
    biases = width + model.hidden if model.has_biases else 0
    kept = 2 * model.hidden + (6 if model.has_gate else 4) * width
    kept += model.hidden if model.has_dropout else 0
    return Size(matrices + biases, batch.tokens * 2 * matrices, batch.tokens * kept)


def _size_mixture(model: Architecture, batch: Batch, experts: ExpertShape) -> Size:
    """Return the size of a router, its experts, and the one that all tokens share, which may be wider.

    Every token goes through `top_k` experts; which ones, the sizes do not depend on.
    """
    routed = _size_mlp(model, batch, experts.ffn)
    router = model.hidden * experts.experts
    width = (6 if model.has_gate else 4) * (experts.top_k * experts.ffn + experts.shared_ffn)
    kept = 2 * model.hidden + width + (model.hidden if model.has_dropout else 0)
    shared = _size_mlp(model, batch, experts.shared_ffn) if experts.shared_ffn else Size(0, 0, 0)
    return Size(
        experts.experts * routed.parameters + router + shared.parameters,
        experts.top_k * routed.forward_flops + batch.tokens * 2 * router + shared.forward_flops,
        batch.tokens * kept,
    )


def size_embedding(model: Architecture, batch: Batch) -> Size:
    """Return the size of the embedding of tokens, with those of positions where they are learned."""
    rows = model.vocabulary + (model.positions if model.has_positions else 0)
    parameters = rows * model.hidden
    if model.family == "bert":
        parameters += TOKEN_TYPES * model.hidden + model.norm_size * model.hidden
    mask = model.hidden if model.has_dropout else 0
    return Size(parameters, 0, batch.tokens * mask)


def size_norm(model: Architecture, batch: Batch) -> Size:
    """Return the size of the norm after the last block."""
    return Size(model.norm_size * model.hidden, 0, 2 * batch.tokens * model.hidden)


def size_head(model: Architecture, batch: Batch) -> Size:
    """Return the size of what makes logits; its parameters are 0 where they are the embedding's.

    Its activations are its input, and the logits in 2 bytes and once more in 4 for the loss. BERT's is the
    pooler.
    """
    if model.family == "bert":
        parameters = model.hidden * (model.hidden + 1)
        return Size(parameters, 2 * batch.sequences * model.hidden**2, 4 * batch.sequences * model.hidden)
    matrix = model.hidden * model.vocabulary
    kept = batch.tokens * (2 * model.hidden + 6 * model.vocabulary)
    return Size(0 if model.is_tied else matrix, 2 * batch.tokens * matrix, kept)
