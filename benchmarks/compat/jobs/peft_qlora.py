"""QLoRA of PEFT: a model whose frozen weights have 4 bits of bitsandbytes (NF4), and adapters in bf16."""

import tempfile

import torch
from language import Tokens, make_llama
from outcome import pick_device, report
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

STEPS = 5


def make_training(batch_size):
    device = pick_device()
    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    with tempfile.TemporaryDirectory() as folder:
        make_llama().save_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(
            folder, quantization_config=quantization, device_map={"": device}, dtype=torch.bfloat16
        )
    model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    torch.manual_seed(0)
    config = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, config)
    model.print_trainable_parameters()
    optimizer = torch.optim.AdamW((it for it in model.parameters() if it.requires_grad), lr=1e-3)
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
