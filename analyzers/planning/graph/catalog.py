"""The sizes of a transformer that its parameters, FLOPs and activations follow from."""

from typing import Literal, NamedTuple

import msgspec

from ....engine.errors import UsageError
from ....engine.text import suggest
from ..theory import ExpertShape, LatentAttention, ModelShape
from ..theory.presets import LONGEST, PRESETS, find_dropout

Family = Literal["gpt", "llama", "moe", "t5", "bert"]

MOST_LAYERS = 200_000
LARGEST = 1 << 40


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """One model. Two switches say which GPT is meant: that of llm_parallel_strategy has neither biases nor
    positions.
    """

    family: Family
    layers: int
    """Transformer blocks; of an encoder-decoder those of the encoder."""
    hidden: int
    heads: int
    vocabulary: int
    positions: int
    """Longest sequence it is made for."""
    kv_heads: int = 0
    """Groups of keys and values; 0 for as many as heads."""
    head_size: int = 0
    """0 for hidden size over heads."""
    intermediate: int = 0
    """Width of the MLP; 0 for four times the hidden size."""
    decoder_layers: int = 0
    has_biases: bool = False
    has_qkv_biases: bool = False
    has_positions: bool = False
    """Whether positions are learned weights."""
    has_gate: bool = False
    """Whether the MLP is gated (SwiGLU): three matrices instead of two."""
    has_dropout: bool = False
    is_tied: bool = False
    """Whether the head uses the weights of the embedding."""
    norm_size: int = 1
    """Vectors of one norm: 1 of RMSNorm, 2 of LayerNorm with bias."""
    has_query_key_norm: bool = False
    """Whether queries and keys are normalized, head by head."""
    norms: int = 2
    """Norms of a block over hidden states, without that of cross-attention."""
    has_sinks: bool = False
    """Whether each head has a learned score that no key has (gpt-oss)."""
    has_router_bias: bool = False
    experts: ExpertShape | None = None
    latent: LatentAttention | None = None
    """Sizes of latent attention, which has no heads of keys and values of its own."""

    @property
    def groups(self) -> int:
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        return self.head_size or self.hidden // self.heads

    @property
    def mixtures(self) -> tuple[bool, ...]:
        """Whether the MLP of each block is a mixture of experts; never in an encoder-decoder."""
        if self.experts is None:
            return (False,) * self.layers
        expert_layers = self.experts.is_expert_layer[: self.layers]
        return expert_layers + expert_layers[-1:] * (self.layers - len(expert_layers))

    @property
    def width(self) -> int:
        return self.intermediate or 4 * self.hidden


def check_architecture(model: Architecture, what: str) -> Architecture:
    """Return the model if its sizes are possible, else raise `UsageError`; `what` names it in the error."""
    for name in ("layers", "decoder_layers"):
        if getattr(model, name) > MOST_LAYERS:
            raise UsageError(f"{what}: {name} is {getattr(model, name)}, expected at most {MOST_LAYERS:,}")
    for name in model.__struct_fields__:
        size = getattr(model, name)
        if isinstance(size, int) and size > LARGEST:
            raise UsageError(f"{what}: {name} is {size}, expected at most {LARGEST:,}")
    sizes = ("layers", "hidden", "heads", "vocabulary", "positions")
    for name in sizes:
        if getattr(model, name) < 1:
            raise UsageError(f"{what}: {name} is {getattr(model, name)}, expected at least 1")
    if not model.head_size and model.hidden % model.heads:
        raise UsageError(f"{what}: a hidden size of {model.hidden} does not divide into {model.heads} heads")
    if model.heads % model.groups:
        raise UsageError(
            f"{what}: {model.heads} heads do not divide into {model.groups} groups of keys and values"
        )
    if model.experts is not None:
        _check_experts(model.experts, what)
    return model


def _check_experts(experts: ExpertShape, what: str) -> None:
    if not 1 <= experts.top_k <= experts.experts:
        raise UsageError(
            f"{what}: {experts.top_k} of {experts.experts} experts per token: expected from 1 to all"
        )
    if not 1 <= experts.ffn * experts.experts + experts.shared_ffn <= LARGEST:
        raise UsageError(
            f"{what}: experts of width {experts.ffn}: expected at least 1, and at most {LARGEST:,} in total"
        )


# Models by name, each with the sizes its authors published.

# Decoders are taken from the presets of the memory theory. Models with an encoder, which it does not know,
# are listed here.


def take_shape(shape: ModelShape, positions: int, *, has_dropout: bool) -> Architecture:
    """Return a decoder of the memory theory as a model to plan for, without further predicted tokens.

    `positions` is the longest sequence it is made for.
    """
    return Architecture(
        family="moe" if shape.experts else "llama" if shape.is_gated else "gpt",
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_groups,
        head_size=shape.head_channels,
        intermediate=shape.ffn,
        vocabulary=shape.pad_vocab(1),
        positions=positions,
        has_biases=shape.has_linear_bias,
        has_qkv_biases=shape.has_qkv_bias and not shape.has_linear_bias,
        has_positions=shape.learned_positions > 0,
        has_gate=shape.is_gated,
        has_dropout=has_dropout,
        is_tied=shape.is_tied,
        norm_size=2 if shape.has_norm_bias else 1,
        has_query_key_norm=shape.has_query_key_norm,
        norms=shape.norms,
        has_sinks=shape.has_sinks,
        has_router_bias=shape.has_router_bias,
        experts=shape.experts,
        latent=shape.latent,
    )


