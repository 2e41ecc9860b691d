"""The model in Megatron-LM's flags."""

import re

from .....engine.errors import UsageError
from ..shape import MOST_LAYERS, ExpertShape, LatentAttention, ModelShape
from .flags import BERT, Flags

VOCABS = {
    "gpt2bpetokenizer": 50257,
    "bertwordpiececase": 28996,
    "bertwordpiecelowercase": 30522,
    "llama2tokenizer": 32000,
    "tiktokenizer": 131072,
}
"""Words of tokenizers that need no file to tell, by the names of `--tokenizer-type` in lower case."""
DEFAULT_VOCAB = VOCABS["gpt2bpetokenizer"]
_LAYER_FLAGS = re.compile(r"\[([01](?:\s*,\s*[01])*)\](?:\s*\*\s*(\d+))?")


def read_shape(flags: Flags) -> ModelShape:
    """Return the model.

    Raises:
        UsageError: A size is missing or no whole number.
    """
    layers = flags.get_count("num-layers", "encoder-num-layers")
    hidden = flags.get_count("hidden-size")
    heads = flags.get_count("num-attention-heads")
    _check_sizes(layers, heads)
    groups = flags.find_count("num-query-groups", heads) if _is_grouped(flags) else heads
    positions = flags.find_count("max-position-embeddings", flags.find_count("seq-length", 0))
    has_bias = not flags.is_off("add-bias-linear")
    ffn = _read_ffn(flags, hidden)
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_groups=groups,
        head_channels=flags.find_count("kv-channels", hidden // heads),
        ffn=ffn,
        vocab=_read_vocab(flags),
        vocab_multiple=1 if flags.has("padded-vocab-size") else _read_multiple(flags),
        learned_positions=positions if _has_positions(flags) else 0,
        is_gated=flags.is_on("swiglu") or flags.is_on("quick-geglu"),
        is_tied=not flags.is_on("untie-embeddings-and-output-weights"),
        has_linear_bias=has_bias,
        has_qkv_bias=has_bias or flags.is_on("add-qkv-bias"),
        has_norm_bias=flags.find_word("normalization", "layernorm") == "layernorm",
        has_query_key_norm=flags.is_on("qk-layernorm"),
        experts=_read_experts(flags, layers, ffn),
        latent=_read_latent(flags),
        predicted_tokens=flags.find_count("mtp-num-layers", 0),
        has_masked_head=flags.is_on(BERT),
    )


def _check_sizes(layers: int, heads: int) -> None:
    if not 1 <= layers <= MOST_LAYERS:
        raise UsageError(f"num-layers is {layers}; expected 1 to {MOST_LAYERS:,}")
    if heads < 1:
        raise UsageError(f"num-attention-heads is {heads}; expected at least 1")


def _has_positions(flags: Flags) -> bool:
    """Return whether positions are learned: the default; two older flags turn them off as well."""
    if flags.is_on("use-rotary-position-embeddings") or flags.is_on("no-position-embedding"):
        return False
    return flags.find_word("position-embedding-type", "learned_absolute") == "learned_absolute"


def _read_multiple(flags: Flags) -> int:
    return flags.find_count("make-vocab-size-divisible-by", 128)


def _read_vocab(flags: Flags) -> int:
    """Return the words before padding; the tokenizer that needs no words adds one for the end of a text."""
    tokenizer = flags.find_word("tokenizer-type", "")
    words = flags.find_count("vocab-size", VOCABS.get(tokenizer, DEFAULT_VOCAB))
    return flags.find_count("padded-vocab-size", words + (tokenizer == "nulltokenizer"))


def _is_grouped(flags: Flags) -> bool:
    return flags.is_on("group-query-attention") and flags.has("num-query-groups")


def _read_ffn(flags: Flags, hidden: int) -> int:
    # A gated MLP gets two thirds of 4 h, in whole multiples of 64, so that it has as many parameters.
    default = int(4 * hidden * 2 / 3 / 64) * 64 if flags.is_on("swiglu") else 4 * hidden
    return flags.find_count("ffn-hidden-size", default)


def _read_experts(flags: Flags, layers: int, ffn: int) -> ExpertShape | None:
    if not flags.has("num-experts"):
        return None
    return ExpertShape(
        experts=flags.get_count("num-experts"),
        top_k=flags.find_count("moe-router-topk", 2),
        ffn=flags.find_count("moe-ffn-hidden-size", ffn),
        shared_ffn=flags.find_count("moe-shared-expert-intermediate-size", 0),
        is_expert_layer=_read_layer_flags(flags.find_text("moe-layer-freq") or "1", layers),
    )


def _read_layer_flags(text: str, layers: int) -> tuple[bool, ...]:
    """Return which layers have experts: every n-th, a pattern such as `([0]*1+[1]*26)`, or a list."""
    if text.strip().isdigit() and int(text) > 0:
        return tuple(layer % int(text) == 0 for layer in range(layers))
    found: list[bool] = []
    for values, times in _LAYER_FLAGS.findall(text):
        if int(times or 1) * (values.count(",") + 1) > layers:
            break
        found += [value.strip() == "1" for value in values.split(",")] * int(times or 1)
    if len(found) != layers:
        raise UsageError(
            f"moe-layer-freq {text!r} does not give {layers} layers; expected one 0 or 1 a layer"
        )
    return tuple(found)


def _read_latent(flags: Flags) -> LatentAttention | None:
    if not flags.is_on("multi-latent-attention"):
        return None
    return LatentAttention(
        query_rank=flags.get_count("q-lora-rank") if flags.has("q-lora-rank") else None,
        key_value_rank=flags.find_count("kv-lora-rank", 32),
        head_channels=flags.find_count("qk-head-dim", 128),
        rope_channels=flags.find_count("qk-pos-emb-head-dim", 64),
        value_channels=flags.find_count("v-head-dim", 128),
    )
