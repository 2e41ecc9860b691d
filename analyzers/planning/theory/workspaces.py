"""Memory that no tensor of the model needs: workspaces of libraries, retained buffers, rounding."""

from .layout import ParallelLayout
from .shape import ModelShape
from .training import TrainingSetup

MIB = 1024**2
BLOCK_BYTES = 512
"""PyTorch's caching allocator hands out multiples of this (c10/core/AllocatorConfig.h, kMinBlockSize)."""
GEMM_THREADS = 2
"""cuBLAS gets a workspace for each thread that calls it: the one that runs forward, and autograd's."""
AMPERE_WORKSPACE_BYTES = 2 * 4 * MIB + 8 * 16 * 1024
"""PyTorch's default before compute capability 9, :4096:2:16:8 (aten/src/ATen/cuda/CublasHandlePool.cpp)."""
HOPPER_WORKSPACE_BYTES = 32 * MIB
"""PyTorch's default from compute capability 9 on; CUBLAS_WORKSPACE_CONFIG=:4096:8 asks for as much."""
ENGINE_AMPERE_BYTES = 4 * MIB
"""Workspace of Transformer Engine's GEMM before compute capability 9 (get_cublas_workspace_size_bytes)."""
ENGINE_HOPPER_BYTES = 32 * MIB
RETAINED_TENSORS = 3
"""Hidden states that a pipeline rank holds beside those saved for backward: received, its gradient, sent."""


def round_up(size_bytes: int) -> int:
    """Return the bytes that the allocator counts for a tensor: a multiple of 512."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def count_workspaces(setup: TrainingSetup) -> int:
    """Return the bytes of library workspaces that stay allocated after the first step."""
    is_ampere = setup.gpu == "a100"
    gemm = AMPERE_WORKSPACE_BYTES if is_ampere and not setup.is_deterministic else HOPPER_WORKSPACE_BYTES
    engine = ENGINE_AMPERE_BYTES if is_ampere else ENGINE_HOPPER_BYTES
    return GEMM_THREADS * gemm + (setup.engine_workspaces * engine if setup.has_transformer_engine else 0)


def count_retained(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, pieces: int) -> int:
    """Return bytes of hidden states that outlive a micro-batch on one pipeline rank.

    One of them: s b h / (CP x shards of the norms) elements. Between steps an interleaved rank holds two for
    each of its pieces and one more.
    """
    if layout.pipeline == 1:
        return 0
    tokens = setup.seq_length * setup.micro_batch_size // layout.context // layout.norm_shards
    return (2 * pieces + RETAINED_TENSORS - 2) * tokens * shape.hidden * setup.numbers.compute_bytes


def count_shared_buffers(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, *, has_head: bool
) -> int:
    """Return bytes of buffers that Megatron-LM keeps for all layers.

    With sequence parallelism the head gathers its input, s b h / CP elements; the all-gather dispatcher the
    tokens of all ranks of an expert group, s b h EP e / (CP t), into the same one. Attention of Megatron's
    own kernels writes its scores, b a s^2 / (TP x CP) elements, into one buffer.
    """
    tokens = setup.seq_length * setup.micro_batch_size // layout.context
    compute_bytes = setup.numbers.compute_bytes
    gathered = 0
    if has_head and layout.is_sequence_parallel and layout.tensor > 1:
        gathered = tokens * shape.hidden * compute_bytes
    group = layout.expert * layout.expert_shards
    if setup.gathers_experts_input and shape.experts is not None and group > 1:
        gathered = max(gathered, tokens // layout.norm_shards * group * shape.hidden * compute_bytes)
    if setup.has_transformer_engine or setup.attention != "unfused":
        return gathered
    scores = setup.seq_length * tokens * shape.heads // layout.tensor * compute_bytes
    return max(gathered, scores)
