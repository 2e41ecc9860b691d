"""A training with DeepSpeed: the engine, its configuration as a dictionary, an optimizer of PyTorch."""

import deepspeed
import torch
import torch.distributed as dist
from outcome import pick_device, report
from sharded import Model, compute_loss, make_tokens

STEPS = 4


def train(stage, **options):
    device = pick_device()
    torch.manual_seed(0)
    model = Model()
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, **options},
        "steps_per_print": 1000,
    }
    engine, _, _, _ = deepspeed.initialize(
        model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), config=config
    )
    for number in range(STEPS):
        loss = compute_loss(engine, make_tokens(device, number))
        engine.backward(loss)
        engine.step()
        print(f"loss {loss.item():.4f}")
    mean = loss.detach().float()
    dist.all_reduce(mean)
    report(mean / dist.get_world_size(), STEPS)
    engine.destroy()
    dist.destroy_process_group()
