"""A loop of Lightning Fabric in bf16."""

import torch
from language import Tokens, make_gpt2
from lightning.fabric import Fabric
from outcome import report

STEPS = 5


def make_training(batch_size):
    fabric = Fabric(precision="bf16-mixed", devices=1)
    fabric.launch()
    fabric.seed_everything(0)
    model = make_gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(Tokens(), batch_size=batch_size))

    def train(batch):
        loss = model(**batch).loss
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
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
