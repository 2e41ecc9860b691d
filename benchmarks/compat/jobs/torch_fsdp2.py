"""FSDP2 of PyTorch: made on meta, mixed precision, checkpointing, clipping, a gathered state dict."""

import torch
from outcome import report
from sharded import Block, Model, compute_loss, join_group, make_tokens, process_group
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

STEPS = 4


def make_training(device):
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    with torch.device("meta"):
        model = Model()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device=device)
    for number, parameter in enumerate(model.parameters()):
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        generator = torch.Generator().manual_seed(number)
        local.data.copy_(torch.randn(local.shape, generator=generator) * 0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def train(number=0):
        loss = compute_loss(model, make_tokens(device, number))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, train


def make_step():
    return make_training(join_group())[1]


def main():
    with process_group() as device:
        model, train = make_training(device)
        for number in range(STEPS):
            loss = train(number)
            print(f"loss {loss.item():.4f}")
        report(loss, STEPS)
        get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


if __name__ == "__main__":
    main()
