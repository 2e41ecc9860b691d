"""A small transformer for the jobs of several ranks, and the begin and end of their process group."""

import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from outcome import pick_device
from torch import nn

WIDTH, LENGTH, VOCABULARY = 64, 32, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden):
        normed = self.norm(hidden)
        hidden = hidden + self.attention(normed, normed, normed, need_weights=False)[0]
        return hidden + self.down(torch.relu(self.up(hidden)))


class Model(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def make_tokens(device, number=0, batch=4):
    rank = dist.get_rank() if dist.is_initialized() else 0
    generator = torch.Generator().manual_seed(100 * number + rank)
    return torch.randint(VOCABULARY, (batch, LENGTH), generator=generator).to(device)


def compute_loss(model, tokens):
    logits = model(tokens)
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens.flatten())


@contextmanager
def process_group():
    device = pick_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def join_group():
    """As `process_group`, for the rest of the process."""
    device = pick_device()
    os.environ.setdefault("RANK", "0")
    dist.init_process_group("nccl")
    return device
