"""The GPT of 1.6 B parameters whose step is estimated: as a factory of ours, or followed by MemTracker.

As a program it prints what MemTracker says, as JSON; argument: layers.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn import functional

Tensor: TypeAlias = Any
Trained: TypeAlias = Any
"""Of torch, which mypy does not follow."""

WIDTH, HEADS, WORDS, TOKENS, BATCH = 1600, 25, 50257, 1024, 4


class Block(nn.Module):  # type: ignore[misc,no-any-unimported]
    """A layer: attention and two matrices, each after a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project, self.merge = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return what the layer makes of hidden states."""
        batch, tokens, _ = hidden.shape
        parts = self.project(self.first(hidden)).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.merge(attended.transpose(1, 2).reshape(batch, tokens, WIDTH))
        return hidden + self.narrow(functional.gelu(self.widen(self.second(hidden))))


class GPT(nn.Module):  # type: ignore[misc,no-any-unimported]
    """Embeddings, layers, a norm and a head."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        hidden = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden))


def make_step(layers: int, device: str) -> Callable[[], None]:
    """Return a step in bfloat16 with Adam; also the factory that is traced."""
    model, optimizer, tokens = make_training(layers, device)
    return lambda: step(model, optimizer, tokens)


def make_training(layers: int, device: str) -> tuple[Any, Any, Any]:
    """Return model, optimizer and data."""
    # Without storage, a module cannot be given another type once it is made.
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = GPT(layers)
        tokens = torch.zeros(BATCH, TOKENS, dtype=torch.long)
    torch.set_default_dtype(torch.float32)
    return model, torch.optim.Adam(model.parameters(), foreach=True), tokens


def step(model: Trained, optimizer: Trained, tokens: Tensor) -> None:
    """Make one step."""
    loss = functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def track(layers: int) -> dict[str, float]:
    """Return what MemTracker says of the second step, and what it took without the imports.

    Left out are Adam's counters of steps: they stay on the host where the parameters are on a GPU, and are
    among the rest where all is on the host.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    begun_s = time.perf_counter()
    with FakeTensorMode():
        training = make_training(layers, "cpu")
        tracker = MemTracker()
        tracker.track_external(*training[:2])
        with tracker:
            step(*training)
            tracker.reset_mod_stats()
            step(*training)
    peak = tracker.get_tracker_snapshot("peak")
    counters = sum(state["step"].nbytes for state in training[1].state.values())
    live = sum(figures["Total"] for figures in peak.values()) - counters
    return {"seconds": time.perf_counter() - begun_s, "requested_peak_bytes": live}


if __name__ == "__main__":
    print(json.dumps(track(int(sys.argv[1]))))
