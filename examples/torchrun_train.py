"""Trains a small model by DDP, for a look at its ranks; the last one gets longer sequences than the others.

With GPUs:      vramscope run -- torchrun --standalone --nproc-per-node 2 examples/torchrun_train.py
Without any:    vramscope run --simulate 2GiB --device-count 2 -- torchrun --standalone --nproc-per-node 2 …
"""

import argparse
import os
import time

import torch
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, WIDTH, LAYERS = 2048, 256, 2
LENGTH = 64
"""Tokens of a sequence; the last rank gets twice as many."""


def main() -> None:
    """Train until the steps are done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    steps = parser.parse_args().steps
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = "cuda" if has_gpu else "cpu"
    torch.distributed.init_process_group("nccl" if has_gpu else "gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    layer = torch.nn.TransformerEncoderLayer(WIDTH, nhead=4, batch_first=True, dropout=0.0)
    encoder = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    embedding, head = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Linear(WIDTH, VOCABULARY)
    model = DistributedDataParallel(torch.nn.Sequential(embedding, encoder, head).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    length = 2 * LENGTH if rank == ranks - 1 else LENGTH
    for step in range(1, steps + 1):
        tokens = torch.randint(VOCABULARY, (8, length), device=device)
        logits = model(tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and step % 100 == 0:
            print(f"step {step} of {steps}", flush=True)
        time.sleep(0.05)  # a small model would be through before anybody has looked
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
