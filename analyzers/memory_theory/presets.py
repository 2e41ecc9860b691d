"""Models by name: the sizes that their makers publish in config.json.

`gpt-…` are those of Galvatron 2.4: no biases, no positions, a head of its own. `gpt2…` and `gpt3-…` are
OpenAI's, which have biases and positions, and a head that is the embedding.
"""

from ...engine.errors import UsageError
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


def _deepseek_v2_lite() -> ModelShape:
    return ModelShape(
        layers=27,
        hidden=2048,
        heads=16,
        kv_groups=16,
        head_channels=128,
        ffn=10944,
        vocab=102400,
        is_gated=True,
        experts=ExpertShape(
            experts=64, top_k=6, ffn=1408, shared_ffn=2816, is_expert_layer=(False,) + (True,) * 26
        ),
        latent=LatentAttention(
            query_rank=None, key_value_rank=512, head_channels=128, rope_channels=64, value_channels=128
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
    "deepseek-v2-lite": _deepseek_v2_lite(),
}
"""Shapes by name."""


def find_preset(name: str) -> ModelShape:
    """Return the shape of a model by its name.

    Raises:
        UsageError: No such name; the text has the nearest one.
    """
    import difflib

    key = name.lower().replace("_", "-")
    if key in PRESETS:
        return PRESETS[key]
    nearest = difflib.get_close_matches(key, PRESETS, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known are {', '.join(PRESETS)}; or give a file"
    raise UsageError(f"no model is called {name!r}; {hint}")
