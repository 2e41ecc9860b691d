"""A compact LLaMA in plain PyTorch: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

It has no buffers, which Opacus refuses next to trainable weights, and only attention's kernel depends on the
device, so that a simulated card counts what CUDA would.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name that everybody knows it by
from torch.utils.checkpoint import checkpoint

from .llama_presets import LlamaSizes

ROTARY_BASE = 10_000.0
NORM_EPSILON = 1e-6


class RMSNorm(nn.Module):
    """Root mean square norm: computed in float32, returned in the type of the input."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def normalize(self, hidden: torch.Tensor) -> torch.Tensor:
        """Scale to a root mean square of one, not yet weighted; the shape stays."""
        wide = hidden.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + NORM_EPSILON)
        normal: torch.Tensor = (wide * scale).to(hidden.dtype)
        return normal

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.weight * self.normalize(hidden)


class Attention(nn.Module):
    """Causal self-attention with rotary positions; groups of query heads share one key and value head."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        hidden = sizes.hidden_size
        shared = sizes.num_kv_heads * sizes.head_size
        self.head_size = sizes.head_size
        self.group = sizes.num_heads // sizes.num_kv_heads
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.output = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, shared, bias=False)
        self.value = nn.Linear(hidden, shared, bias=False)

    def forward(self, hidden: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """From and to shape (batch, tokens, hidden)."""
        query, key = (_rotate(self._split(layer(hidden)), turns) for layer in (self.query, self.key))
        key = self._share(key)
        value = self._share(self._split(self.value(hidden)))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        merged: torch.Tensor = self.output(attended.transpose(1, 2).reshape(hidden.shape))
        return merged

    def _split(self, projected: torch.Tensor) -> torch.Tensor:
        """(batch, tokens, heads x size) becomes (batch, heads, tokens, size)."""
        return projected.unflatten(-1, (-1, self.head_size)).transpose(1, 2)

    def _share(self, heads: torch.Tensor) -> torch.Tensor:
        """Repeat each key or value head for its group of query heads."""
        return heads if self.group == 1 else heads.repeat_interleave(self.group, dim=1)


class FeedForward(nn.Module):
    """SwiGLU: a gate and a way up, multiplied, and a way down."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        hidden = sizes.hidden_size
        inner = sizes.intermediate_size
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(F.silu(self.gate(hidden)) * self.up(hidden))
        return result


class Block(nn.Module):
    """One decoder layer: attention and feed-forward, each after a norm and with a residual."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(sizes.hidden_size)
        self.feed_norm = RMSNorm(sizes.hidden_size)
        self.attention = Attention(sizes)
        self.feed_forward = FeedForward(sizes)

    def forward(self, hidden: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """From and to shape (batch, tokens, hidden)."""
        hidden = hidden + self.attention(self.attention_norm(hidden), turns)
        result: torch.Tensor = hidden + self.feed_forward(self.feed_norm(hidden))
        return result


class Llama(nn.Module):
    """A decoder-only language model.

    Args:
        is_checkpointed: Recompute activations of blocks in the backward pass.
    """

    def __init__(self, sizes: LlamaSizes, *, is_checkpointed: bool = False) -> None:
        super().__init__()
        self.sizes = sizes
        self.is_checkpointed = is_checkpointed
        self.embedding = nn.Embedding(sizes.vocab_size, sizes.hidden_size)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.num_layers))
        self.norm = RMSNorm(sizes.hidden_size)
        self.head = nn.Linear(sizes.hidden_size, sizes.vocab_size, bias=False)
        self.apply(_begin_small)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (batch, tokens, vocabulary) for tokens of shape (batch, tokens)."""
        hidden = self.embedding(tokens)
        turns = make_turns(tokens.shape[1], self.sizes.head_size, hidden)
        for block in self.blocks:
            if self.is_checkpointed and torch.is_grad_enabled():
                # The reentrant kind runs hooks once, as Opacus needs it: its first pass has no grad.
                hidden = checkpoint(block, hidden, turns, use_reentrant=True)
            else:
                hidden = block(hidden, turns)
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits


def make_turns(tokens: int, size: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine of each position's rotation, both of shape (tokens, size)."""
    pairs = torch.arange(0, size, 2, dtype=torch.float32, device=like.device) / size
    positions = torch.arange(tokens, dtype=torch.float32, device=like.device)
    angles = torch.outer(positions, ROTARY_BASE**-pairs).repeat(1, 2)
    return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _rotate(heads: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Turn each pair (i, i + size/2) of a head by its position's angle."""
    cosine, sine = turns
    first, second = heads.chunk(2, dim=-1)
    return heads * cosine + torch.cat((-second, first), dim=-1) * sine


def _begin_small(module: nn.Module) -> None:
    """Initialize matrices with small random weights (LLaMA's 0.02)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
