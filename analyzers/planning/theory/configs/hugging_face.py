"""Models in the `config.json` of Hugging Face, as flags of Megatron-LM."""

from collections.abc import Mapping
from typing import NamedTuple

from .....engine.errors import UsageError
from .flags import Flags


class Family(NamedTuple):
    """What a `model_type` means beyond the sizes that a configuration tells; defaults as in transformers."""

    is_gated: bool = True
    has_bias: bool = False
    has_qkv_bias: bool = False
    is_tied: bool = False
    has_layer_norm: bool = False
    """LayerNorm, with a bias, in place of RMSNorm."""
    has_query_key_norm: bool = False
    has_learned_positions: bool = False
    head_channels: int | None = None
    """Channels of a head where the configuration does not tell; None: hidden / heads."""


_LLAMA = Family()
_GPT = Family(is_gated=False, has_bias=True, is_tied=True, has_layer_norm=True, has_learned_positions=True)
_OTHER_GPT = _GPT._replace(has_learned_positions=False)
_QWEN3 = Family(has_query_key_norm=True, head_channels=128)
FAMILIES = {
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "phi3": _LLAMA,
    "deepseek_v2": _LLAMA,
    "deepseek_v3": _LLAMA,
    "qwen2": Family(has_qkv_bias=True),
    "qwen2_moe": Family(has_qkv_bias=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "gemma": Family(is_tied=True, head_channels=256),
    "gpt2": _GPT,
    "opt": _GPT,
    "bloom": _OTHER_GPT,
    "starcoder2": _OTHER_GPT,
    "gpt_neox": _OTHER_GPT._replace(is_tied=False),
}
"""Stacks of decoder layers that differ in nothing else that costs memory worth telling."""
_REQUIRED = ("num-layers", "hidden-size", "num-attention-heads", "vocab-size")
_SIZES = {
    "num-layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden-size": ("hidden_size", "n_embd", "d_model", "dim"),
    "num-attention-heads": ("num_attention_heads", "n_head", "n_heads"),
    "num-query-groups": ("num_key_value_heads", "n_kv_heads", "num_query_groups", "num_kv_heads"),
    "kv-channels": ("head_dim",),
    "ffn-hidden-size": ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
    "vocab-size": ("vocab_size",),
    "max-position-embeddings": ("max_position_embeddings", "n_positions"),
    "num-experts": ("num_local_experts", "n_routed_experts", "num_experts"),
    "moe-router-topk": ("num_experts_per_tok",),
    "moe-ffn-hidden-size": ("moe_intermediate_size",),
    "q-lora-rank": ("q_lora_rank",),
    "kv-lora-rank": ("kv_lora_rank",),
    "qk-head-dim": ("qk_nope_head_dim",),
    "qk-pos-emb-head-dim": ("qk_rope_head_dim",),
    "v-head-dim": ("v_head_dim",),
    "mtp-num-layers": ("num_nextn_predict_layers",),
}
"""Flag, and the names that configurations give it."""


def flag_hugging_face(config: Mapping[str, object]) -> dict[str, object]:
    """Return a model's configuration as Megatron-LM's flags, for training without dropout in bf16.

    Raises:
        UsageError: A size is missing, or `model_type` is none of `FAMILIES`.
    """
    values = Flags(config)
    family = _find_family(values, config)
    flags: dict[str, object] = {flag: _find(config, names) for flag, names in _SIZES.items()}
    for flag in _REQUIRED:
        if flags[flag] is None:
            raise UsageError(f"{_SIZES[flag][0]} is not given; expected a model's config.json with all sizes")
    flags |= {
        "kv-channels": flags["kv-channels"] or family.head_channels,
        "group-query-attention": True,
        "swiglu": family.is_gated,
        "normalization": "LayerNorm" if family.has_layer_norm else "RMSNorm",
        "disable-bias-linear": not family.has_bias,
        "add-qkv-bias": family.has_qkv_bias or values.is_on("attention-bias"),
        "qk-layernorm": family.has_query_key_norm,
        "position-embedding-type": "learned_absolute" if family.has_learned_positions else "rope",
        "untie-embeddings-and-output-weights": not _is_tied(config, family),
        "multi-latent-attention": "kv_lora_rank" in config,
        "make-vocab-size-divisible-by": 1,
        **flag_plain_training(),
    }
    return flags | _flag_experts(values, flags)


def flag_plain_training() -> dict[str, object]:
    """Return the flags of training without dropout and without a mask from the data loader, in bf16."""
    return {
        "bf16": True,
        "hidden-dropout": 0.0,
        "attention-dropout": 0.0,
        "no-create-attention-mask-in-dataloader": True,
    }


def _find_family(values: Flags, config: Mapping[str, object]) -> Family:
    """Return what the model type means; a configuration without one is like Llama, or GPT-2 by its names."""
    if not values.has("model-type"):
        return _GPT if "n_embd" in config else _LLAMA
    kind = values.find_word("model-type", "")
    if kind not in FAMILIES:
        raise UsageError(f"model_type {kind!r} cannot be estimated; expected one of {', '.join(FAMILIES)}")
    return FAMILIES[kind]


def _find(config: Mapping[str, object], names: tuple[str, ...]) -> object:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _is_tied(config: Mapping[str, object], family: Family) -> bool:
    value = config.get("tie_word_embeddings")
    return family.is_tied if value is None else bool(value)


def _flag_experts(values: Flags, flags: Mapping[str, object]) -> dict[str, object]:
    """Return the flags of shared experts, and which layers have a mixture."""
    if flags["num-experts"] is None:
        return {}
    inner = values.find_count("moe-intermediate-size", 0)
    shared = values.find_count(
        "shared-expert-intermediate-size", values.find_count("n-shared-experts", 0) * inner
    )
    pattern = _list_expert_layers(values, Flags(flags).get_count("num-layers"))
    return {"moe-shared-expert-intermediate-size": shared, "moe-layer-freq": pattern}


def _list_expert_layers(values: Flags, layers: int) -> str:
    """Return one 0 or 1 a layer: DeepSeek begins with dense ones, Qwen has a mixture in every n-th one."""
    dense = values.find_count("first-k-dense-replace", 0)
    step = max(1, values.find_count("decoder-sparse-step", 1))
    plain = values.find_words("mlp-only-layers", ())
    flags = [
        "0" if layer < dense or (layer + 1) % step or str(layer) in plain else "1" for layer in range(layers)
    ]
    return f"[{','.join(flags)}]"
