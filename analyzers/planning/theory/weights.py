"""Parameters of one rank, tensor by tensor, in elements."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from .shape import FP32, LatentAttention, ModelShape, NumberFormat, ParallelLayout, TrainingSetup


class WeightTensor(NamedTuple):
    """Tensors of one size on one rank."""

    # `attention`, `mlp`, `experts`, `norm`, `embedding` or `head`.
    part: str
    elements: int
    copies: int = 1
    # Whether its copies are on the expert-data ranks.
    is_expert: bool = False
    # Whether a linear layer multiplies by it (fp8 keeps copies of those).
    is_matrix: bool = False

    @property
    def is_converted(self) -> bool:
        """Whether bitsandbytes keeps it in 4 bits: the weight of an `nn.Linear`.

        Routed experts are 3-D parameters without one: always in gpt-oss (transformers, modeling_gpt_oss.py,
        `GptOssExperts`), from transformers 5 on in other mixtures too (bitsandbytes, issue 1849).
        """
        return self.is_matrix and not self.is_expert


def list_layer_weights(shape: ModelShape, layout: ParallelLayout, layer: int) -> list[WeightTensor]:
    """Return the parameters of one layer on one rank; layers count from 0.

    Attention: h(q + k + v)/t + q h/t; MLP: h f (2, gated 3)/t; norms replicated. Biases of column-parallel
    projections are divided by t, of row-parallel ones not (Megatron-LM, core/tensor_parallel/layers.py).
    """
    return [
        *list_attention_weights(shape, layout),
        *list_norm_weights(shape, shape.norms),
        *list_mlp_weights(shape, layout, layer),
    ]


def list_mlp_weights(shape: ModelShape, layout: ParallelLayout, layer: int) -> list[WeightTensor]:
    """Return the parameters of a layer's MLP or of its experts on one rank."""
    if shape.experts is not None and shape.is_expert_layer(layer):
        experts = shape.experts
        local = experts.experts // layout.expert
        weights = [WeightTensor("mlp", experts.experts * shape.hidden)]
        if shape.has_router_bias:
            weights.append(WeightTensor("mlp", experts.experts))
        weights += _list_mlp(shape, experts.ffn, layout.expert_shards, "experts", local)
        if experts.shared_ffn:
            weights += _list_mlp(shape, experts.shared_ffn, layout.tensor, "mlp")
        return weights
    return _list_mlp(shape, shape.ffn, layout.tensor, "mlp")


class AdaptedLinear(NamedTuple):
    """A linear layer with adapters: the elements of a token that enter and leave it, on one rank."""

    entering: int
    leaving: int


