"""Tensor parallelism of PyTorch with a sharded sequence, as in its example; the mesh comes first."""

import torch
from outcome import pick_device, report
from sharded import VOCABULARY, WIDTH
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

STEPS = 4


def make_training(device):
    mesh = init_device_mesh(device.type, (2,))
    torch.manual_seed(0)
    model = nn.Sequential()
    model.add_module("embedding", nn.Embedding(VOCABULARY, WIDTH))
    model.add_module("norm", nn.LayerNorm(WIDTH))
    model.add_module("up", nn.Linear(WIDTH, 4 * WIDTH))
    model.add_module("activation", nn.GELU())
    model.add_module("down", nn.Linear(4 * WIDTH, WIDTH))
    model.add_module("head", nn.Linear(WIDTH, VOCABULARY))
    model = parallelize_module(
        model.to(device),
        mesh,
        {
            "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
        },
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (4, 32), generator=torch.Generator().manual_seed(1)).to(device)

    def train():
        with loss_parallel():
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train


def make_step():
    return make_training(pick_device())


def main():
    train = make_training(pick_device())
    for _ in range(STEPS):
        loss = train()
    full = loss.full_tensor() if hasattr(loss, "full_tensor") else loss
    report(full, STEPS)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
