"""Sizes of the LLaMAs that are trained by name; pure data, available without torch."""

from __future__ import annotations

import msgspec


class LlamaSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a decoder of the LLaMA family; embeddings are not tied."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    # Longest sequence that it is meant for; rotary embeddings set no limit of their own.
    max_positions: int

    @property
    def head_size(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def layer_parameters(self) -> int:
        """Parameters of one decoder layer: attention, SwiGLU and two norms."""
        key_and_value = 2 * self.num_kv_heads * self.head_size
        attention = self.hidden_size * (2 * self.hidden_size + key_and_value)
        return attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size

    @property
    def parameters(self) -> int:
        """Two embeddings, the layers and the last norm."""
        embeddings = 2 * self.vocab_size * self.hidden_size
        return embeddings + self.num_layers * self.layer_parameters + self.hidden_size


def _size(
    vocab: int, hidden: int, inner: int, layers: int, heads: int, shared: int, longest: int
) -> LlamaSizes:
    return LlamaSizes(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=shared,
        max_positions=longest,
    )


# From the smallest to the largest.
LLAMA_PRESETS = {
    "tiny": _size(1000, 64, 128, 2, 4, 2, 512),
    "small": _size(32000, 512, 1024, 4, 8, 4, 2048),
    "medium": _size(32000, 1024, 2048, 8, 16, 8, 2048),
    "1b": _size(32000, 2048, 5504, 22, 32, 4, 4096),
    "3b": _size(32000, 3200, 8640, 26, 32, 32, 4096),
}
