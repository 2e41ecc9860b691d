"""How a model is trained, as far as memory goes: batch, number formats, recompute, kernels, software."""

from typing import Literal

import msgspec

from ....engine.errors import UsageError

Recompute = Literal["none", "selective", "operations", "full"]
Attention = Literal["fused", "flash", "unfused"]
Loss = Literal["plain", "compiled", "in_place", "eager"]
Gpu = Literal["a100", "h100", "h200", "b200", "gb200", "gb300"]

GPUS: tuple[Gpu, ...] = ("a100", "h100", "h200", "b200", "gb200", "gb300")


class NumberFormat(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of one parameter in each of the states, before any of them is sharded.

    Mixed precision with Adam holds 2 + 4 + 4 + 8 (bf16 weight, fp32 gradient, fp32 master, two moments), or
    2 + 2 + 4 + 8 where gradients stay in 16 bits (Rajbhandari et al., arXiv 1910.02054, section 3.1).
    """

    weight_bytes: int
    gradient_bytes: int
    master_bytes: int
    moment_bytes: int
    """Both moments of Adam together."""
    matrix_moment_bytes: int | None = None
    """Of matrices inside of layers, where their optimizer keeps other moments (Muon: one); None: as above."""
    gradient_copy_bytes: int = 0
    """A second gradient in fp32 from the optimizer's step until the next step begins (fp16)."""
    compute_bytes: int = 2
    """Bytes of an element of activations, and of a gathered weight."""


BF16 = NumberFormat(weight_bytes=2, gradient_bytes=4, master_bytes=4, moment_bytes=8)
BF16_GRADIENTS = NumberFormat(weight_bytes=2, gradient_bytes=2, master_bytes=4, moment_bytes=8)
FP16 = NumberFormat(weight_bytes=2, gradient_bytes=2, master_bytes=4, moment_bytes=8, gradient_copy_bytes=4)
FP32 = NumberFormat(weight_bytes=4, gradient_bytes=4, master_bytes=0, moment_bytes=8, compute_bytes=4)
FP32_SHARDED = NumberFormat(weight_bytes=4, gradient_bytes=4, master_bytes=0, moment_bytes=8)
"""PyTorch's fully_shard with mixed precision: the sharded weight is the master, computing is in bf16."""


class TrainingSetup(msgspec.Struct, frozen=True, kw_only=True):
    """One training run: everything that changes its memory apart from model and layout."""

    seq_length: int
    micro_batch_size: int
    """Sequences of one micro-batch on one data-parallel rank."""
    micro_batches: int = 1
    """Micro-batches of one step on one data-parallel rank."""
    numbers: NumberFormat = BF16
    zero_stage: int = 0
    """0: nothing sharded over data ranks; 1: master weights and moments; 2: gradients too; 3: weights too."""
    keeps_gathered_weights: bool = False
    """Whether whole weights of stage 3 stay between steps (Megatron-FSDP), and not for backward alone."""
    keeps_stage_whole: bool = False
    """Whether stage 3 shards only between steps: all weights and gradients of a rank are whole within one."""
    optimizer_instances: int = 1
    """Groups of data ranks that each hold a whole set of shards."""
    attention: Attention = "fused"
    has_attention_dropout: bool = False
    has_hidden_dropout: bool = False
    has_attention_mask: bool = False
    """Whether each batch carries a mask of b x s x s bytes."""
    recompute: Recompute = "none"
    recomputed_modules: tuple[str, ...] = ("core_attn",)
    """With `selective`: which parts, by Megatron-LM's names."""
    recompute_every: int = 1
    """With `full`: one of so many layers is recomputed, the others are kept whole."""
    recompute_unit_layers: int = 1
    """With `full`: layers of one checkpoint (uniform)."""
    recomputed_layers: int | None = None
    """With `full`: only so many layers of each piece are recomputed (block); None: all."""
    is_checkpoint_sharded: bool = False
    """With `full`: the inputs that are kept are split over the tensor ranks."""
    loss: Loss = "plain"
    deferred_gradients: int = 0
    """Micro-batches whose gradient of the head waits for the end of the pipeline."""
    fuses_gradients: bool = False
    """Whether weight gradients are added into the gradient buffer by the matrix product itself."""
    is_gpipe: bool = False
    """All forward passes before the first backward pass."""
    micro_batch_group: int | None = None
    """Interleaved schedule: micro-batches that a piece runs in a row; None: as many as PP."""
    fuses_gate: bool = True
    """Whether the two halves of a gated MLP meet in one kernel; if not, one more of them is kept."""
    expert_capacity: float | None = None
    """Rows that each expert is padded to, as a multiple of an even share; None: as many as come."""
    gathers_experts_input: bool = False
    """Whether every rank of an expert group gets all tokens of the group, in a buffer that stays."""
    has_transformer_engine: bool = False
    engine_workspaces: int = 1
    """Workspaces that Transformer Engine keeps: one, more for grouped products and for overlap."""
    is_deterministic: bool = False
    """Whether cuBLAS is bound to deterministic workspaces (CUBLAS_WORKSPACE_CONFIG=:4096:8)."""
    is_fp8: bool = False
    """Whether linear layers compute in fp8 and keep their inputs so."""
    has_fp8_weights: bool = False
    fp8_copies: int = 2
    """Copies of a matrix in fp8, in rows and in columns; one where the GPU multiplies either way."""
    gpu: Gpu = "h100"


def check_setup(setup: TrainingSetup) -> None:
    """Refuse a run that cannot be.

    Raises:
        UsageError: A number is out of its range.
    """
    for name in (
        "seq_length",
        "micro_batch_size",
        "micro_batches",
        "recompute_unit_layers",
        "recompute_every",
    ):
        if getattr(setup, name) < 1:
            raise UsageError(f"{name.replace('_', ' ')} is {getattr(setup, name)}; expected at least 1")
    if setup.micro_batch_group is not None and setup.micro_batch_group < 1:
        raise UsageError(f"micro-batches in a row are {setup.micro_batch_group}; expected at least 1")
    if setup.optimizer_instances < 1:
        raise UsageError(f"optimizer instances are {setup.optimizer_instances}; expected at least 1")
    if setup.zero_stage not in (0, 1, 2, 3):
        raise UsageError(f"ZeRO stage {setup.zero_stage} is unknown; expected 0, 1, 2 or 3")
