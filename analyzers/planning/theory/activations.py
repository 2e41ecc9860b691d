"""Bytes that one layer saves for its backward pass, operation by operation.

Korthikanti et al., arXiv 2205.05198, section 4, count them for GPT with dropout, 16 bits and an inner size
of 4 h: s b h (34 + 5 a s / h) without parallelism, s b h (10 + 24 / t + 5 a s / (h t)) with tensor
parallelism, s b h / t (34 + 5 a s / h) with sequence parallelism too. Every entry here is one term of these
sums, for any inner size, grouped queries, gated MLPs, context parallelism, latent attention and experts.

T = s b / CP is the tokens of a rank, t its tensor ranks; norms and dropout see T / t with sequence
parallelism.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from .shape import ExpertShape, ModelShape, ParallelLayout, TrainingSetup
from .weights import (
    StateBytes,
    WeightTensor,
    count_elements,
    count_trained,
    list_adapted,
    list_adapter_weights,
    list_layer_weights,
)

# Means, deviations and sums of exponentials stay in fp32.
STATISTIC_BYTES = 4


def count_tokens(layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return the tokens of one micro-batch on one rank: s b / CP."""
    return setup.seq_length * setup.micro_batch_size // layout.context


def list_layer_activations(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int
) -> dict[str, int]:
    """Return the bytes that one layer (from 0) saves of one micro-batch, by operation.

    `recompute` of the setup decides what is dropped, except `full`, which the caller handles.
    """
    if setup.recompute == "operations":
        own, beyond = list_kept_operations(shape, layout, setup, layer, count_tokens(layout, setup))
        return {name: size for name, size in (own | beyond).items() if size}
    saved = list_operations(shape, layout, setup, layer)
    dropped = _name_dropped(shape, setup)
    return {name: size for name, size in saved.items() if name not in dropped}


def list_recomputed_activations(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int
) -> dict[str, int]:
    """Return the bytes that are dropped in one layer and recomputed for its backward pass, by operation."""
    if setup.recompute not in ("selective", "operations"):
        return {}
    saved = list_operations(shape, layout, setup, layer)
    if setup.recompute == "operations":
        own, _ = list_kept_operations(shape, layout, setup, layer, count_tokens(layout, setup))
        return {"operations": max(0, sum(saved.values()) - sum(own.values()))}
    dropped = _name_dropped(shape, setup)
    return {name: size for name, size in saved.items() if name in dropped}


def list_operations(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int
) -> dict[str, int]:
    """Return the bytes that one layer would save of one micro-batch without any recompute, by operation."""
    tokens = count_tokens(layout, setup)
    own = tokens // layout.norm_shards
    saved = {
        "attention norm input": own * shape.hidden * setup.numbers.compute_bytes,
        "attention input": own * shape.hidden * _input_bytes(setup),
        **_list_attention(shape, layout, setup, tokens),
        "attention dropout": own * shape.hidden if setup.has_hidden_dropout else 0,
        "MLP norm input": own * shape.hidden * setup.numbers.compute_bytes,
        "input of norms behind": (shape.norms - 2) * own * shape.hidden * setup.numbers.compute_bytes,
        "norm statistics": own * STATISTIC_BYTES * shape.norms * (2 if shape.has_norm_bias else 1),
    }
    if shape.experts is not None and shape.is_expert_layer(layer):
        saved |= list_expert_activations(shape, shape.experts, layout, setup, tokens)
    else:
        saved |= _list_mlp(shape, layout, setup, tokens)
    saved["MLP dropout"] = own * shape.hidden if setup.has_hidden_dropout else 0
    if setup.adapter_rank:
        saved = _adapt(saved, shape, layout, setup, layer)
    return {name: size for name, size in saved.items() if size}


# Inputs that a linear layer saves for the gradient of its weights alone.
_FOR_WEIGHTS = ("attention input", "MLP input", "activation function output", "expert input")


