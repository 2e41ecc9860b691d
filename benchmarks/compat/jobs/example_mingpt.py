"""A step of PyTorch's minGPT, with the example's own model and trainer, for `--factory`."""

import torch
from model import GPT, GPTConfig, OptimizerConfig, create_optimizer
from sharded import join_group
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, LENGTH, BATCH = 52, 32, 64


def make_step():
    device = join_group()
    model = GPT(GPTConfig(n_layer=2, n_head=4, n_embd=64, vocab_size=VOCABULARY, block_size=LENGTH)).to(
        device
    )
    optimizer = create_optimizer(model, OptimizerConfig())
    replicated = DistributedDataParallel(model, device_ids=[device.index])
    scaler = torch.amp.GradScaler(device.type)

    def train():
        tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device=device)
        with torch.amp.autocast(device_type=device.type, dtype=torch.float16):
            _, loss = replicated(tokens, tokens)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(replicated.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return train
