"""DistributedDataParallel of PyTorch, as in its tutorial, with `no_sync` and a reduced loss."""

import torch
import torch.distributed as dist
from outcome import report
from sharded import Model, compute_loss, join_group, make_tokens, process_group
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def make_training(device):
    torch.manual_seed(0)
    model = DistributedDataParallel(
        Model().to(device), device_ids=[device.index] if device.type == "cuda" else None
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(number=0):
        with model.no_sync():
            compute_loss(model, make_tokens(device, 10 + number)).backward()
        loss = compute_loss(model, make_tokens(device, number))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return train


def make_step():
    return make_training(join_group())


def main():
    with process_group() as device:
        train = make_training(device)
        for number in range(STEPS):
            loss = train(number)
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            print(f"loss {mean.item() / dist.get_world_size():.4f}")
        report(mean / dist.get_world_size(), STEPS)


if __name__ == "__main__":
    main()