def _adapt(
    saved: dict[str, int], shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int
) -> dict[str, int]:
    """Return what a layer saves whose weights are frozen and have adapters.

    A frozen linear layer needs no input for its backward pass. Its adapters save it, each its own copy in
    fp32, and what is between the two (PEFT, tuners/lora/layer.py).
    """
    kept = {name: size for name, size in saved.items() if name not in _FOR_WEIGHTS}
    tokens = count_tokens(layout, setup)
    adapted = list_adapted(shape, layout, layer)
    kept["adapter input"] = tokens * 4 * sum(each.entering for each in adapted)
    kept["between adapters"] = tokens * 4 * setup.adapter_rank * len(adapted)
    return kept


def _list_attention(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, tokens: int
) -> dict[str, int]:
    """Return what attention saves: q, k, v, what its kernel keeps, and the input of the last projection."""
    tensor = layout.tensor
    size = setup.numbers.compute_bytes
    keys = max(shape.key_size // tensor, min(shape.key_size, shape.head_channels))
    values = max(shape.value_size // tensor, min(shape.value_size, shape.head_channels))
    attended = tokens * shape.attended_size // tensor
    queries = shape.query_size // tensor
    normalized = (queries + keys) * shape.has_query_key_norm
    inputs = queries + keys + values
    if setup.attention == "unfused" and not setup.has_transformer_engine and shape.latent is None:
        inputs = _count_own_inputs(shape, queries, keys)
        normalized = 0
    saved = {
        "query, key, value": tokens * inputs * size,
        "query and key norm input": tokens * normalized * size,
        **_list_core(shape, layout, setup, tokens),
        "attention output": attended * (size + 1 if setup.is_fp8 else size),
    }
    if shape.latent is not None:
        own = tokens // layout.norm_shards
        ranks = 2 * (shape.latent.query_rank or 0) + 2 * shape.latent.key_value_rank
        saved["latent projections"] = own * (ranks + shape.latent.rope_channels) * size
    return saved


def _count_own_inputs(shape: ModelShape, queries: int, keys: int) -> int:
    """Return the elements of a token that Megatron-LM's own attention saves of query, key and value.

    All three are views of one product, which stays whole as long as one of them does; what is rotated or
    normalized is new, and so are keys and values of groups, which are repeated for each head (Megatron-LM,
    core/transformer/attention.py and dot_product_attention.py).
    """
    is_grouped = keys < queries
    is_new = shape.has_rotary or shape.has_query_key_norm
    is_whole_kept = shape.has_query_key_norm or not (is_grouped and is_new)
    product = queries + 2 * keys if is_whole_kept else 0
    repeated = 2 * queries if is_grouped else keys * is_new
    return product + queries * is_new + repeated


def _list_core(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, tokens: int
) -> dict[str, int]:
    """Return what the kernel between q, k, v and the output keeps.

    Unfused: softmax of b a s^2 elements; with dropout also its mask, a byte each, and its output. Fused
    kernels keep the logarithm of each row's sum instead (Dao et al., arXiv 2205.14135, algorithm 2). Flash
    attention works on [b, s, a, d], so that a layout of [s, b, h] keeps its output twice.
    """
    heads = shape.heads // layout.tensor
    size = setup.numbers.compute_bytes
    rows = tokens * heads
    if setup.attention == "unfused":
        scores = rows * setup.seq_length
        dropped = scores * (1 + size) if setup.has_attention_dropout else 0
        return {"attention scores": scores * size, "attention score dropout": dropped}
    copy = tokens * shape.attended_size // layout.tensor * size if setup.attention == "flash" else 0
    return {"attention row sums": rows * STATISTIC_BYTES, "attention output in kernel": copy}


def _list_mlp(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, tokens: int) -> dict[str, int]:
    """Return what a dense MLP saves: its input, and input and output of the activation function."""
    inner = tokens * shape.ffn // layout.tensor
    gate = _count_gate(shape, setup, inner) * setup.numbers.compute_bytes
    return {
        "MLP input": tokens // layout.norm_shards * shape.hidden * _input_bytes(setup),
        "activation function input": inner * (2 if shape.is_gated else 1) * setup.numbers.compute_bytes,
        "activation function of the gate": gate,
        "activation function output": inner * _input_bytes(setup),
    }


def _count_gate(shape: ModelShape, setup: TrainingSetup, inner: int) -> int:
    """Return the elements that a gate keeps without a fused kernel: both factors of its product.

    The gate after its function, and the other half in a tensor of its own, as an offset is added to it even
    where that is 0 (Megatron-LM, core/transformer/mlp.py and moe/experts.py, `glu`).
    """
    return 0 if setup.fuses_gate or not shape.is_gated else 2 * inner


def _input_bytes(setup: TrainingSetup) -> int:
    """Return the bytes of an element that a linear layer saves of its input."""
    return 1 if setup.is_fp8 else setup.numbers.compute_bytes


# What each recomputed module no longer saves; names of modules as in Megatron-LM's --recompute-modules.
RECOMPUTED = {
    "core_attn": (
        "attention scores",
        "attention score dropout",
        "attention row sums",
        "attention output in kernel",
    ),
    "layernorm": ("attention input", "MLP input", "router input"),
    "mlp": (
        "MLP input",
        "activation function input",
        "activation function of the gate",
        "activation function output",
    ),
    "moe_act": ("expert gate", "expert output of activation", "expert weighted output"),
    "moe": (
        "router scores",
        "expert input",
        "expert input of activation",
        "expert gate",
        "expert output of activation",
        "expert weighted output",
        "shared expert input of activation",
        "shared expert output of activation",
    ),
    "shared_experts": ("shared expert input of activation", "shared expert output of activation"),
    "mla_up_proj": ("query, key, value",),
}


def _name_dropped(shape: ModelShape, setup: TrainingSetup) -> set[str]:
    """Return the operations that selective recompute does not save.

    Transformer Engine has one module of a norm and the projection behind it, which saves what is between them
    all the same; only latent attention and experts have norms of their own there (Megatron-LM,
    core/models/gpt/gpt_layer_specs.py).
    """
    if setup.recompute != "selective":
        return set()
    dropped = {name for module in setup.recomputed_modules for name in RECOMPUTED.get(module, ())}
    if setup.has_transformer_engine and "mlp" not in setup.recomputed_modules:
        dropped -= {"MLP input"}
    if setup.has_transformer_engine and shape.latent is None:
        dropped -= {"attention input"}
    return dropped


def list_kept_operations(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int, tokens: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the bytes that one layer keeps of one micro-batch, by operation.

    Kept are the layer's input, attention's output, every second matrix product (query, value, first half of a
    gated MLP, its last projection), and what collectives returned; all else is recomputed (torchtitan,
    torchtitan/distributed/activation_checkpoint.py and models/llama3/parallelize.py: wq, wv, w1, w2). Grouped
    products of experts are not kept, what all-to-all brought to them and back is.

    Returns:
        What backward reads as it is, and what it only starts from to recompute.
    """
    size = setup.numbers.compute_bytes
    tensor = layout.tensor
    hidden = tokens * shape.hidden * size
    own = hidden // layout.norm_shards
    kept = {
        "layer input": own,
        "value": tokens * max(shape.value_size // tensor, shape.head_channels) * size,
        "attention output": tokens * shape.attended_size // tensor * size,
        "attention row sums": tokens * (shape.heads // tensor) * 4,
    }
    beyond = {"query": tokens * shape.query_size // tensor * size}
    beyond["collective output"] = 2 * own if tensor > 1 else 0
    ffn = shape.ffn
    if shape.experts is not None and shape.is_expert_layer(layer):
        ffn = shape.experts.shared_ffn
        rows = count_expert_rows(shape.experts, layout, setup, tokens) if layout.expert > 1 else 0
        beyond["expert exchange"] = 2 * rows * shape.hidden * size
    kept["MLP first product"] = tokens * ffn // tensor * size
    beyond["MLP last product"] = hidden if ffn else 0
    return kept, beyond


# What a mixture-of-experts layer saves in place of a dense MLP.


def count_expert_rows(experts: ExpertShape, layout: ParallelLayout, setup: TrainingSetup, tokens: int) -> int:
    """Return the tokens that enter the experts of a rank: R = T k e / t, padded where a capacity is set.

    e ranks share an expert and gather its tokens; t ranks hold T / t tokens each (Megatron-LM,
    core/transformer/moe/token_dispatcher.py). Routers are assumed to be balanced.
    """
    rows = tokens * experts.top_k * layout.expert_shards // layout.tensor
    return rows if setup.expert_capacity is None else math.ceil(rows * setup.expert_capacity)


def list_expert_activations(
    shape: ModelShape, experts: ExpertShape, layout: ParallelLayout, setup: TrainingSetup, tokens: int
) -> dict[str, int]:
    """Return bytes by operation, for tokens that spread evenly over the experts.

    R rows of h elements enter the experts of a rank (`count_expert_rows`), and leave through inner sizes
    divided by the ranks that share an expert. A router that balances badly makes more of it on some ranks.
    `tokens` are s b / CP.
    """
    size = setup.numbers.compute_bytes
    own = tokens // layout.norm_shards
    input_bytes = 1 if setup.is_fp8 else size
    rows = count_expert_rows(experts, layout, setup, tokens)
    inner = rows * experts.ffn // layout.expert_shards
    wide = 2 if shape.is_gated else 1
    saved = {
        "router input": own * shape.hidden * size,
        "router scores": own * experts.experts * 4 * 2,
        "expert input": rows * shape.hidden * input_bytes,
        "expert input of activation": inner * wide * size,
        "expert gate": _count_gate(shape, setup, inner) * size,
        "expert output of activation": inner * input_bytes,
        # A fused gated unit weights by the router in the same kernel; others keep what is to be weighted.
        "expert weighted output": 0 if shape.is_gated and setup.fuses_gate else inner * size,
    }
    if experts.shared_ffn:
        shared = tokens * experts.shared_ffn // layout.tensor
        saved["shared expert input of activation"] = shared * wide * size
        saved["shared expert output of activation"] = shared * input_bytes
    return saved


# What the layers of a run hold, each kind of layer worked out once: a search tries thousands of runs.


class LayerFigures(NamedTuple):
    weights: list[WeightTensor]
    # Of the model; adapters come on top.
    parameters: int
    states: StateBytes
    # Bytes that it saves for backward, by operation; as if it were not fully recomputed.
    saved: dict[str, int]
    saved_bytes: int
    # What its backward pass adds at its worst moment.
    backward_bytes: int


class RunFigures:
    """A run, and what each kind of its layers holds.

    Layers differ only in whether their MLP is a mixture of experts. The first layer of a kind stands for all.
    """

    def __init__(self, shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> None:
        self.shape = shape
        self.layout = layout
        self.setup = setup
        self._firsts: dict[bool, int] = {}
        self._figures: dict[int, LayerFigures] = {}

    def find_first(self, layer: int) -> int:
        """Return the first layer of the kind of a layer; layers count from 0."""
        kind = self.shape.is_expert_layer(layer)
        if kind not in self._firsts:
            layers = range(self.shape.layers)
            self._firsts[kind] = next(other for other in layers if self.shape.is_expert_layer(other) == kind)
        return self._firsts[kind]

    def find_figures(self, layer: int) -> LayerFigures:
        first = self.find_first(layer)
        if first not in self._figures:
            run = (self.shape, self.layout, self.setup)
            weights = list_layer_weights(self.shape, self.layout, first)
            rank = self.setup.adapter_rank
            adapters = list_adapter_weights(self.shape, self.layout, first, rank) if rank else []
            saved = list_layer_activations(*run, first)
            self._figures[first] = LayerFigures(
                weights=weights,
                parameters=count_elements(weights),
                states=count_trained(weights, adapters, self.layout, self.setup),
                saved=saved,
                saved_bytes=sum(saved.values()),
                backward_bytes=count_backward(*run, first, saved, weights),
            )
        return self._figures[first]

    def count_kinds(self, layers: Sequence[int]) -> dict[int, int]:
        """Return the first layer of each kind of some layers, and the number of its kind, as they appear."""
        if self.shape.experts is None:
            return {0: len(layers)} if layers else {}
        counts: dict[int, int] = {}
        for layer in layers:
            first = self.find_first(layer)
            counts[first] = counts.get(first, 0) + 1
        return counts


_MLP_NAMES = ("MLP", "activation function", "expert", "router", "shared expert", "operations")


def count_backward(
    shape: ModelShape,
    layout: ParallelLayout,
    setup: TrainingSetup,
    layer: int,
    saved: dict[str, int],
    weights: list[WeightTensor],
) -> int:
    """Return the most bytes that backward of one layer adds, when everything before it is still saved.

    First the MLP: gradient of its output, T h, gathered where norms are split; gradient of the second
    projection's input, and of the first one's output once that input is freed; one weight gradient unless it
    is added in place. Experts add the gradient of their rows, R h. Then unfused attention: two gradients of
    the scores, with the MLP's share freed. What is recomputed selectively is back when its part runs. `saved`
    are bytes by operation.
    """
    tokens = count_tokens(layout, setup)
    size = setup.numbers.compute_bytes
    gathered = tokens * shape.hidden * size if layout.is_sequence_parallel and layout.tensor > 1 else 0
    output = tokens // layout.norm_shards * shape.hidden * size + gathered
    inner = _count_inner(shape, layout, setup, layer) * size
    wide = 2 if shape.is_gated else 1
    is_frozen = setup.adapter_rank > 0
    weight_gradient = 0
    if not setup.fuses_gradients and not is_frozen:
        weight_gradient = max(tensor.elements for tensor in weights) * size
    if setup.has_nf4_weights:
        # A matrix of 4 bits is there in full while its layer is multiplied.
        weight_gradient = max(tensor.elements for tensor in weights if tensor.is_converted) * size
    again = list_recomputed_activations(shape, layout, setup, layer)
    mlp = output + max(inner + weight_gradient, inner * wide)
    mlp += _count_expert_rows(shape, layout, setup, layer) * size + _sum_mlp(again)
    scores = 0
    if setup.attention == "unfused":
        scores = 2 * tokens * setup.seq_length * shape.heads // layout.tensor * size
    return max(mlp, output + scores + sum(again.values()) - _sum_mlp(again) - _sum_mlp(saved))


def _sum_mlp(saved: dict[str, int]) -> int:
    return sum(size for name, size in saved.items() if name.startswith(_MLP_NAMES))


def _count_inner(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int) -> int:
    """Return the elements between the two projections of an MLP, or of a rank's experts."""
    tokens = count_tokens(layout, setup)
    if not shape.is_expert_layer(layer) or shape.experts is None:
        return tokens * shape.ffn // layout.tensor
    rows = count_expert_rows(shape.experts, layout, setup, tokens)
    return rows * shape.experts.ffn // layout.expert_shards


def _count_expert_rows(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int) -> int:
    """Return the elements of the rows that left a rank's experts, 0 for a dense layer."""
    if not shape.is_expert_layer(layer) or shape.experts is None:
        return 0
    return count_expert_rows(shape.experts, layout, setup, count_tokens(layout, setup)) * shape.hidden
