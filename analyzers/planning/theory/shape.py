"""What a transformer consists of, as far as its memory goes: sizes, not names of frameworks."""

from itertools import accumulate
from typing import Literal

import msgspec

from ....engine.errors import UsageError

# More layers than any model has; each is worked out by itself.
MOST_LAYERS = 10_000


class ExpertShape(msgspec.Struct, frozen=True, kw_only=True):
    """The mixture of experts of a model."""

    experts: int
    """Routed experts of a layer, over all ranks."""
    top_k: int
    """Experts that each token is sent to."""
    ffn: int
    """Inner size of one routed expert."""
    shared_ffn: int = 0
    """Inner size of all shared experts together; 0 where there are none."""
    is_expert_layer: tuple[bool, ...]
    """One entry a layer: whether its MLP is a mixture."""


class LatentAttention(msgspec.Struct, frozen=True, kw_only=True):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): sizes of its projections."""

    query_rank: int | None
    """Rank of the compressed query; None where the query is projected directly."""
    key_value_rank: int
    head_channels: int
    """Channels of query and key without a position."""
    rope_channels: int
    """Channels of query and key that carry the position; the key's are shared by all heads."""
    value_channels: int


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a decoder-only transformer. Elements, not bytes."""

    layers: int
    hidden: int
    heads: int
    kv_groups: int
    """Heads of keys and values: `heads` without grouped-query attention."""
    head_channels: int
    ffn: int
    """Inner size of the MLP; of one of its two halves where it is gated."""
    vocab: int
    vocab_multiple: int = 1
    """The vocabulary is padded to a multiple of this times TP."""
    learned_positions: int = 0
    """Rows of a learned position embedding; 0 where there is none."""
    has_rotary: bool = False
    """Whether query and key are rotated by their positions; read for Megatron-LM's own attention alone."""
    is_gated: bool = False
    """Whether the MLP is gated (SwiGLU): its first projection is twice as wide."""
    is_tied: bool = False
    """Whether embedding and head share one weight."""
    has_linear_bias: bool = False
    has_qkv_bias: bool = False
    has_norm_bias: bool = False
    """Whether norms have a bias (LayerNorm) or a weight alone (RMSNorm)."""
    has_query_key_norm: bool = False
    norms: int = 2
    """Norms of a layer over hidden states: four where attention and MLP have one behind them, too."""
    has_sinks: bool = False
    """Whether each head has a learned score that no key has (gpt-oss)."""
    has_router_bias: bool = False
    experts: ExpertShape | None = None
    latent: LatentAttention | None = None
    has_masked_head: bool = False
    """BERT: two token types, and in front of the head a projection, a norm and a pooler."""
    predicted_tokens: int = 0
    """Extra layers for multi-token prediction, on the last stage."""

    @property
    def query_size(self) -> int:
        """Elements of a token's query, all heads."""
        if self.latent is not None:
            return self.heads * (self.latent.head_channels + self.latent.rope_channels)
        return self.heads * self.head_channels

    @property
    def key_size(self) -> int:
        """Elements of a token's key, all groups."""
        return self.query_size if self.latent is not None else self.kv_groups * self.head_channels

    @property
    def value_size(self) -> int:
        """Elements of a token's value, all groups."""
        if self.latent is not None:
            return self.heads * self.latent.value_channels
        return self.kv_groups * self.head_channels

    @property
    def attended_size(self) -> int:
        """Elements of a token's attention output, all heads."""
        return self.heads * (self.latent.value_channels if self.latent else self.head_channels)

    def is_expert_layer(self, layer: int) -> bool:
        """Return whether the MLP of a layer is a mixture of experts; layers count from 0."""
        if self.experts is None:
            return False
        flags = self.experts.is_expert_layer
        return flags[min(layer, len(flags) - 1)]

    def pad_vocab(self, tensor: int) -> int:
        """Return the rows of the embedding: a multiple of `vocab_multiple` x TP."""
        multiple = self.vocab_multiple * tensor
        return -(-self.vocab // multiple) * multiple


_SIZES = ("layers", "hidden", "heads", "kv_groups", "head_channels", "ffn", "vocab", "vocab_multiple")


def check_shape(shape: ModelShape) -> None:
    """Refuse sizes that no model has.

    Raises:
        UsageError: A size is out of its range, or groups do not divide the heads.
    """
    for name in _SIZES:
        _check_least(f"the model's {name}", getattr(shape, name), 1)
    for name in ("learned_positions", "predicted_tokens"):
        _check_least(f"the model's {name}", getattr(shape, name), 0)
    if shape.experts is not None:
        for name in ("experts", "top_k", "ffn"):
            _check_least(f"{name} of the mixture", getattr(shape.experts, name), 1)
        _check_least("shared_ffn of the mixture", shape.experts.shared_ffn, 0)
    if shape.latent is not None:
        for name in shape.latent.__struct_fields__:
            size = getattr(shape.latent, name)
            _check_least(f"{name} of latent attention", 1 if size is None else size, 1)
    if shape.layers > MOST_LAYERS:
        raise UsageError(f"the model has {shape.layers:,} layers; expected at most {MOST_LAYERS:,}")
    if shape.heads % shape.kv_groups:
        raise UsageError(
            f"{shape.heads} heads do not divide into {shape.kv_groups} groups of keys and values; "
            "choose a divisor of the heads"
        )


def _check_least(what: str, size: int, least: int) -> None:
    if size < least:
        raise UsageError(f"{what} is {size}; expected at least {least}")


# Which rank holds what: degrees of parallelism, stages of the pipeline, and which of them are impossible.


class ParallelLayout(msgspec.Struct, frozen=True, kw_only=True):
    """Degrees of parallelism. World size = tensor x pipeline x context x data."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    expert: int = 1
    """Ranks that the routed experts are spread over."""
    expert_tensor: int | None = None
    """Ranks that share one routed expert; None: as many as `tensor`."""
    is_sequence_parallel: bool = False
    """Whether norms and dropout are split along the sequence over the tensor ranks."""
    virtual_stages: int = 1
    """Pieces of the model on each pipeline rank (interleaved schedule)."""
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    counts_embedding: bool = False
    """Whether the embedding counts as a layer when layers are split."""
    counts_loss: bool = False
    """Whether the head counts as a layer when layers are split."""
    stage_layers: tuple[int, ...] | None = None
    """Layers of each stage in order of the model, where they are chosen one by one."""

    @property
    def world_size(self) -> int:
        return self.tensor * self.pipeline * self.context * self.data

    @property
    def expert_shards(self) -> int:
        """Ranks over which one routed expert is split."""
        return self.tensor if self.expert_tensor is None else self.expert_tensor

    @property
    def expert_data(self) -> int:
        """Copies of each routed expert."""
        return max(1, self.world_size // (self.pipeline * self.expert * self.expert_shards))

    @property
    def norm_shards(self) -> int:
        """Ranks over which norms and dropout are split."""
        return self.tensor if self.is_sequence_parallel else 1


def check_layout(shape: ModelShape, layout: ParallelLayout, seq_length: int) -> None:
    """Refuse degrees that the model cannot be split by.

    Raises:
        UsageError: Which degree, what it must divide, and which value would do.
    """
    for name in ("tensor", "pipeline", "data", "context", "expert", "virtual_stages"):
        if getattr(layout, name) < 1:
            raise UsageError(f"the {name} degree is {getattr(layout, name)}; expected at least 1")
    tensor = layout.tensor
    _check_divides("TP", tensor, shape.heads, "heads")
    if shape.latent is None and shape.kv_groups >= tensor:
        _check_divides("TP", tensor, shape.kv_groups, "groups of keys and values")
    _check_divides("TP", tensor, shape.ffn, "inner columns of the MLP")
    if layout.context > 1:
        _check_divides("2 x CP", 2 * layout.context, seq_length, "tokens of a sequence")
    if layout.is_sequence_parallel:
        _check_divides("TP x CP", tensor * layout.context, seq_length, "tokens of a sequence")
    _check_experts(shape, layout)
    split_layers(shape.layers, layout)


def _check_experts(shape: ModelShape, layout: ParallelLayout) -> None:
    if shape.experts is None:
        if layout.expert > 1:
            raise UsageError(f"EP is {layout.expert}, but the model has no experts; expected 1")
        return
    _check_divides("EP", layout.expert, shape.experts.experts, "experts")
    _check_divides("expert TP", layout.expert_shards, shape.experts.ffn, "inner columns of an expert")
    ranks = layout.world_size // layout.pipeline
    _check_divides("EP x expert TP", layout.expert * layout.expert_shards, ranks, "ranks of a pipeline stage")


def _check_divides(name: str, degree: int, amount: int, what: str) -> None:
    if degree < 1 or amount % degree:
        raise UsageError(
            f"{name} = {degree} does not divide the {amount} {what}; choose a divisor of {amount}"
        )


def split_layers(layers: int, layout: ParallelLayout) -> tuple[tuple[range, ...], ...]:
    """Return, for each pipeline rank, the layers of each of its pieces; layers count from 0.

    Interleaved pieces go round: piece c of rank r is stage c x PP + r of the model (Narayanan et al.,
    arXiv 2104.04473, section 2.2).

    Raises:
        UsageError: The layers cannot be split so.
    """
    sizes = _size_stages(layers, layout)
    if sum(sizes) != layers:
        raise UsageError(f"the stages have {sum(sizes)} layers, but the model has {layers}; make them equal")
    ends = accumulate(sizes)
    pieces = [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return tuple(tuple(pieces[rank :: layout.pipeline]) for rank in range(layout.pipeline))


def _size_stages(layers: int, layout: ParallelLayout) -> list[int]:
    stages = layout.pipeline * layout.virtual_stages
    if stages > layers + 2:
        raise UsageError(f"PP x pieces = {stages} is more than the {layers} layers; choose fewer stages")
    if layout.stage_layers is not None:
        if len(layout.stage_layers) != stages:
            raise UsageError(
                f"{len(layout.stage_layers)} stages are listed; expected PP x pieces = {stages} of them"
            )
        return list(layout.stage_layers)
    if layout.first_stage_layers is not None or layout.last_stage_layers is not None:
        return _size_uneven_stages(layers, layout)
    counted = layers + layout.counts_embedding + layout.counts_loss
    if counted % stages:
        raise UsageError(
            f"{layers} layers do not divide over PP = {layout.pipeline}"
            + (f" with {layout.virtual_stages} pieces each" if layout.virtual_stages > 1 else "")
            + "; choose a divisor, or the layers of the first and last stage"
        )
    sizes = [counted // stages] * stages
    sizes[0] -= layout.counts_embedding
    sizes[-1] -= layout.counts_loss
    return sizes


def _size_uneven_stages(layers: int, layout: ParallelLayout) -> list[int]:
    """Return stage sizes where the first or last pipeline rank holds its own number of layers."""
    pieces = layout.virtual_stages
    ends = (layout.first_stage_layers, layout.last_stage_layers)
    rest = layers - sum(size for size in ends if size is not None)
    middle = layout.pipeline - sum(size is not None for size in ends)
    per_rank = [ends[0] if ends[0] is not None else 0] if ends[0] is not None else []
    if middle < 0 or rest < 0 or (middle == 0 and rest) or (middle and rest % middle):
        raise UsageError(
            f"{rest} layers remain for {middle} middle stages; choose other sizes of the first and last stage"
        )
    per_rank += [rest // middle] * middle if middle else []
    per_rank += [ends[1]] if ends[1] is not None else []
    if any(size % pieces for size in per_rank):
        raise UsageError(
            f"stages of {per_rank} layers do not divide into {pieces} pieces; choose multiples of {pieces}"
        )
    return [size // pieces for _ in range(pieces) for size in per_rank]


# How a model is trained, as far as memory goes: batch, number formats, recompute, kernels, software.

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
    """Moments of matrices inside layers, where their optimizer differs (Muon: one); None: as above."""
    gradient_copy_bytes: int = 0
    """A second gradient in fp32 from the optimizer's step until the next step begins (fp16)."""
    compute_bytes: int = 2
    """Bytes of an element of activations, and of a gathered weight."""
    moment_block: int = 0
    """Elements of a moment that share a scale of 4 bytes, where moments have 8 bits; 0: no scales."""


BF16 = NumberFormat(weight_bytes=2, gradient_bytes=4, master_bytes=4, moment_bytes=8)
BF16_GRADIENTS = NumberFormat(weight_bytes=2, gradient_bytes=2, master_bytes=4, moment_bytes=8)
FP16 = NumberFormat(weight_bytes=2, gradient_bytes=2, master_bytes=4, moment_bytes=8, gradient_copy_bytes=4)
# A model that was loaded in bf16 and is trained as it is, without a master copy.
PURE_BF16 = NumberFormat(weight_bytes=2, gradient_bytes=2, master_bytes=0, moment_bytes=4)
FP32 = NumberFormat(weight_bytes=4, gradient_bytes=4, master_bytes=0, moment_bytes=8, compute_bytes=4)
# PyTorch's fully_shard with mixed precision: the sharded weight is the master, computing is in bf16.
FP32_SHARDED = NumberFormat(weight_bytes=4, gradient_bytes=4, master_bytes=0, moment_bytes=8)


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
    """Whether one kernel joins the halves of a gated MLP; if not, both factors of their product are kept."""
    expert_capacity: float | None = None
    """Rows that each expert is padded to, as a multiple of an even share; None: as many as come."""
    gathers_experts_input: bool = False
    """Whether every rank of an expert group gets all tokens of the group, in a buffer that stays."""
    has_transformer_engine: bool = False
    engine_workspaces: int = 1
    """Workspaces that Transformer Engine keeps: one, more for grouped products and overlap."""
    is_deterministic: bool = False
    """Whether cuBLAS is bound to deterministic workspaces (CUBLAS_WORKSPACE_CONFIG=:4096:8)."""
    is_fp8: bool = False
    """Whether linear layers compute in fp8 and keep their inputs so."""
    has_fp8_weights: bool = False
    fp8_copies: int = 2
    """Copies of a matrix in fp8, in rows and in columns; one where the GPU multiplies either way."""
    gpu: Gpu = "h100"
    adapter_rank: int = 0
    """Rank of adapters (LoRA, arXiv 2106.09685) on all linear layers outside of experts; 0: no adapters.

    With them nothing else trains: the weights have neither gradients nor moments. Adapters are in fp32.
    """
    has_nf4_weights: bool = False
    """Whether frozen matrices have 4 bits and scales that are quantized, too (QLoRA, arXiv 2305.14314).

    Routed experts stay at the precision: see `WeightTensor.is_converted`.
    """


def check_setup(setup: TrainingSetup) -> None:
    """Refuse an impossible run.

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
    if setup.adapter_rank < 0:
        raise UsageError(f"the rank of adapters is {setup.adapter_rank}; expected at least 1")
    if setup.has_nf4_weights and not setup.adapter_rank:
        raise UsageError("weights of 4 bits cannot be trained; give the rank of adapters, too, such as 16")
    if setup.zero_stage not in (0, 1, 2, 3):
        raise UsageError(f"ZeRO stage {setup.zero_stage} is unknown; expected 0, 1, 2 or 3")


def count_in_flight(layout: ParallelLayout, setup: TrainingSetup, stage: int) -> int:
    """Return the most pieces of forward work whose backward pass is still to come, on one pipeline rank.

    GPipe: all m micro-batches. 1F1B: min(p - i, m) (Narayanan et al., arXiv 2006.09503, section 3.2).
    Interleaved: 2(p - i - 1) + (v - 1)g + 1 pieces, g being the micro-batches that a piece runs in a row
    (arXiv 2104.04473, section 2.2); v x m at most. One piece is one v-th of the rank's layers. p, v and m are
    of the layout and the setup; i is the stage, from 0.
    """
    pieces = layout.virtual_stages
    if setup.is_gpipe or layout.pipeline == 1:
        return setup.micro_batches * pieces if layout.pipeline > 1 else pieces
    behind = layout.pipeline - stage - 1
    if pieces == 1:
        return min(behind + 1, setup.micro_batches)
    group = setup.micro_batch_group or layout.pipeline
    return min(2 * behind + (pieces - 1) * group + 1, pieces * setup.micro_batches)
