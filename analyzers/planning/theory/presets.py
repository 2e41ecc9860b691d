"""Models by name: the sizes that their makers publish in config.json.

`gpt-…` are those of Galvatron 2.4: no biases, no positions, a head of its own. `gpt2…` and `gpt3-…` are
OpenAI's, which have biases and positions, and a head that is the embedding. DeepSeek-V3 is without the layer
that predicts a further token.
"""

from ....engine.errors import UsageError
from ....engine.text import suggest
from .shape import ExpertShape, LatentAttention, ModelShape


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
    """Return a model of Qwen3 (arXiv 2505.09388, tables 1 and 2); its experts are in all layers."""
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
    """Return a model of DeepSeek (arXiv 2405.04434 and 2412.19437): latent attention, first layers dense."""
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
"""Shapes by name."""


def find_preset(name: str) -> ModelShape:
    """Return the shape of a model by its name.

    Raises:
        UsageError: No such name; the text has the nearest one.
    """
    key = name.lower().replace("_", "-")
    if key in PRESETS:
        return PRESETS[key]
    hint = suggest(key, PRESETS, f"known are {', '.join(PRESETS)}; or give a file")
    raise UsageError(f"no model is called {name!r}; {hint}")
