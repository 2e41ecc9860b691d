"""LoRA of PEFT in a loop of one's own: most parameters are frozen."""

import torch
from language import Tokens, make_llama
from outcome import pick_device, report
from peft import LoraConfig, get_peft_model

STEPS = 5


def make_training(batch_size):
    device = pick_device()
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(make_llama(), config).to(device)
    model.print_trainable_parameters()
    optimizer = torch.optim.AdamW((it for it in model.parameters() if it.requires_grad), lr=1e-3)
    loader = torch.utils.data.DataLoader(Tokens(), batch_size=batch_size)

    def train(batch):
        batch = {name: value.to(device) for name, value in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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
