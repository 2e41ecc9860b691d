"""Models by name: the sizes that their makers publish in config.json.

`gpt-…` have the sizes of Galvatron 2.4, counted as llm_parallel_strategy does: no biases, no positions, a
head of its own (Galvatron's code has biases and learned positions). `gpt2…` and `gpt3-…` are OpenAI's, which
have biases and positions, and a head that is the embedding. DeepSeek-V3 is without the layer that predicts a
further token.
"""

from ....engine.errors import UsageError
from ....engine.text import suggest
from .shape import ExpertShape, LatentAttention, ModelShape, ParallelLayout, TrainingSetup


def _llama(
    layers: int, hidden: int, heads: int, groups: int, ffn: int, vocab: int, *, is_tied: bool = False
) -> ModelShape:
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_groups=groups,
        head_channels=hidden // heads,
        ffn=ffn,
        vocab=vocab,
        is_gated=True,
        is_tied=is_tied,
    )


def _qwen(layers: int, hidden: int, heads: int, groups: int, ffn: int, *, vocab: int = 152064) -> ModelShape:
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_groups=groups,
        head_channels=128,
        ffn=ffn,
        vocab=vocab,
        is_gated=True,
        has_qkv_bias=True,
    )


def _gpt(layers: int, hidden: int, heads: int, *, positions: int = 1024) -> ModelShape:
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_groups=heads,
        head_channels=hidden // heads,
        ffn=4 * hidden,
        vocab=50257,
        learned_positions=positions,
        is_tied=True,
        has_linear_bias=True,
        has_qkv_bias=True,
        has_norm_bias=True,
    )


def _galvatron_gpt(layers: int, hidden: int, heads: int) -> ModelShape:
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_groups=heads,
        head_channels=hidden // heads,
        ffn=4 * hidden,
        vocab=50257,
    )


def _mixtral(layers: int, hidden: int, heads: int, ffn: int, vocab: int) -> ModelShape:
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_groups=8,
        head_channels=hidden // heads,
        ffn=ffn,
        vocab=vocab,
        is_gated=True,
        experts=ExpertShape(experts=8, top_k=2, ffn=ffn, is_expert_layer=(True,) * layers),
    )


def _qwen3(
    layers: int, hidden: int, heads: int, groups: int, ffn: int, *, expert_ffn: int = 0, is_tied: bool = False
) -> ModelShape:
    """Qwen3 (arXiv 2505.09388, tables 1 and 2); its experts are in all layers."""
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_groups=groups,
        head_channels=128,
        ffn=ffn,
        vocab=151936,
        is_gated=True,
        is_tied=is_tied,
        has_query_key_norm=True,
        experts=ExpertShape(experts=128, top_k=8, ffn=expert_ffn, is_expert_layer=(True,) * layers)
        if expert_ffn
        else None,
    )


def _deepseek(
    layers: int,
    hidden: int,
    heads: int,
    ffn: int,
    vocab: int,
    *,
    query_rank: int | None,
    dense: int,
    experts: int,
    top_k: int,
    expert_ffn: int,
    shared: int,
) -> ModelShape:
    """DeepSeek (arXiv 2405.04434 and 2412.19437): latent attention, first layers dense."""
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_groups=heads,
        head_channels=128,
        ffn=ffn,
        vocab=vocab,
        is_gated=True,
        experts=ExpertShape(
            experts=experts,
            top_k=top_k,
            ffn=expert_ffn,
            shared_ffn=shared * expert_ffn,
            is_expert_layer=(False,) * dense + (True,) * (layers - dense),
        ),
        latent=LatentAttention(
            query_rank=query_rank,
            key_value_rank=512,
            head_channels=128,
            rope_channels=64,
            value_channels=128,
        ),
    )


