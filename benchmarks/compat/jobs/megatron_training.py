"""A GPT of Megatron-core with its own schedule, gradient buffers and optimizer; all of it needs CUDA.

The weights do not depend on how the model is divided, so that the loss does not either.
"""

import zlib

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed
from megatron.core.transformer import TransformerConfig
from outcome import pick_device, report

STEPS, VOCABULARY, LENGTH, MICRO_BATCHES, BATCH = 4, 256, 32, 2, 2


def make_model(device, tensor, pipeline):
    config = TransformerConfig(
        num_layers=4,
        hidden_size=64,
        num_attention_heads=4,
        tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline,
        pipeline_dtype=torch.float32,
        use_cpu_initialization=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
    )
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY,
        max_sequence_length=LENGTH,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=False,
    )
    initialise(model, tensor)
    return model.to(device), config


def initialise(model, tensor):
    """Give each matrix the numbers that it has in the whole model, however that is divided."""
    first = model.decoder.layers[0].layer_number - 1
    rank = parallel_state.get_tensor_model_parallel_rank()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            continue
        parts = name.split(".")
        if parts[:2] == ["decoder", "layers"]:
            parts[2] = str(int(parts[2]) + first)
        shape = list(parameter.shape)
        is_divided = tensor > 1 and getattr(parameter, "tensor_model_parallel", False)
        if is_divided:
            shape[parameter.partition_dim] *= tensor
        generator = torch.Generator().manual_seed(zlib.crc32(".".join(parts).encode()))
        whole = torch.randn(shape, generator=generator) * 0.02
        parameter.data.copy_(whole.chunk(tensor, parameter.partition_dim)[rank] if is_divided else whole)


def make_batches(device, number):
    generator = torch.Generator().manual_seed(number)
    while True:
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator).to(device)
        yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def forward_step(batches, model):
    tokens, labels = next(batches)
    positions = torch.arange(LENGTH, device=tokens.device).expand(BATCH, LENGTH)
    mask = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool, device=tokens.device).triu(1)
    losses = model(tokens, positions, mask, labels=labels)

    def reduce(output):
        loss = output.float().mean()
        return loss, {"loss": loss.detach().clone()}

    return losses, reduce


def run_steps(model, config, device):
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
    config.finalize_model_grads_func = finalize_model_grads
    settings = OptimizerConfig(optimizer="adam", lr=1e-3, weight_decay=0.0, clip_grad=0.0)
    optimizer = get_megatron_optimizer(settings, [model])
    run = get_forward_backward_func()
    for number in range(STEPS):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = run(
            forward_step_func=forward_step,
            data_iterator=make_batches(device, number),
            model=model,
            num_microbatches=MICRO_BATCHES,
            seq_length=LENGTH,
            micro_batch_size=BATCH,
            forward_only=False,
        )
        optimizer.step()
    # Only the last stage knows the loss.
    return torch.stack([it["loss"] for it in losses]).mean() if losses else torch.zeros((), device=device)


def train(tensor=1, pipeline=1):
    device = pick_device()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    parallel_state.initialize_model_parallel(tensor, pipeline)
    model_parallel_cuda_manual_seed(0)
    model, config = make_model(device, tensor, pipeline)
    loss = run_steps(model, config, device)
    dist.all_reduce(loss, op=dist.ReduceOp.MAX)
    report(loss, STEPS)
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()