def list_adapted(shape: ModelShape, layout: ParallelLayout, layer: int) -> list[AdaptedLinear]:
    """Return the linear layers of one layer that get adapters: all but those of routed experts.

    Query, key and value, and the halves of a gated MLP, are layers of their own (transformers, PEFT).
    """
    tensor = layout.tensor
    groups = max(1, shape.kv_groups // tensor) * shape.head_channels
    if shape.latent is not None:
        latent = shape.latent
        expanded = shape.heads * (latent.head_channels + latent.value_channels) // tensor
        query_in = latent.query_rank or shape.hidden
        sizes = [
            (query_in, shape.query_size // tensor),
            (shape.hidden, latent.key_value_rank + latent.rope_channels),
            (latent.key_value_rank, expanded),
        ]
        if latent.query_rank is not None:
            sizes.append((shape.hidden, latent.query_rank))
    else:
        sizes = [(shape.hidden, shape.query_size // tensor), (shape.hidden, groups), (shape.hidden, groups)]
    sizes.append((shape.attended_size // tensor, shape.hidden))
    ffn = shape.ffn
    if shape.experts is not None and shape.is_expert_layer(layer):
        ffn = shape.experts.shared_ffn
    if ffn:
        sizes += [(shape.hidden, ffn // tensor)] * (2 if shape.is_gated else 1)
        sizes.append((ffn // tensor, shape.hidden))
    return [AdaptedLinear(*each) for each in sizes]


def list_adapter_weights(
    shape: ModelShape, layout: ParallelLayout, layer: int, rank: int
) -> list[WeightTensor]:
    """Return the adapters of one layer: a matrix into the rank and one out of it for each linear layer."""
    sizes = [size for each in list_adapted(shape, layout, layer) for size in each]
    return [WeightTensor("adapters", rank * size) for size in sizes]


def list_attention_weights(shape: ModelShape, layout: ParallelLayout) -> list[WeightTensor]:
    if shape.latent is not None:
        return _list_latent(shape, shape.latent, layout.tensor)
    # With fewer groups than ranks each rank holds a copy of one group.
    groups = max(1, shape.kv_groups // layout.tensor)
    width = (shape.heads // layout.tensor + 2 * groups) * shape.head_channels
    weights = [
        _matrix("attention", shape.hidden * width),
        _matrix("attention", shape.query_size // layout.tensor * shape.hidden),
    ]
    if shape.has_linear_bias or shape.has_qkv_bias:
        weights.append(WeightTensor("attention", width))
    if shape.has_linear_bias:
        weights.append(WeightTensor("attention", shape.hidden))
    if shape.has_sinks:
        weights.append(WeightTensor("attention", shape.heads // layout.tensor))
    if shape.has_query_key_norm:
        weights.append(WeightTensor("norm", shape.head_channels, 2))
    return weights


def _list_latent(shape: ModelShape, latent: LatentAttention, tensor: int) -> list[WeightTensor]:
    query_in = latent.query_rank or shape.hidden
    expanded = shape.heads * (latent.head_channels + latent.value_channels)
    weights = [
        _matrix("attention", query_in * shape.query_size // tensor),
        _matrix("attention", shape.hidden * (latent.key_value_rank + latent.rope_channels)),
        _matrix("attention", latent.key_value_rank * expanded // tensor),
        _matrix("attention", shape.attended_size // tensor * shape.hidden),
        WeightTensor("norm", latent.key_value_rank),
    ]
    if latent.query_rank is not None:
        weights.append(_matrix("attention", shape.hidden * latent.query_rank))
        weights.append(WeightTensor("norm", latent.query_rank))
    return weights


def _list_mlp(shape: ModelShape, ffn: int, shards: int, part: str, count: int = 1) -> list[WeightTensor]:
    wide = ffn * (2 if shape.is_gated else 1) // shards
    is_expert = part == "experts"
    weights = [
        WeightTensor(part, shape.hidden * wide, count, is_expert, is_matrix=True),
        WeightTensor(part, shape.hidden * ffn // shards, count, is_expert, is_matrix=True),
    ]
    if shape.has_linear_bias:
        weights.append(WeightTensor(part, wide, count, is_expert))
        weights.append(WeightTensor(part, shape.hidden, count, is_expert))
    return weights


def list_norm_weights(shape: ModelShape, count: int) -> list[WeightTensor]:
    return [WeightTensor("norm", shape.hidden, count * (2 if shape.has_norm_bias else 1))]


def list_stage_weights(
    shape: ModelShape, layout: ParallelLayout, layers: list[int], *, is_first: bool, is_last: bool
) -> list[WeightTensor]:
    """Return the parameters of one pipeline rank: its layers, and what is outside of layers."""
    weights = [tensor for layer in layers for tensor in list_layer_weights(shape, layout, layer)]
    return weights + list_outside_weights(shape, layout, is_first=is_first, is_last=is_last)


def list_outside_weights(
    shape: ModelShape, layout: ParallelLayout, *, is_first: bool, is_last: bool
) -> list[WeightTensor]:
    """Return the parameters of one pipeline rank that belong to no layer of it.

    The embedding, V h / t, is on the first stage; the head, as large, on the last, tied or not: the last
    stage keeps a copy of a tied weight, unless it is the first. Learned positions are replicated.
    """
    weights: list[WeightTensor] = []
    rows = shape.pad_vocab(layout.tensor) // layout.tensor
    if is_first:
        weights.append(WeightTensor("embedding", rows * shape.hidden))
        positions = shape.learned_positions + 2 * shape.has_masked_head
        if positions:
            weights.append(WeightTensor("embedding", positions * shape.hidden))
    if not is_last:
        return weights
    if not (is_first and shape.is_tied):
        weights.append(_matrix("head", rows * shape.hidden)._replace(is_matrix=False))
    if shape.predicted_tokens and not is_first and not shape.is_tied:
        weights.append(WeightTensor("embedding", rows * shape.hidden))
    weights += list_norm_weights(shape, 1)
    if shape.has_masked_head:
        weights += _list_masked_head(shape, rows)
    return weights + _list_predictions(shape, layout)


def _list_masked_head(shape: ModelShape, rows: int) -> list[WeightTensor]:
    """Return BERT's projection before its head, the pooler, and the classes of next sentences.

    All but the head's bias are replicated (Megatron-LM, core/models/bert/).
    """
    hidden = shape.hidden
    dense = [WeightTensor("head", hidden * hidden, 2), WeightTensor("head", hidden, 2)]
    return [
        *dense,
        *list_norm_weights(shape, 1),
        WeightTensor("head", rows),
        WeightTensor("head", 2 * hidden + 2),
    ]


def _list_predictions(shape: ModelShape, layout: ParallelLayout) -> list[WeightTensor]:
    """Return the layers of multi-token prediction: one layer, three norms and a 2h x h projection each."""
    weights: list[WeightTensor] = []
    for _ in range(shape.predicted_tokens):
        weights += list_layer_weights(shape, layout, shape.layers - 1)
        weights += list_norm_weights(shape, 3)
        weights.append(_matrix("mlp", 2 * shape.hidden * shape.hidden // layout.tensor))
    return weights


def _matrix(part: str, elements: int) -> WeightTensor:
    return WeightTensor(part, elements, is_matrix=True)


def count_elements(weights: list[WeightTensor]) -> int:
    return sum(tensor.elements * tensor.copies for tensor in weights)


def count_parameters(shape: ModelShape) -> int:
    """Return the parameters of the whole model, the vocabulary padded as without tensor parallelism."""
    whole = ParallelLayout()
    layers = list(range(shape.layers))
    return count_elements(list_stage_weights(shape, whole, layers, is_first=True, is_last=True))


# Bytes that parameters cost on one rank: weights, gradients, master weights, moments, and how they shard.


# bitsandbytes keeps moments of smaller tensors in fp32 (optim/optimizer.py, min_8bit_size).
LEAST_8BIT = 4096
# Elements that share a scale in NF4, and scales that share one in turn (bitsandbytes, functional.py).
NF4_BLOCK = 64
NF4_SCALES = 256


class StateBytes(msgspec.Struct, frozen=True, kw_only=True):
    weights: int = 0
    gradients: int = 0
    master_weights: int = 0
    optimizer: int = 0
    # fp32 gradients between the optimizer's step and the next step.
    gradient_copies: int = 0
    # Weights once more in fp8, as they are and transposed.
    fp8_copies: int = 0
    # What the allocator adds: every tensor is a multiple of 512 bytes.
    rounding: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, name) for name in self.__struct_fields__)


def count_states(weights: Sequence[WeightTensor], layout: ParallelLayout, setup: TrainingSetup) -> StateBytes:
    """Return the bytes of the states of one rank's parameters.

    Stage 1 divides master weights and moments by the data ranks, 2 gradients too, 3 weights too (ZeRO,
    arXiv 1910.02054, section 5). Data ranks are DP x CP / instances for dense parameters, and the copies of
    an expert / instances for routed ones (Megatron-LM, core/parallel_state.py: the partial groups).
    """
    dense = layout.data * layout.context // setup.optimizer_instances or 1
    routed = layout.expert_data // setup.optimizer_instances or 1
    total = _Sum()
    for tensor in weights:
        total.add(tensor, setup, routed if tensor.is_expert else dense)
    return total.as_bytes()


def count_trained(
    weights: Sequence[WeightTensor],
    adapters: Sequence[WeightTensor],
    layout: ParallelLayout,
    setup: TrainingSetup,
) -> StateBytes:
    """Return the bytes of the states of some parameters: frozen ones have no others where adapters train."""
    if not setup.adapter_rank:
        return count_states(weights, layout, setup)
    frozen = NumberFormat(
        weight_bytes=setup.numbers.weight_bytes, gradient_bytes=0, master_bytes=0, moment_bytes=0
    )
    moments = 2 if setup.numbers.moment_block else FP32.moment_bytes
    trained = msgspec.structs.replace(
        FP32,
        # None of the optimizer is here where it is offloaded.
        moment_bytes=moments if setup.numbers.moment_bytes else 0,
        moment_block=setup.numbers.moment_block,
    )
    parts = [
        count_states(of, layout, msgspec.structs.replace(setup, numbers=numbers, has_nf4_weights=is_small))
        for of, numbers, is_small in ((weights, frozen, setup.has_nf4_weights), (adapters, trained, False))
    ]
    return sum_states([(part, 1) for part in parts])


def sum_states(shares: Sequence[tuple[StateBytes, int]]) -> StateBytes:
    """Sum the states of parts of a rank, each with how often it is there."""
    names = StateBytes.__struct_fields__
    return StateBytes(**{name: sum(getattr(part, name) * times for part, times in shares) for name in names})


def share_states(parameters: int, ranks: int, stage: int, numbers: NumberFormat) -> float:
    """Return the bytes of model states a rank holds for so many parameters under a ZeRO stage."""
    split = [ranks if stage >= least else 1 for least in (3, 2, 1, 1)]
    sizes = (numbers.weight_bytes, numbers.gradient_bytes, numbers.master_bytes, numbers.moment_bytes)
    return sum(parameters * size / parts for size, parts in zip(sizes, split, strict=True))


class _Sum:
    def __init__(self) -> None:
        self._sums = dict.fromkeys(StateBytes.__struct_fields__, 0)

    def add(self, tensor: WeightTensor, setup: TrainingSetup, ranks: int) -> None:
        numbers = setup.numbers
        stage = setup.zero_stage
        weight = 1 if setup.has_fp8_weights and tensor.is_matrix else numbers.weight_bytes
        if setup.has_nf4_weights and tensor.is_converted:
            self._add_nf4(tensor, ranks if stage >= 3 else 1)
        else:
            self._add("weights", tensor, weight, ranks if stage >= 3 else 1)
        self._add("gradients", tensor, numbers.gradient_bytes, ranks if stage >= 2 else 1, is_one_buffer=True)
        shards = ranks if stage >= 1 else 1
        self._add("master_weights", tensor, numbers.master_bytes, shards)
        moments = numbers.moment_bytes
        if tensor.is_matrix and numbers.matrix_moment_bytes is not None:
            moments = numbers.matrix_moment_bytes
        if numbers.moment_block and tensor.elements < LEAST_8BIT:
            moments = FP32.moment_bytes
        elif numbers.moment_block:
            self._add_exact(
                "optimizer", tensor, 2 * 4 * -(-tensor.elements // (shards * numbers.moment_block))
            )
        self._add("optimizer", tensor, moments // 2, shards, copies=2)
        self._add("gradient_copies", tensor, numbers.gradient_copy_bytes, shards)
        if setup.is_fp8 and tensor.is_matrix:
            # The weight itself is one of the copies where it is kept in fp8.
            self._add("fp8_copies", tensor, 1, 1, copies=setup.fp8_copies - setup.has_fp8_weights)

    def _add(
        self,
        name: str,
        tensor: WeightTensor,
        element_bytes: int,
        shards: int,
        *,
        copies: int = 1,
        is_one_buffer: bool = False,
    ) -> None:
        exact = -(-tensor.elements // shards) * element_bytes
        self._sums[name] += exact * tensor.copies * copies
        if shards == 1 and not is_one_buffer:
            self._sums["rounding"] += (round_up(exact) - exact) * tensor.copies * copies

    def _add_nf4(self, tensor: WeightTensor, shards: int) -> None:
        """4 bits an element, a scale of 8 bits for 64 elements, and one of 4 bytes for 256 such scales."""
        elements = -(-tensor.elements // shards)
        scales = -(-elements // NF4_BLOCK)
        self._add_exact("weights", tensor, -(-elements // 2) + scales + 4 * -(-scales // NF4_SCALES))

    def _add_exact(self, name: str, tensor: WeightTensor, size_bytes: int) -> None:
        self._sums[name] += size_bytes * tensor.copies

    def as_bytes(self) -> StateBytes:
        return StateBytes(**self._sums)


# Memory that no tensor of the model needs: workspaces of libraries, retained buffers, rounding.

MIB = 1024**2
# PyTorch's caching allocator gives out multiples of this (c10/core/AllocatorConfig.h, kMinBlockSize).
BLOCK_BYTES = 512
# cuBLAS gets a workspace for each thread that calls it: the one that runs forward, and autograd's.
GEMM_THREADS = 2
# PyTorch's default but on Hopper, :4096:2:16:8 (aten/src/ATen/cuda/CublasHandlePool.cpp).
USUAL_WORKSPACE_BYTES = 2 * 4 * MIB + 8 * 16 * 1024
# Its default at compute capability 9.0 alone; CUBLAS_WORKSPACE_CONFIG=:4096:8 asks for as much.
HOPPER_WORKSPACE_BYTES = 32 * MIB
# Workspace of Transformer Engine's GEMM before compute capability 9 (get_cublas_workspace_size_bytes).
ENGINE_AMPERE_BYTES = 4 * MIB
ENGINE_HOPPER_BYTES = 32 * MIB
# Hidden states that a pipeline rank holds in addition to those saved for backward: received, its gradient,
# sent.
RETAINED_TENSORS = 3


def round_up(size_bytes: int) -> int:
    """Return the bytes that the allocator counts for a tensor: a multiple of 512."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


def count_workspaces(setup: TrainingSetup) -> int:
    """Return the bytes of library workspaces that stay allocated after the first step."""
    is_large = setup.gpu in ("h100", "h200") or setup.is_deterministic
    gemm = HOPPER_WORKSPACE_BYTES if is_large else USUAL_WORKSPACE_BYTES
    engine = ENGINE_AMPERE_BYTES if setup.gpu == "a100" else ENGINE_HOPPER_BYTES
    return GEMM_THREADS * gemm + (setup.engine_workspaces * engine if setup.has_transformer_engine else 0)


def count_retained(
    shape: ModelShape,
    layout: ParallelLayout,
    setup: TrainingSetup,
    pieces: int,
    *,
    is_first_between_steps: bool = False,
) -> int:
    """Return bytes of hidden states that outlive a micro-batch on one pipeline rank.

    One is s b h / (CP x shards of the norms) elements. Between steps an interleaved rank holds two for
    each of its pieces and one more. The two are what a piece has received and its gradient; the first piece
    of the model receives none (Megatron-LM, core/pipeline_parallel/p2p_communication.py, recv_forward).
    """
    if layout.pipeline == 1:
        return 0
    tokens = setup.seq_length * setup.micro_batch_size // layout.context // layout.norm_shards
    count = 2 * pieces + RETAINED_TENSORS - 2 - 2 * is_first_between_steps
    return count * tokens * shape.hidden * setup.numbers.compute_bytes


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
