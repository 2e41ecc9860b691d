"""Training steps that the tests trace, as a user's module would make them."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WORDS, TOKENS = 500, 32


class Block(nn.Module):  # type: ignore[misc,no-any-unimported]
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        parts = self.project(self.first(x)).view(batch, tokens, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.merge(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mix(self.second(x))


class GPT(nn.Module):  # type: ignore[misc,no-any-unimported]
    def __init__(self, layers: int, width: int = 64, is_checkpointed: bool = False) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(WORDS, width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, WORDS, bias=False)
        self.is_checkpointed = is_checkpointed

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return self.head(self.norm(x))


def make_step(model: Any, optimizer: Any, batch_size: int, is_mixed: bool = False) -> Callable[[], None]:
    def step() -> None:
        tokens = torch.zeros(batch_size, TOKENS, dtype=torch.long).to("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=is_mixed):
            loss = functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def plain(layers: int = 2, batch_size: int = 4, is_mixed: bool = False, is_checkpointed: bool = False) -> Any:
    model = GPT(layers, is_checkpointed=is_checkpointed).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer, make_step(model, optimizer, batch_size, is_mixed)


def mixed(batch_size: int = 4) -> Any:
    return plain(batch_size=batch_size, is_mixed=True)[2]


def scaled(batch_size: int = 4) -> Any:
    model, optimizer, _ = plain()
    scaler = torch.amp.GradScaler("cuda")

    def step() -> None:
        tokens = torch.zeros(batch_size, TOKENS, dtype=torch.long, device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            loss = functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def tied(batch_size: int = 4) -> Any:
    model = GPT(2)
    model.head.weight = model.embed.weight
    optimizer = torch.optim.AdamW(model.parameters())
    return make_step(model.cuda(), optimizer, batch_size)


def checkpointed(batch_size: int = 4) -> Any:
    return plain(batch_size=batch_size, is_checkpointed=True)


def private(batch_size: int = 4) -> Any:
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    model = GPT(2).cuda()
    data = DataLoader(TensorDataset(torch.zeros(16, TOKENS, dtype=torch.long)), batch_size=batch_size)
    model, optimizer, _ = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        data_loader=data,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    return make_step(model, optimizer, batch_size)


def square(device: str) -> Any:
    return nn.Linear(1024, 1024, bias=False, device=device)


def convolving(device: str) -> Any:
    layers = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 32, 3, padding=1), nn.Conv2d(32, 4, 1)
    return nn.Sequential(*layers).to(device)


def dropping_its_output() -> Any:
    def step() -> None:
        torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")

    return step


def returning_its_output() -> Any:
    return lambda: torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")


def reading(layers: int) -> Any:
    model, _, step = plain(layers)

    def read() -> Any:
        step()
        return model.head.weight.sum().item()

    return read


def choosing(layers: int) -> Any:
    model, _, step = plain(layers)

    def choose() -> Any:
        step()
        weight = model.head.weight.detach()
        return weight[weight > 0].numel()

    return choose


def broken() -> Any:
    settings: dict[str, int] = {}
    return settings["depth"]


def sharded() -> Any:
    from torch.distributed.fsdp import fully_shard

    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl")
    model = nn.Sequential(nn.Linear(64, 250), nn.ReLU(), nn.Linear(250, 63)).cuda()
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> Any:
        loss = model(torch.zeros(8, 64, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step
