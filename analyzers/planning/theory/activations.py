"""Bytes that one layer saves for its backward pass, operation by operation.

Korthikanti et al., arXiv 2205.05198, section 4, count them for GPT with dropout, 16 bits and an inner size
of 4 h: s b h (34 + 5 a s / h) without parallelism, s b h (10 + 24 / t + 5 a s / (h t)) with tensor
parallelism, s b h / t (34 + 5 a s / h) with sequence parallelism too. Every entry here is one term of these
sums, for any inner size, grouped queries, gated MLPs, context parallelism, latent attention and experts.

T = s b / CP is the tokens of a rank, t its tensor ranks; norms and dropout see T / t with sequence
parallelism.
"""

from .expert_activations import count_expert_rows, list_expert_activations
from .layout import ParallelLayout
from .shape import ModelShape
from .training import TrainingSetup

STATISTIC_BYTES = 4
"""Means, deviations and sums of exponentials stay in fp32."""


def count_tokens(layout: ParallelLayout, setup: TrainingSetup) -> int:
    """Return the tokens of one micro-batch on one rank: s b / CP."""
    return setup.seq_length * setup.micro_batch_size // layout.context


def list_layer_activations(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, layer: int
) -> dict[str, int]:
    """Return the bytes that one layer saves of one micro-batch, by operation.

    Args:
        shape: The model.
        layout: Degrees of parallelism.
        setup: The run; its `recompute` decides what is dropped. `full` is the caller's business.
        layer: Which layer, from 0.
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
    """Return the bytes that are dropped in one layer and back for its backward pass, by operation."""
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
        "norm statistics": own * STATISTIC_BYTES * (4 if shape.has_norm_bias else 2),
    }
    if shape.experts is not None and shape.is_expert_layer(layer):
        saved |= list_expert_activations(shape, shape.experts, layout, setup, tokens)
    else:
        saved |= _list_mlp(shape, layout, setup, tokens)
    saved["MLP dropout"] = own * shape.hidden if setup.has_hidden_dropout else 0
    return {name: size for name, size in saved.items() if size}


def _list_attention(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup, tokens: int
) -> dict[str, int]:
    """Return what attention saves: q, k, v, what its kernel keeps, and the input of the last projection."""
    tensor = layout.tensor
    size = setup.numbers.compute_bytes
    keys = max(shape.key_size // tensor, min(shape.key_size, shape.head_channels))
    values = max(shape.value_size // tensor, min(shape.value_size, shape.head_channels))
    attended = tokens * shape.attended_size // tensor
    saved = {
        "query, key, value": tokens * (shape.query_size // tensor + keys + values) * size,
        "query and key norm input": tokens
        * (shape.query_size // tensor + keys)
        * size
        * shape.has_query_key_norm,
        **_list_core(shape, layout, setup, tokens),
        "attention output": attended * (size + 1 if setup.is_fp8 else size),
    }
    if shape.latent is not None:
        own = tokens // layout.norm_shards
        ranks = 2 * (shape.latent.query_rank or 0) + 2 * shape.latent.key_value_rank
        saved["latent projections"] = own * (ranks + shape.latent.rope_channels) * size
    return saved


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
    """Return what a dense MLP saves: its input, what enters the activation function, and what leaves it."""
    inner = tokens * shape.ffn // layout.tensor
    gate = 0 if setup.fuses_gate or not shape.is_gated else inner * setup.numbers.compute_bytes
    return {
        "MLP input": tokens // layout.norm_shards * shape.hidden * _input_bytes(setup),
        "activation function input": inner * (2 if shape.is_gated else 1) * setup.numbers.compute_bytes,
        "activation function of the gate": gate,
        "activation function output": inner * _input_bytes(setup),
    }


def _input_bytes(setup: TrainingSetup) -> int:
    """Return the bytes of an element that a linear layer saves of its input."""
    return 1 if setup.is_fp8 else setup.numbers.compute_bytes


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
"""What each recomputed module no longer saves; names of modules as in Megatron-LM's --recompute-modules."""


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
    gated MLP, its last projection), and what collectives returned; all else is worked out again (torchtitan,
    torchtitan/distributed/activation_checkpoint.py and models/llama3/parallelize.py: wq, wv, w1, w2). Grouped
    products of experts are not kept, what all-to-all brought to them and back is.

    Returns:
        What backward reads as it is, and what it only starts from again.
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
