"""A loop of Accelerate with accumulation, bf16, clipping and `gather_for_metrics`."""

import torch
from accelerate import Accelerator
from language import Tokens, make_gpt2
from outcome import report

STEPS = 8


def make_training(batch_size):
    accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16")
    model = make_gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(Tokens(), batch_size=batch_size, shuffle=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    model.train()

    def train(batch):
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        return loss

    return accelerator, loader, train


def make_step(batch_size=4):
    _, loader, train = make_training(batch_size)
    batches = [batch for _, batch in zip(range(2), loader, strict=False)]

    def step():
        train(batches[0])
        return train(batches[1])

    return step


def main():
    torch.manual_seed(0)
    accelerator, loader, train = make_training(4)
    total = 0.0
    for _, batch in zip(range(STEPS), loader, strict=False):
        loss = train(batch)
        total += accelerator.gather_for_metrics(loss.detach().float()).mean().item()
        accelerator.print(f"loss {loss.item():.4f}")
    report(total / STEPS, STEPS // 2)


if __name__ == "__main__":
    main()
