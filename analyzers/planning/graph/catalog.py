"""Models by name, each with the sizes its authors published.

Decoders are the memory theory's. Models with an encoder, which that does not know, stand here.
"""

from ....engine.errors import UsageError
from ....engine.text import suggest
from ..theory import ModelShape
from ..theory.presets import PRESETS
from .architecture import Architecture

_LONGEST = {
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
"""Tokens of a sequence that decoders are planned for; their other sizes are among the presets."""


def take_shape(shape: ModelShape, positions: int) -> Architecture:
    """Return a decoder of the memory theory as a model to plan for; further predicted tokens are left out.

    Args:
        shape: The decoder.
        positions: Longest sequence it is made for.
    """
    return Architecture(
        family="moe" if shape.experts else "llama" if shape.is_gated else "gpt",
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_groups,
        head_size=shape.head_channels,
        intermediate=shape.ffn,
        vocabulary=shape.vocab,
        positions=positions,
        has_biases=shape.has_linear_bias,
        has_qkv_biases=shape.has_qkv_bias and not shape.has_linear_bias,
        has_positions=shape.learned_positions > 0,
        has_gate=shape.is_gated,
        has_dropout=not shape.is_gated,
        is_tied=shape.is_tied,
        norm_size=2 if shape.has_norm_bias else 1,
        has_query_key_norm=shape.has_query_key_norm,
        experts=shape.experts,
        latent=shape.latent,
    )


def _make_t5(layers: int, hidden: int, heads: int, head_size: int, width: int) -> Architecture:
    return Architecture(
        family="t5",
        layers=layers,
        decoder_layers=layers,
        hidden=hidden,
        heads=heads,
        head_size=head_size,
        intermediate=width,
        vocabulary=32128,
        positions=512,
        has_dropout=True,
        is_tied=True,
    )


def _make_bert(layers: int, hidden: int, heads: int) -> Architecture:
    return Architecture(
        family="bert",
        layers=layers,
        hidden=hidden,
        heads=heads,
        vocabulary=30522,
        positions=512,
        has_biases=True,
        has_positions=True,
        has_dropout=True,
        norm_size=2,
    )


MODELS: dict[str, Architecture] = {
    name: take_shape(PRESETS[name], longest) for name, longest in _LONGEST.items()
} | {
    "t5-small": _make_t5(6, 512, 8, 64, 2048),
    "t5-base": _make_t5(12, 768, 12, 64, 3072),
    "t5-large": _make_t5(24, 1024, 16, 64, 4096),
    "t5-3b": _make_t5(24, 1024, 32, 128, 16384),
    "bert-base": _make_bert(12, 768, 12),
    "bert-large": _make_bert(24, 1024, 16),
}


def find_model(name: str) -> Architecture:
    """Return a model by its name, in any case.

    Raises:
        UsageError: It is unknown; the text shows the nearest known names.
    """
    wanted = name.strip().lower().replace("_", "-")
    if wanted in MODELS:
        return MODELS[wanted]
    known = suggest(wanted, MODELS, f"known are {', '.join(MODELS)}.", most=3, cutoff=0.5)
    raise UsageError(f"unknown model {name!r}: {known} The path of its config.json does as well")
