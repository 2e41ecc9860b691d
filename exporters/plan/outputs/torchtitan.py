"""Sections of a torchtitan configuration that say who holds what: `module_fqns_per_model_part`, degrees.

Names are those of its own decoders (`tok_embeddings`, `layers.0`, `norm`, `output`); keys are those of
torchtitan/config/job_config.py, which reads TOML. Later versions, whose configurations are Python, have the
same fields and call the head `lm_head`.
"""

from collections.abc import Iterator

from .split import PipelineSplit, check_decoder

_NAMES = {"embedding": "tok_embeddings", "layer_norm": "norm", "output_head": "output"}
_RECOMPUTE = {"none": "none", "selective": "none", "full": "full"}
"""Megatron-LM's selective recomputation drops scores of attention, which torchtitan's kernels never keep."""


def encode_torchtitan(split: PipelineSplit) -> bytes:
    """Return TOML to be put into a configuration.

    Raises:
        UsageError: The model is no decoder of like layers.
    """
    check_decoder(split, "torchtitan")
    setup = split.setup
    lines = [
        "[training]",
        f"seq_len = {setup.seq_length}",
        f"local_batch_size = {setup.micro_batch_size * setup.micro_batches}",
        f"global_batch_size = {split.global_batch}",
        "",
        "[parallelism]",
        *_list_degrees(split),
        f'pipeline_parallel_schedule = "{_name_schedule(split)}"',
        f"pipeline_parallel_microbatch_size = {setup.micro_batch_size}",
        "module_fqns_per_model_part = [",
        *_list_parts(split),
        "]",
    ]
    if split.has_degrees:
        lines += ["", "[activation_checkpoint]", f'mode = "{_RECOMPUTE[setup.recompute]}"']
    return "".join(f"{line}\n" for line in lines).encode()


def _list_parts(split: PipelineSplit) -> Iterator[str]:
    block = 0
    for stage in split.stages:
        names = []
        for kind in stage:
            names.append(_NAMES.get(kind, f"layers.{block}"))
            block += kind == "transformer_block"
        yield f"    [{', '.join(map(_quote, names))}],"


def _list_degrees(split: PipelineSplit) -> Iterator[str]:
    layout = split.layout
    zero_stage = split.setup.zero_stage
    yield f"pipeline_parallel_degree = {layout.pipeline}"
    if not split.has_degrees:
        return
    yield f"tensor_parallel_degree = {layout.tensor}"
    yield f"context_parallel_degree = {layout.context}"
    yield f"expert_parallel_degree = {layout.expert}"
    if zero_stage == 0:
        yield f"data_parallel_replicate_degree = {layout.data}"
        yield "data_parallel_shard_degree = 1"
        return
    yield f"data_parallel_shard_degree = {layout.data}"
    if zero_stage < 3:  # weights stay whole after the forward pass; gradients and states are sharded
        yield 'fsdp_reshard_after_forward = "never"'


def _name_schedule(split: PipelineSplit) -> str:
    if split.setup.is_gpipe:
        return "GPipe"
    return "Interleaved1F1B" if split.layout.virtual_stages > 1 else "1F1B"


def _quote(name: str) -> str:
    return f'"{name}"'