def _make_t5(layers: int, hidden: int, heads: int, head_size: int, width: int) -> Architecture:
    return Architecture(
        family="t5",
        layers=layers,
        decoder_layers=layers,
        hidden=hidden,
        heads=heads,
        head_size=head_size,
        intermediate=width,
        vocabulary=32128,
        positions=512,
        has_dropout=True,
        is_tied=True,
    )


def _make_bert(layers: int, hidden: int, heads: int) -> Architecture:
    return Architecture(
        family="bert",
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=30522,
        positions=512,
        has_biases=True,
        has_positions=True,
        has_dropout=True,
        norm_size=2,
    )


MODELS: dict[str, Architecture] = {
    name: take_shape(PRESETS[name], longest, has_dropout=find_dropout(name) > 0)
    for name, longest in LONGEST.items()
} | {
    "t5-small": _make_t5(6, 512, 8, 64, 2048),
    "t5-base": _make_t5(12, 768, 12, 64, 3072),
    "t5-large": _make_t5(24, 1024, 16, 64, 4096),
    "t5-3b": _make_t5(24, 1024, 32, 128, 16384),
    "bert-base": _make_bert(12, 768, 12),
    "bert-large": _make_bert(24, 1024, 16),
}


def find_model(name: str) -> Architecture:
    """Return a model by its name, in any case.

    Raises:
        UsageError: It is unknown; the text shows the nearest known names.
    """
    wanted = name.strip().lower().replace("_", "-")
    if wanted in MODELS:
        return MODELS[wanted]
    known = suggest(wanted, MODELS, f"known are {', '.join(MODELS)}.", most=3, cutoff=0.5)
    raise UsageError(f"unknown model {name!r}: {known} The path of its config.json works too")


# Parameters, FLOPs and activations of the parts of a transformer.
#
# FLOPs are those of matrix products, a multiply-add counted as two, as PyTorch's FlopCounterMode counts
# them; the backward pass makes two products for each. Activations are what the backward pass needs, 2 bytes
# an element and 1 a dropout mask, as V. Korthikanti et al., arXiv:2205.05198, add them up, with attention
# that keeps no matrix of scores: for a GPT that is 34 bytes for each of sequence · batch · hidden. A gated
# MLP is taken as one fused kernel that keeps gate, up and their product.

# Distances that T5 distinguishes in its attention bias.
RELATIVE_BUCKETS = 32
# Segments whose embeddings BERT adds.
TOKEN_TYPES = 2


class Size(NamedTuple):
    parameters: int
    forward_flops: int
    activation_bytes: int


class Batch(NamedTuple):
    sequence: int
    sequences: int

    @property
    def tokens(self) -> int:
        return self.sequence * self.sequences


def size_block(
    model: Architecture, batch: Batch, *, is_mixture: bool = False, has_cross_attention: bool = False
) -> Size:
    """Return the size of one transformer block; with cross-attention, the encoder's sequence is as long."""
    attention = _size_attention(model, batch) if model.latent is None else _size_latent(model, batch)
    experts = model.experts if is_mixture else None
    mlp = _size_mlp(model, batch, model.width) if experts is None else _size_mixture(model, batch, experts)
    times = 2 if has_cross_attention else 1
    norms = model.norms + times - 1
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
    others = model.heads if model.has_sinks else 0
    if model.has_query_key_norm:
        others += 2 * model.head_width
        kept += 2 * (queries + keys)
    return Size(matrices + biases + others, batch.tokens * (2 * matrices + scores), batch.tokens * kept)


def _size_latent(model: Architecture, batch: Batch) -> Size:
    """Return the size of latent attention as training runs it: queries, keys and values are expanded.

    DeepSeek-V2, arXiv 2405.04434, section 2.1. Kept are its input, the compressed rows before and after their
    norms, queries, keys, values, and the output of attention.
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
    columns = 2 * width if model.has_gate else width
    matrices = model.hidden * (columns + width)
    biases = columns + model.hidden if model.has_biases else 0
    kept = 2 * model.hidden + (6 if model.has_gate else 4) * width
    kept += model.hidden if model.has_dropout else 0
    return Size(matrices + biases, batch.tokens * 2 * matrices, batch.tokens * kept)


def _size_mixture(model: Architecture, batch: Batch, experts: ExpertShape) -> Size:
    """Return the size of a router, its experts, and the one that all tokens share, which may be wider.

    Every token goes through `top_k` experts; the sizes do not depend on which ones.
    """
    routed = _size_mlp(model, batch, experts.ffn)
    router = model.hidden * experts.experts
    biases = experts.experts if model.has_router_bias else 0
    width = (6 if model.has_gate else 4) * (experts.top_k * experts.ffn + experts.shared_ffn)
    kept = 2 * model.hidden + width + (model.hidden if model.has_dropout else 0)
    shared = _size_mlp(model, batch, experts.shared_ffn) if experts.shared_ffn else Size(0, 0, 0)
    return Size(
        experts.experts * routed.parameters + router + biases + shared.parameters,
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
    return Size(model.norm_size * model.hidden, 0, 2 * batch.tokens * model.hidden)


def size_head(model: Architecture, batch: Batch) -> Size:
    """Return the size of the layer that makes logits; its parameters are 0 where they are the embedding's.

    Its activations are its input, and the logits in 2 bytes and once more in 4 for the loss. BERT's is the
    pooler.
    """
    if model.family == "bert":
        parameters = model.hidden * (model.hidden + 1)
        return Size(parameters, 2 * batch.sequences * model.hidden**2, 4 * batch.sequences * model.hidden)
    matrix = model.hidden * model.vocabulary
    kept = batch.tokens * (2 * model.hidden + 6 * model.vocabulary)
    return Size(0 if model.is_tied else matrix, 2 * batch.tokens * matrix, kept)
