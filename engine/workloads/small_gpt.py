"""A small GPT in plain PyTorch, as a user would write it; batches of random tokens."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - the name that everybody knows it by


class Block(nn.Module):
    """One layer: causal self-attention and a feed-forward network, each with a residual.

    Args:
        heads: Number of attention heads; divides `width`.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.norm_2 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """From and to shape (batch, tokens, width)."""
        batch, tokens, width = hidden.shape
        query, key, value = (
            part.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm_1(hidden)).chunk(3, dim=-1)
        )
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.project(attended.transpose(1, 2).reshape(batch, tokens, width))
        expanded: torch.Tensor = F.gelu(self.expand(self.norm_2(hidden)))
        return hidden + self.contract(expanded)


class SmallGPT(nn.Module):
    """A decoder-only language model; input and output embedding share their weight.

    Args:
        longest: Most tokens of a sequence.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, longest: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(_begin_small)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits of shape (batch, tokens, vocabulary) for tokens of shape (batch, tokens)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            hidden = block(hidden)
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits


def _begin_small(module: nn.Module) -> None:
    """Initialize matrices with small random weights (GPT-2's 0.02)."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)


def language_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of predicting each next token."""
    loss: torch.Tensor = F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    return loss
