"""A step of PyTorch's example of FSDP2, with the example's own model, for `--factory`."""

import torch
from model import ModelArgs, Transformer
from sharded import join_group
from torch.distributed.fsdp import fully_shard

VOCABULARY, LENGTH, BATCH = 1024, 64, 32


def make_step():
    device = join_group()
    with torch.device("meta"):
        model = Transformer(
            ModelArgs(n_layers=10, n_heads=4, vocab_size=VOCABULARY, max_seq_len=LENGTH, dropout_p=0)
        )
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    model.to_empty(device=device)
    model.reset_parameters()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def train():
        tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device=device)
        loss = model(tokens).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return train
