"""Models in the `config.json` of Hugging Face, as flags of Megatron-LM."""

from collections.abc import Mapping

from .flags import Flags

_GELU_MODELS = ("gpt2", "gpt_neox", "bloom", "opt", "falcon", "gpt_bigcode", "starcoder2", "phi")
_QKV_BIAS_MODELS = ("qwen2", "qwen2_moe", "qwen")
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
    """Return a model's configuration as Megatron-LM's flags, for training without dropout in bf16."""
    values = Flags(config)
    kind = values.find_word("model-type", "")
    flags: dict[str, object] = {flag: _find(config, names) for flag, names in _SIZES.items()}
    is_plain = kind in _GELU_MODELS or "n_embd" in config
    flags |= {
        "group-query-attention": True,
        "swiglu": not is_plain,
        "normalization": "LayerNorm" if is_plain else "RMSNorm",
        "disable-bias-linear": not is_plain,
        "add-qkv-bias": kind in _QKV_BIAS_MODELS or values.is_on("attention-bias"),
        "qk-layernorm": kind.startswith("qwen3"),
        "position-embedding-type": "learned_absolute"
        if kind in ("gpt2", "opt") or "n_embd" in config
        else "rope",
        "untie-embeddings-and-output-weights": not _is_tied(config, is_plain=is_plain),
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


def _find(config: Mapping[str, object], names: tuple[str, ...]) -> object:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _is_tied(config: Mapping[str, object], *, is_plain: bool) -> bool:
    value = config.get("tie_word_embeddings")
    return is_plain if value is None else bool(value)


def _flag_experts(values: Flags, flags: Mapping[str, object]) -> dict[str, object]:
    """Return the flags of shared experts and of dense layers before the first mixture."""
    if flags["num-experts"] is None:
        return {}
    inner = values.find_count("moe-intermediate-size", 0)
    shared = values.find_count(
        "shared-expert-intermediate-size", values.find_count("n-shared-experts", 0) * inner
    )
    layers = Flags(flags).get_count("num-layers")
    dense = values.find_count("first-k-dense-replace", 0)
    pattern = f"([0]*{dense}+[1]*{layers - dense})" if 0 < dense < layers else "1"
    return {"moe-shared-expert-intermediate-size": shared, "moe-layer-freq": pattern}