PRESETS = {
    "gpt-0.3b": _galvatron_gpt(24, 1024, 16),
    "gpt-1.5b": _galvatron_gpt(48, 1600, 32),
    "gpt-2.7b": _galvatron_gpt(32, 2560, 32),
    "gpt-6.7b": _galvatron_gpt(32, 4096, 32),
    "gpt2": _gpt(12, 768, 12),
    "gpt2-medium": _gpt(24, 1024, 16),
    "gpt2-large": _gpt(36, 1280, 20),
    "gpt2-xl": _gpt(48, 1600, 25),
    "gpt3-175b": _gpt(96, 12288, 96, positions=2048),
    "llama2-7b": _llama(32, 4096, 32, 32, 11008, 32000),
    "llama2-13b": _llama(40, 5120, 40, 40, 13824, 32000),
    "llama2-70b": _llama(80, 8192, 64, 8, 28672, 32000),
    "llama3-8b": _llama(32, 4096, 32, 8, 14336, 128256),
    "llama3-70b": _llama(80, 8192, 64, 8, 28672, 128256),
    "llama3-405b": _llama(126, 16384, 128, 8, 53248, 128256),
    "llama3.2-1b": _llama(16, 2048, 32, 8, 8192, 128256, is_tied=True),
    "llama3.2-3b": _llama(28, 3072, 24, 8, 8192, 128256, is_tied=True),
    "mistral-7b": _llama(32, 4096, 32, 8, 14336, 32000),
    "mixtral-8x7b": _mixtral(32, 4096, 32, 14336, 32000),
    "mixtral-8x22b": _mixtral(56, 6144, 48, 16384, 32768),
    "qwen2.5-7b": _qwen(28, 3584, 28, 4, 18944),
    "qwen2.5-32b": _qwen(64, 5120, 40, 8, 27648),
    "qwen2.5-72b": _qwen(80, 8192, 64, 8, 29568),
    "qwen3-0.6b": _qwen3(28, 1024, 16, 8, 3072, is_tied=True),
    "qwen3-1.7b": _qwen3(28, 2048, 16, 8, 6144, is_tied=True),
    "qwen3-4b": _qwen3(36, 2560, 32, 8, 9728, is_tied=True),
    "qwen3-8b": _qwen3(36, 4096, 32, 8, 12288),
    "qwen3-14b": _qwen3(40, 5120, 40, 8, 17408),
    "qwen3-32b": _qwen3(64, 5120, 64, 8, 25600),
    "qwen3-30b-a3b": _qwen3(48, 2048, 32, 4, 6144, expert_ffn=768),
    "qwen3-235b-a22b": _qwen3(94, 4096, 64, 4, 12288, expert_ffn=1536),
    "deepseek-v2-lite": _deepseek(
        27,
        2048,
        16,
        10944,
        102400,
        query_rank=None,
        dense=1,
        experts=64,
        top_k=6,
        expert_ffn=1408,
        shared=2,
    ),
    "deepseek-v2": _deepseek(
        60,
        5120,
        128,
        12288,
        102400,
        query_rank=1536,
        dense=1,
        experts=160,
        top_k=6,
        expert_ffn=1536,
        shared=2,
    ),
    "deepseek-v3": _deepseek(
        61,
        7168,
        128,
        18432,
        129280,
        query_rank=1536,
        dense=3,
        experts=256,
        top_k=8,
        expert_ffn=2048,
        shared=1,
    ),
}


# Tokens of the longest sequence that each is made for.
LONGEST = {
    "gpt-0.3b": 1024,
    "gpt-1.5b": 1024,
    "gpt-2.7b": 2048,
    "gpt-6.7b": 2048,
    "gpt2": 1024,
    "gpt2-medium": 1024,
    "gpt2-large": 1024,
    "gpt2-xl": 1024,
    "gpt3-175b": 2048,
    "llama2-7b": 4096,
    "llama2-13b": 4096,
    "llama2-70b": 4096,
    "llama3-8b": 8192,
    "llama3-70b": 8192,
    "llama3-405b": 131072,
    "llama3.2-1b": 131072,
    "llama3.2-3b": 131072,
    "mistral-7b": 8192,
    "qwen2.5-7b": 32768,
    "qwen2.5-32b": 32768,
    "qwen2.5-72b": 32768,
    "mixtral-8x7b": 32768,
    "mixtral-8x22b": 32768,
    "qwen3-0.6b": 40960,
    "qwen3-1.7b": 40960,
    "qwen3-4b": 40960,
    "qwen3-8b": 40960,
    "qwen3-14b": 40960,
    "qwen3-32b": 40960,
    "qwen3-30b-a3b": 40960,
    "qwen3-235b-a22b": 40960,
    "deepseek-v2-lite": 163840,
    "deepseek-v2": 163840,
    "deepseek-v3": 163840,
}


def find_preset(name: str) -> ModelShape:
    """Return the shape of a model by its name; a `UsageError` has the nearest name."""
    key = name.lower().replace("_", "-")
    if key in PRESETS:
        return PRESETS[key]
    hint = suggest(key, PRESETS, f"known are {', '.join(PRESETS)}.", most=3, cutoff=0.5)
    raise UsageError(f"unknown model {name!r}: {hint} The path of its config.json works too")


def find_longest(name: str) -> int:
    """Return the longest sequence that a model of `find_preset` is made for, in tokens."""
    return LONGEST[name.lower().replace("_", "-")]


# What `config.json` of GPT-2 says of hidden states and of attention (`resid_pdrop`, `attn_pdrop`).
# Galvatron's GPT is a `GPT2Config` that changes neither; the flags of Megatron-LM have the same defaults.
GPT_DROPOUT = 0.1


