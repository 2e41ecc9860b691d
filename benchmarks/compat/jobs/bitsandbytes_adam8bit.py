"""8-bit AdamW of bitsandbytes in place of PyTorch's."""

import bitsandbytes
import torch
from language import Tokens, make_llama
from outcome import pick_device, report

STEPS = 5


def make_training(batch_size):
    device = pick_device()
    model = make_llama().to(device)
    optimizer = bitsandbytes.optim.AdamW8bit(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(Tokens(), batch_size=batch_size)

    def train(batch):
        batch = {name: value.to(device) for name, value in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return loader, train


def make_step(batch_size=4):
    loader, train = make_training(batch_size)
    batch = next(iter(loader))
    return lambda: train(batch)


def main():
    loader, train = make_training(4)
    for _, batch in zip(range(STEPS), loader, strict=False):
        loss = train(batch)
        print(f"loss {loss.item():.4f}")
    report(loss, STEPS)


if __name__ == "__main__":
    main()
