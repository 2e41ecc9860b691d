"""ZeroRedundancyOptimizer of PyTorch around DDP."""

import torch
from outcome import report
from sharded import Model, compute_loss, make_tokens, process_group
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def main():
    with process_group() as device:
        torch.manual_seed(0)
        model = DistributedDataParallel(Model().to(device), gradient_as_bucket_view=True)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
        for number in range(STEPS):
            loss = compute_loss(model, make_tokens(device, number))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(f"loss {loss.item():.4f}")
        report(loss, STEPS)


if __name__ == "__main__":
    main()