def find_dropout(name: str) -> float:
    """Return the share of hidden states and of attention that a model of `find_preset` drops in training.

    Only GPT does: the others publish none, or 0.
    """
    return 0.0 if find_preset(name).is_gated else GPT_DROPOUT


# Two formulas published by others, as yardsticks: Megatron-LM's own estimate, and that of a fork of it.

# Both give one number: the states of the most loaded rank, and the activations of the first stage.
# Megatron-LM: megatron/training/theoretical_memory_usage.py. The fork: the same with the number of parameters
# of the older form, without the case that sequence parallelism is off.

# What Megatron-LM adds where sequence parallelism or selective recompute is off.
_OVERHEAD = 1.05


def estimate_as_published(
    shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup
) -> tuple[float, float]:
    """Return bytes of states, and of states and activations, by Megatron-LM's published formula.

    It assumes that the first stage is the fullest, layers evenly split, biases and CP absent.
    """
    states = _count_loaded(shape, layout) * _state_bytes(layout, setup)
    if layout.is_sequence_parallel and setup.recompute == "selective":
        return states, states + _activations_sequence_parallel(shape, layout, setup)
    return states, states + _activations_plain(shape, layout, setup)


def estimate_as_fork(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> float:
    """Return bytes of states and activations as in `theoretical_memory_MB` of the fork's traces."""
    rows = shape.pad_vocab(1) * shape.hidden
    loaded = _count_layers(shape) / layout.pipeline + rows
    if not shape.is_tied and layout.pipeline == 1:
        loaded += rows
    states = loaded / layout.tensor * _state_bytes(layout, setup)
    return states + _activations_sequence_parallel(shape, layout, setup)


def _count_layers(shape: ModelShape) -> float:
    """Return the parameters of all layers and the last norm, without biases."""
    gate = 1.5 if shape.is_gated else 1.0
    norms = 2 if shape.has_norm_bias else 1
    total = float(norms * shape.hidden)
    for layer in range(shape.layers):
        width = shape.ffn * gate
        if shape.is_expert_layer(layer) and shape.experts is not None:
            width = (shape.experts.ffn * shape.experts.experts + shape.experts.shared_ffn) * gate
        total += 2 * shape.hidden * (width + norms) + _count_attention(shape)
    return total


def _count_attention(shape: ModelShape) -> float:
    if shape.latent is None:
        return 2 * shape.hidden * shape.query_size * (1 + shape.kv_groups / shape.heads)
    latent = shape.latent
    query = shape.hidden * shape.query_size
    if latent.query_rank is not None:
        query = latent.query_rank * (shape.hidden + shape.query_size)
    expanded = shape.heads * (latent.head_channels + latent.value_channels)
    keys = latent.key_value_rank * (shape.hidden + expanded) + shape.hidden * latent.rope_channels
    return float(query + keys + shape.attended_size * shape.hidden)


def _count_loaded(shape: ModelShape, layout: ParallelLayout) -> float:
    rows = shape.pad_vocab(layout.tensor) * shape.hidden
    loaded = _count_layers(shape) / layout.pipeline + rows
    if not shape.is_tied and layout.pipeline == 1:
        loaded += rows
    return loaded / layout.tensor


def _state_bytes(layout: ParallelLayout, setup: TrainingSetup) -> float:
    return 18 if setup.zero_stage == 0 else 6 + 12 / layout.data


def _activations_sequence_parallel(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> float:
    elements = setup.seq_length * setup.micro_batch_size * shape.hidden
    total = elements * (18 + 4 * shape.ffn / shape.hidden) * shape.layers
    total = _fill_pipeline(total + _embedding(shape, layout, setup), layout, setup)
    if layout.pipeline == 1:
        total += 4 * elements * (1 + shape.pad_vocab(layout.tensor) / shape.hidden)
    return total / layout.tensor


def _activations_plain(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> float:
    tokens = setup.seq_length * setup.micro_batch_size
    total = tokens * shape.hidden * (10 + 24 / layout.tensor) * shape.layers
    total = _fill_pipeline(total + _embedding(shape, layout, setup), layout, setup)
    if layout.pipeline == 1:
        total += 2 * tokens * (shape.pad_vocab(layout.tensor) / layout.tensor + shape.hidden)
    return total * _OVERHEAD


def _embedding(shape: ModelShape, layout: ParallelLayout, setup: TrainingSetup) -> float:
    return setup.seq_length * setup.micro_batch_size * layout.pipeline * (8.0 + shape.hidden)


def _fill_pipeline(total: float, layout: ParallelLayout, setup: TrainingSetup) -> float:
    if layout.virtual_stages > 1:
        return total * (1 + (layout.pipeline - 1) / (layout.pipeline * layout.virtual_stages))
    if layout.pipeline > 1:
        return total * min(1.0, setup.micro_batches / layout.pipeline)
    return total
