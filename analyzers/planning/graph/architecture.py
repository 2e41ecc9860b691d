"""The sizes of a transformer that its parameters, FLOPs and activations follow from."""

from typing import Literal

import msgspec

from ....engine.errors import UsageError
from ..theory import ExpertShape, LatentAttention

Family = Literal["gpt", "llama", "moe", "t5", "bert"]

MOST_LAYERS = 200_000
LARGEST = 1 << 40


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """One model. Two switches say which GPT is meant: the original's has neither biases nor positions."""

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
    experts: ExpertShape | None = None
    latent: LatentAttention | None = None
    """Sizes of latent attention, which has no heads of keys and values of its own."""

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.head_size or self.hidden // self.heads

    @property
    def mixtures(self) -> tuple[bool, ...]:
        """Whether the MLP of each block is a mixture of experts; of an encoder-decoder none is."""
        if self.experts is None:
            return (False,) * self.layers
        told = self.experts.is_expert_layer[: self.layers]
        return told + told[-1:] * (self.layers - len(told))

    @property
    def width(self) -> int:
        """Width of the MLP."""
        return self.intermediate or 4 * self.hidden


def check_architecture(model: Architecture, what: str) -> Architecture:
    """Return the model if its sizes can be.

    Args:
        model: The model.
        what: What it is called in the error.

    Raises:
        UsageError: A size is below 1 or beyond what any model has, or heads do not divide.
    """
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
        raise UsageError(f"{what}: {experts.top_k} experts a token of {experts.experts}: expected 1 to all")
    if not 1 <= experts.ffn * experts.experts + experts.shared_ffn <= LARGEST:
        raise UsageError(
            f"{what}: experts of a width of {experts.ffn}: expected at least 1, and {LARGEST:,} in all"
        )
