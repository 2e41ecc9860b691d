"""What a transformer is made of, as far as its memory goes: sizes, not names of frameworks."""

import msgspec

from ....engine.errors import UsageError

MOST_LAYERS = 10_000
"""More layers than any model has; each is worked out by itself."""


class ExpertShape(msgspec.Struct, frozen=True, kw_only=True):
    """The mixture of experts of a model."""

    experts: int
    """Routed experts of a layer, over all ranks."""
    top_k: int
    """Experts that each token is sent to."""
    ffn: int
    """Inner size of one routed expert."""
    shared_ffn: int = 0
    """Inner size of all shared experts together; 0 where there are none."""
    is_expert_layer: tuple[bool, ...]
    """One entry a layer: whether its MLP is a mixture."""


class LatentAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): sizes of its projections."""

    query_rank: int | None
    """Rank of the compressed query; None where the query is projected directly."""
    key_value_rank: int
    head_channels: int
    """Channels of query and key without a position."""
    rope_channels: int
    """Channels of query and key that carry the position; the key's are shared by all heads."""
    value_channels: int


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a decoder-only transformer. Elements, not bytes."""

    layers: int
    hidden: int
    heads: int
    kv_groups: int
    """Heads of keys and values: `heads` without grouped-query attention."""
    head_channels: int
    ffn: int
    """Inner size of the MLP; of one of its two halves where it is gated."""
    vocab: int
    vocab_multiple: int = 1
    """The vocabulary is padded to a multiple of this times TP."""
    learned_positions: int = 0
    """Rows of a learned position embedding; 0 where positions are rotary."""
    is_gated: bool = False
    """Whether the MLP is gated (SwiGLU): its first projection is twice as wide."""
    is_tied: bool = False
    """Whether embedding and head share one weight."""
    has_linear_bias: bool = False
    has_qkv_bias: bool = False
    has_norm_bias: bool = False
    """Whether norms have a bias (LayerNorm) or a weight alone (RMSNorm)."""
    has_query_key_norm: bool = False
    experts: ExpertShape | None = None
    latent: LatentAttention | None = None
    has_masked_head: bool = False
    """BERT: two token types, and in front of the head a projection, a norm and a pooler."""
    predicted_tokens: int = 0
    """Extra layers for multi-token prediction, on the last stage."""

    @property
    def query_size(self) -> int:
        """Return the elements of a token's query, all heads."""
        if self.latent is not None:
            return self.heads * (self.latent.head_channels + self.latent.rope_channels)
        return self.heads * self.head_channels

    @property
    def key_size(self) -> int:
        """Return the elements of a token's key, all groups."""
        return self.query_size if self.latent is not None else self.kv_groups * self.head_channels

    @property
    def value_size(self) -> int:
        """Return the elements of a token's value, all groups."""
        if self.latent is not None:
            return self.heads * self.latent.value_channels
        return self.kv_groups * self.head_channels

    @property
    def attended_size(self) -> int:
        """Return the elements of a token's attention output, all heads."""
        return self.heads * (self.latent.value_channels if self.latent else self.head_channels)

    def is_expert_layer(self, layer: int) -> bool:
        """Return whether the MLP of a layer is a mixture of experts; layers count from 0."""
        if self.experts is None:
            return False
        flags = self.experts.is_expert_layer
        return flags[min(layer, len(flags) - 1)]

    def pad_vocab(self, tensor: int) -> int:
        """Return the rows of the embedding: a multiple of `vocab_multiple` x TP."""
        multiple = self.vocab_multiple * tensor
        return -(-self.vocab // multiple) * multiple


_SIZES = ("layers", "hidden", "heads", "kv_groups", "head_channels", "ffn", "vocab", "vocab_multiple")


def check_shape(shape: ModelShape) -> None:
    """Refuse sizes that no model has.

    Raises:
        UsageError: A size is out of its range, or groups do not divide the heads.
    """
    for name in _SIZES:
        _check_least(f"the model's {name}", getattr(shape, name), 1)
    for name in ("learned_positions", "predicted_tokens"):
        _check_least(f"the model's {name}", getattr(shape, name), 0)
    if shape.experts is not None:
        for name in ("experts", "top_k", "ffn"):
            _check_least(f"{name} of the mixture", getattr(shape.experts, name), 1)
        _check_least("shared_ffn of the mixture", shape.experts.shared_ffn, 0)
    if shape.latent is not None:
        for name in shape.latent.__struct_fields__:
            size = getattr(shape.latent, name)
            _check_least(f"{name} of latent attention", 1 if size is None else size, 1)
    if shape.layers > MOST_LAYERS:
        raise UsageError(f"the model has {shape.layers:,} layers; expected at most {MOST_LAYERS:,}")
    if shape.heads % shape.kv_groups:
        raise UsageError(
            f"{shape.heads} heads do not divide into {shape.kv_groups} groups of keys and values; "
            "choose a divisor of the heads"
        )


def _check_least(what: str, size: int, least: int) -> None:
    if size < least:
        raise UsageError(f"{what} is {size}; expected at least {least}")
