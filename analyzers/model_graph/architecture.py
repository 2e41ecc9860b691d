"""The sizes of a transformer that its parameters, FLOPs and activations follow from."""

from typing import Literal

import msgspec

from ...engine.errors import UsageError

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
    experts: int = 0
    experts_per_token: int = 0

    @property
    def groups(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        """Width of one head."""
        return self.head_size or self.hidden // self.heads

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
    for name in model.__struct_fields__[1:]:
        if getattr(model, name) > LARGEST:
            raise UsageError(f"{what}: {name} is {getattr(model, name)}, expected at most {LARGEST:,}")
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
    if model.experts and not 1 <= model.experts_per_token <= model.experts:
        raise UsageError(
            f"{what}: {model.experts_per_token} experts a token of {model.experts}: expected 1 to all"
        )
    return model
